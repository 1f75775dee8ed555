// Recursive halving, with far or with near partners first.
#pragma once

#include <colls/detail/schedule/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Recursive halving, far partners first: in round k ranks r and r xor d, d = n / 2^(k+1), split the interval that they
/// share, and each sends the other's half.
///
///   implements    reduce_scatter; derived: all_gather, all_reduce, barrier
///   group sizes   powers of two (folded<halving_doubling>: any)
///   rounds        log2 n, the fewest (all_reduce twice as many)
///   blocks sent   n - 1 by each rank, the least (all_reduce 2 (n - 1))
///   scratch       n / 2 - 1 partial results
///   order         not rank order: commutative operators
///   source        Rabenseifner, 2004
struct halving_doubling {
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr bool supports(int n) { return is_power_of_two(n); }
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr step at(int rank, int n, int round) {
            const int d = n >> (round + 1), peer = rank ^ d;
            return {.send = {peer, block_range(peer / d * d, d)},
                .recv = {peer, block_range(rank / d * d, d), action::reduce}};
        }
    };
};

/// Recursive halving, near partners first: ranks r and r xor 2^k in round k, so that each partial result combines an
/// interval of ranks. Block b belongs to the rank whose number is b with its bits reversed, so that what a rank sends
/// is one interval of blocks.
///
///   implements    reduce_scatter; derived: all_gather, all_reduce, barrier
///   group sizes   powers of two (folded<distance_doubling>: any)
///   rounds        log2 n, the fewest (all_reduce twice as many)
///   blocks sent   n - 1 by each rank, the least (all_reduce 2 (n - 1))
///   scratch       n / 2 - 1 partial results
///   order         rank order, folded as well: for operators that do not commute
struct distance_doubling {
    /// At the same group sizes, in as many rounds.
    struct reduce_scatter : halving_doubling::reduce_scatter {
        static constexpr int owner(int rank, int n) { return detail::reversed_bits(rank, log2_ceil(n)); }
        static constexpr int home(int n, int slot) { return detail::reversed_bits(slot, log2_ceil(n)); }
        static constexpr step at(int rank, int n, int round) {
            const int d = n >> (round + 1), peer = rank ^ (1 << round);
            return {.send = {peer, block_range(owner(peer, n) / d * d, d)},
                .recv = {peer, block_range(owner(rank, n) / d * d, d), action::reduce}};
        }
    };
};

}  // namespace colls::inline v1
