// Recursive doubling, and its generalisation to any radix.
#pragma once

#include <colls/algebra/exclusive.hpp>
#include <colls/detail/derive/translation.hpp>
#include <colls/detail/schedule/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// After k rounds each rank holds a result over K^k ranks: the fewest rounds, for short messages.
///
///   implements    all_reduce, inclusive_scan, exclusive_scan, barrier
///   group sizes   all_reduce: powers of K (folded<recursive_doubling>: any); scans and barrier: any
///   rounds        ceil(log_K n) on K - 1 ports (exclusive_scan: 1 + ceil(log_K (n - 1)))
///   blocks sent   the whole buffer (K - 1) log_K n times by each rank, scans at most; a barrier sends none
///   scratch       none
///   order         rank order; all_reduce: the same bits on every rank
///   source        scans: Hillis and Steele, 1986; barrier (dissemination): Hensgen, Finkel and Manber, 1988; radix
///                 (recursive multiplying): Ruefenacht, Bull and Booth, 2017
template <int K = 2>
struct recursive_multiplying {
    static_assert(K >= 2, "colls: recursive_multiplying<K>: the radix K is at least 2");

    /// In round k the K ranks that differ in digit k alone exchange their whole buffers.
    struct all_reduce : detail::by_digits<K> {
        static constexpr collective implements = collective::all_reduce;
        static constexpr bool supports(int n) { return detail::is_power(K, n); }
        static constexpr int blocks(int) { return 1; }
        static constexpr step at(int rank, int, int round, int port) {
            const int d = detail::power(K, round), digit = rank / d % K, rest = rank - digit * d;
            const int to = (digit + port + 1) % K, from = mod(digit - port - 1, K);
            return {.send = {rest + to * d, block(0)}, .recv = {rest + from * d, block(0), action::reduce}};
        }
    };

    /// Before round k rank r holds the combination of the K^k ranks that end with r; it combines it with those of ranks
    /// r - j K^k, 0 < j < K.
    struct inclusive_scan : detail::by_digits<K> {
        static constexpr collective implements = collective::inclusive_scan;
        static constexpr step at(int rank, int n, int round, int port) {
            const long long d = detail::power(K, round), reach = (port + 1) * d;
            step s;
            if (rank + reach < n) s.send = {static_cast<int>(rank + reach), block(0)};
            if (rank >= reach) s.recv = {static_cast<int>(rank - reach), block(0), action::reduce};
            return s;
        }
    };
    using exclusive_scan = exclusive<inclusive_scan>;

    /// In round k rank r sends messages without data to ranks r + j K^k, 0 < j < K.
    struct barrier : detail::by_digits<K>, detail::by_translation<barrier> {
        static constexpr collective implements = collective::barrier;
        static constexpr step of_rank_0(int n, int round, int port) {
            const long long d = detail::power(K, round), reach = (port + 1) * d;
            if (reach >= n) return {};
            const int j = static_cast<int>(reach);
            return {.send = {.peer = mod(j, n)}, .recv = {.peer = mod(-j, n)}};
        }
    };
};

/// Pairs of ranks, twice as far apart in each round.
using recursive_doubling = recursive_multiplying<2>;

}  // namespace colls::inline v1
