// Bruck's algorithms, of any radix.
#pragma once

#include <colls/detail/support/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Few rounds for short messages, any n (Bruck, Ho, Kipnis, Upfal and Weathersby, 1997). The same for every rank up to
/// rotation. reduce_scatter (commutative operators), all_reduce and barrier follow.
template <int K = 2>
struct bruck {
    static_assert(K >= 2, "colls: bruck<K>: the radix K is at least 2");

    /// ceil(log_K n) rounds on K - 1 ports; n - 1 blocks a rank, the least. Before round k rank r holds the K^k blocks
    /// from its own on, and sends as many as are wanted to r - j K^k, 0 < j < K.
    struct all_gather {
        static constexpr collective implements = collective::all_gather;
        static constexpr int ports(int) { return K - 1; }
        static constexpr int rounds(int n) { return detail::log_ceil(K, n); }
        static constexpr step at(int rank, int n, int round, int port) {
            const int have = detail::power(K, round);
            const long long reach = (port + 1LL) * have;
            if (reach >= n) return {};
            const int j = static_cast<int>(reach), count = have < n - j ? have : n - j;
            return {.send = {mod(rank - j, n), block_range(rank, count, n)},
                .recv = {mod(rank + j, n), block_range(rank + j, count, n)}};
        }
    };

    /// Slot i starts with the block for rank r + i and ends with the one from r - i; it travels by the digits of i.
    /// One port, and a round for each digit z != 0 at each place k: the slots with digit z there go on to r + z K^k.
    /// At most (K - 1) ceil(log_K n) rounds and n blocks times (1 - 1/K) log_K n a rank; with K >= n this is the
    /// pairwise exchange, n - 1 rounds of one block.
    struct all_to_all {
        static constexpr collective implements = collective::all_to_all;
        static constexpr int rounds(int n) {
            const int places = detail::log_ceil(K, n);
            return n == 1 ? 0 : (K - 1) * (places - 1) + (n - 1) / detail::power(K, places - 1);
        }
        static constexpr int input(int rank, int n, int slot) { return mod(rank + slot, n); }
        static constexpr int output(int rank, int n, int slot) { return mod(rank - slot, n); }
        static constexpr step at(int rank, int n, int round) {
            const int d = detail::power(K, round / (K - 1)), z = round % (K - 1) + 1;
            const block_set slots = with_digit(z, d, n);
            return {.send = {mod(rank + z * d, n), slots}, .recv = {mod(rank - z * d, n), slots}};
        }

    private:
        /// The slots i < n with i / d mod K = z: runs of d, K d apart, the last one cut off by n.
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
