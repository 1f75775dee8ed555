// The ring, and the chain for the collectives that begin or end at one rank.
#pragma once

#include <colls/algebra/exclusive.hpp>
#include <colls/detail/derive/translation.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Each rank exchanges data with its two neighbours alone: the shortest links, the least volume, many rounds.
///
///   implements    reduce_scatter, broadcast, inclusive_scan, exclusive_scan; derived: all_gather, all_reduce, reduce,
///                 barrier
///   group sizes   any
///   rounds        n - 1 (all_reduce 2 (n - 1))
///   blocks sent   n - 1 of n by each rank, the least (all_reduce 2 (n - 1)); chain: the whole buffer once,
///                 exclusive_scan twice
///   scratch       2 partial results (reduce_scatter)
///   order         that of the ring, which is not rank order: commutative operators; the chain (reduce, scans) combines
///                 in rank order
///   source        Patarasuk and Yuan, 2009 (reduce_scatter)
struct ring {
    /// The partial result of block b starts at rank b + 1, passes every rank, and is complete at rank b.
    struct reduce_scatter : detail::by_translation<reduce_scatter> {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step of_rank_0(int n, int round) {
            return {.send = {1, block(n - 1 - round)}, .recv = {n - 1, block(n - 2 - round), action::reduce}};
        }
    };

    /// The chain 0, 1, ..., n - 1: each rank but the last sends everything once. Executors pipeline long data by
    /// chunks.
    struct broadcast {
        static constexpr collective implements = collective::broadcast;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step at(int rank, int, int round) { return link(rank, round, action::copy); }
    };

    /// The chain: each rank combines what it receives with its own contribution on the right, and sends the result on.
    struct inclusive_scan {
        static constexpr collective implements = collective::inclusive_scan;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step at(int rank, int, int round) { return link(rank, round, action::reduce); }
    };
    using exclusive_scan = exclusive<inclusive_scan>;

private:
    /// In round k rank k sends everything to rank k + 1.
    static constexpr step link(int rank, int round, action on_arrival) {
        if (rank == round) return {.send = {rank + 1, block(0)}};
        if (rank == round + 1) return {.recv = {rank - 1, block(0), on_arrival}};
        return {};
    }
};

}  // namespace colls::inline v1
