// Bine trees: binomial trees over ranks written in base -2.
#pragma once

#include <colls/schedules/swing.hpp>

namespace colls::inline v1 {

/// Binomial trees and butterflies whose partners are nearer to each other than those of `tree` and `halving_doubling`:
/// a third of the distance less, so that fewer bytes leave a group of ranks that are next to each other (the links
/// between the groups of a dragonfly, or above the leaves of a fat tree). On 256 ranks in groups of 16, at any offset,
/// 37 of a broadcast's messages leave a group, and 47 of tree<2>'s; of reduce_scatter's blocks 0.78 times as many as
/// with near partners first, and 0.15 times as many as with far partners first.
///
///   implements    broadcast, reduce_scatter; derived: reduce, all_gather, all_reduce, barrier
///   group sizes   powers of two
///   rounds        log2 n, the fewest (all_reduce twice as many)
///   blocks sent   broadcast: the whole buffer log2 n times by the root; reduce_scatter: n - 1 by each rank, the least
///   scratch       reduce: one partial result; reduce_scatter: n / 2 - 1
///   order         not rank order: commutative operators
///   source        De Sensi, Pichetti, Tonini, Antonelli, Hoefler et al., 2025, arXiv 2508.17311
///
/// The butterfly is `swing`'s. In the broadcast its rounds run backwards: before round j the data is at the ranks whose
/// slot there is below 2^j, and each sends to its partner, whose slot is the same plus 2^j.
struct bine {
    using reduce_scatter = swing::reduce_scatter;

    struct broadcast {
        static constexpr collective implements = collective::broadcast;
        static constexpr bool supports(int n) { return is_power_of_two(n); }
        static constexpr int rounds(int n) { return log2_ceil(n); }
        static constexpr step at(int rank, int n, int round) {
            const int slot = reduce_scatter::owner(rank, n), have = 1 << round;
            if (slot >= 2 * have) return {};
            const int peer = reduce_scatter::at(rank, n, rounds(n) - 1 - round).send.peer;
            return slot < have ? step{.send = {peer, block(0)}} : step{.recv = {peer, block(0)}};
        }
    };
};

}  // namespace colls::inline v1
