// Bruck's algorithms, of any radix.
#pragma once

#include <colls/detail/derive/translation.hpp>
#include <colls/detail/schedule/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Few rounds for short messages; every rank does the same, up to rotation.
///
///   implements    all_gather, all_to_all; derived: reduce_scatter, all_reduce, barrier
///   group sizes   any
///   rounds        all_gather ceil(log_K n) on K - 1 ports; all_to_all at most (K - 1) ceil(log_K n) on one port
///   blocks sent   all_gather n - 1 by each rank, the least; all_to_all about n (1 - 1/K) log_K n (n = 64: 192 with
///                 K = 2, 144 with K = 4, the least is 63)
///   scratch       reduce_scatter: at most K^(q-1) - 1 partial results, q = ceil(log_K n)
///   order         not rank order: commutative operators
///   source        Bruck, Ho, Kipnis, Upfal and Weathersby, 1997
template <int K = 2>
struct bruck {
    static_assert(K >= 2, "colls: bruck<K>: the radix K is at least 2");

    /// Before round k rank r holds the K^k blocks from its own on. It sends them, or as many as the receiver lacks, to
    /// ranks r - j K^k, 0 < j < K.
    struct all_gather : detail::by_digits<K>, detail::by_translation<all_gather> {
        static constexpr collective implements = collective::all_gather;
        static constexpr step of_rank_0(int n, int round, int port) {
            const int have = detail::power(K, round);
            const long long reach = (port + 1LL) * have;
            if (reach >= n) return {};
            const int j = static_cast<int>(reach), count = have < n - j ? have : n - j;
            return {.send = {mod(-j, n), block_range(0, count, n)}, .recv = {mod(j, n), block_range(j, count, n)}};
        }
    };

    /// Slot i of rank r holds the block for rank r + i before, and the block from rank r - i after. There is a round
    /// for each digit z != 0 at each place k of i in base K, in which the slots with that digit move on to rank r + z
    /// K^k. With K >= n this is the pairwise exchange, n - 1 rounds of one block.
    struct all_to_all : detail::by_translation<all_to_all, detail::slot_motion::stays> {
        static constexpr collective implements = collective::all_to_all;
        static constexpr int rounds(int n) {
            const int places = detail::log_ceil(K, n);
            return n == 1 ? 0 : (K - 1) * (places - 1) + (n - 1) / detail::power(K, places - 1);
        }
        static constexpr int input_of_rank_0(int n, int slot) { return mod(slot, n); }
        static constexpr int output_of_rank_0(int n, int slot) { return mod(-slot, n); }
        static constexpr step of_rank_0(int n, int round) {
            const int d = detail::power(K, round / (K - 1)), z = round % (K - 1) + 1;
            const block_set slots = with_digit(z, d, n);
            return {.send = {mod(z * d, n), slots}, .recv = {mod(-z * d, n), slots}};
        }

    private:
        /// The slots i < n with i / d mod K = z: runs of d slots, K d apart, the last run cut off at n.
        static constexpr block_set with_digit(int z, int d, int n) {
            const long long period = 1LL * K * d;
            const int whole = static_cast<int>(n / period), rest = static_cast<int>(n % period) - z * d;
            return {.first = z * d,
                .count = whole * d + (rest < 0      ? 0
                                         : rest < d ? rest
                                                    : d),
                .run = d,
                .period = whole > 0 ? static_cast<int>(period) : d};
        }
    };
};

}  // namespace colls::inline v1
