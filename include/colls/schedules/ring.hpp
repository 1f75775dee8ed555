// The ring, and the chain for what has a beginning.
#pragma once

#include <colls/algebra/exclusive.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// Every rank talks to its two neighbours alone: n - 1 rounds of one port, of the least volume, over the shortest
/// links. all_gather, all_reduce, reduce and barrier follow. (The ring reduce_scatter: Patarasuk and Yuan, 2009.) Any
/// n. Reduces in the order of the ring, which is not that of the ranks: commutative operators only, but for the chain
/// (reduce, scans), which keeps rank order.
struct ring {
    /// n - 1 rounds; every rank sends n - 1 of its n blocks. The partial result of block b sets out at rank b + 1 and
    /// comes home after going round.
    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step at(int rank, int n, int round) {
            return {.send = {mod(rank + 1, n), block(mod(rank - 1 - round, n))},
                .recv = {mod(rank - 1, n), block(mod(rank - 2 - round, n)), action::reduce}};
        }
    };

    /// The chain 0, 1, ..., n - 1: n - 1 rounds, each rank but the last sends everything once. For long data in chunks.
    struct broadcast {
        static constexpr collective implements = collective::broadcast;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step at(int rank, int, int round) { return link(rank, round, action::copy); }
    };

    /// The chain again: each rank adds its own on the right, and passes the sum on.
    struct inclusive_scan {
        static constexpr collective implements = collective::inclusive_scan;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr step at(int rank, int, int round) { return link(rank, round, action::reduce); }
    };
    using exclusive_scan = exclusive<inclusive_scan>;

private:
    /// In round k rank k passes everything to rank k + 1.
    static constexpr step link(int rank, int round, action on_arrival) {
        if (rank == round) return {.send = {rank + 1, block(0)}};
        if (rank == round + 1) return {.recv = {rank - 1, block(0), on_arrival}};
        return {};
    }
};

}  // namespace colls::inline v1
