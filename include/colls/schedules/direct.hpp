// All pairs at once.
#pragma once

#include <colls/algebra/compose.hpp>
#include <colls/algebra/exclusive.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/detail/derive/translation.hpp>
#include <colls/schedule.hpp>
#include <colls/schedules/tree.hpp>

namespace colls::inline v1 {

/// All pairs at once: each block goes straight from its source to its destination and is combined there in one
/// reduction. The fewest rounds and the least volume, for networks and memories that take n - 1 messages at a time.
///
///   implements    reduce_scatter, all_to_all, broadcast, scatter, inclusive_scan, exclusive_scan; derived: all_gather,
///                 gather, reduce, all_reduce, barrier
///   group sizes   any
///   rounds        1 on n - 1 ports (all_reduce 2, exclusive_scan 2)
///   blocks sent   n - 1 of n by each rank (all_reduce 2 (n - 1)); broadcast: the buffer n - 1 times by the root;
///                 inclusive_scan: the buffer n - 1 - r times by rank r
///   scratch       none
///   order         rank order
struct direct {
    /// One round, in which port j leads from rank r to rank r + j + 1.
    struct all_pairs {
        static constexpr int rounds(int n) { return n > 1 ? 1 : 0; }
        static constexpr int ports(int n) { return n > 1 ? n - 1 : 1; }
    };

    struct reduce_scatter : all_pairs, detail::by_translation<reduce_scatter> {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr step of_rank_0(int n, int, int port) {
            return {.send = {port + 1, block(port + 1)}, .recv = {n - 1 - port, block(0), action::reduce}};
        }
    };

    /// The block for rank q goes to q, into the slot of its source.
    struct all_to_all : all_pairs, detail::by_translation<all_to_all> {
        static constexpr collective implements = collective::all_to_all;
        static constexpr step of_rank_0(int n, int, int port) {
            return {.send = {port + 1, block(port + 1)}, .recv = {n - 1 - port, block(n - 1 - port)}};
        }
    };

    struct broadcast : all_pairs {
        static constexpr collective implements = collective::broadcast;
        static constexpr step at(int rank, int, int, int port) {
            if (rank == 0) return {.send = {port + 1, block(0)}};
            if (rank == port + 1) return {.recv = {0, block(0)}};
            return {};
        }
    };

    struct scatter : all_pairs {
        static constexpr collective implements = collective::scatter;
        static constexpr step at(int rank, int, int, int port) {
            if (rank == 0) return {.send = {port + 1, block(port + 1)}};
            if (rank == port + 1) return {.recv = {0, block(rank)}};
            return {};
        }
    };

    /// Rank r sends everything to the n - 1 - r ranks after it.
    struct inclusive_scan : all_pairs {
        static constexpr collective implements = collective::inclusive_scan;
        static constexpr step at(int rank, int n, int, int port) {
            step s;
            if (rank + port + 1 < n) s.send = {rank + port + 1, block(0)};
            if (rank - port - 1 >= 0) s.recv = {rank - port - 1, block(0), action::reduce};
            return s;
        }
    };
    using exclusive_scan = exclusive<inclusive_scan>;
};

/// The all_reduce of small messages: each rank sends its whole buffer to every other, and combines all of them.
///
///   implements    all_reduce; derived: barrier
///   group sizes   any
///   rounds        1 on n - 1 ports
///   blocks sent   the whole buffer n - 1 times by each rank
///   scratch       none
///   order         rank order, and the same bits on every rank
struct one_shot {
    struct all_reduce : direct::all_pairs, detail::by_translation<all_reduce, detail::slot_motion::stays> {
        static constexpr collective implements = collective::all_reduce;
        static constexpr int blocks(int) { return 1; }
        static constexpr step of_rank_0(int n, int, int port) {
            return {.send = {port + 1, block(0)}, .recv = {n - 1 - port, block(0), action::reduce}};
        }
    };
};

/// An all_reduce of few messages: every rank sends its whole buffer to rank 0, which combines all of them in one
/// reduction; the result goes back by a binomial tree. For messages that cost more than their bytes.
///
///   implements    all_reduce; derived: barrier
///   group sizes   any
///   rounds        1 + ceil(log2 n), on n - 1 ports
///   blocks sent   the whole buffer ceil(log2 n) times by rank 0, which also receives it n - 1 times
///   scratch       none
///   order         rank order, and the same bits on every rank
struct fan_in {
    using all_reduce = compose<reversed<direct::broadcast>, tree<2>::broadcast>;
};

}  // namespace colls::inline v1
