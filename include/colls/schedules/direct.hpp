// All pairs at once.
#pragma once

#include <colls/algebra/exclusive.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

namespace detail {
/// What the all-pairs schedules share: one round, in which port j leads from rank r to rank r + j + 1.
struct all_pairs {
    static constexpr int rounds(int n) { return n > 1 ? 1 : 0; }
    static constexpr int ports(int n) { return n > 1 ? n - 1 : 1; }
    static constexpr int to(int rank, int n, int port) { return mod(rank + port + 1, n); }
    static constexpr int from(int rank, int n, int port) { return mod(rank - port - 1, n); }
};
}  // namespace detail

/// One round on n - 1 ports: every block goes straight from its source to its destination, and is combined there once,
/// in rank order. Least rounds and least volume; what it asks for is a network, or a memory, that takes n - 1 messages
/// at once. Any n; keeps rank order everywhere. all_gather, gather, reduce, all_reduce (two rounds) and barrier follow.
struct direct {
    /// 1 round; n - 1 blocks a rank. No block is sent on: needs no scratch.
    struct reduce_scatter : detail::all_pairs {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr step at(int rank, int n, int, int port) {
            return {.send = {to(rank, n, port), block(to(rank, n, port))},
                .recv = {from(rank, n, port), block(rank), action::reduce}};
        }
    };

    /// 1 round; n - 1 blocks a rank, each to the rank it is for, where it lands in the slot of its source.
    struct all_to_all : detail::all_pairs {
        static constexpr collective implements = collective::all_to_all;
        static constexpr step at(int rank, int n, int, int port) {
            return {.send = {to(rank, n, port), block(to(rank, n, port))},
                .recv = {from(rank, n, port), block(from(rank, n, port))}};
        }
    };

    /// 1 round; the root sends everything n - 1 times.
    struct broadcast : detail::all_pairs {
        static constexpr collective implements = collective::broadcast;
        static constexpr step at(int rank, int, int, int port) {
            if (rank == 0) return {.send = {port + 1, block(0)}};
            if (rank == port + 1) return {.recv = {0, block(0)}};
            return {};
        }
    };

    /// 1 round; the root sends to each rank its block.
    struct scatter : detail::all_pairs {
        static constexpr collective implements = collective::scatter;
        static constexpr step at(int rank, int, int, int port) {
            if (rank == 0) return {.send = {port + 1, block(port + 1)}};
            if (rank == port + 1) return {.recv = {0, block(rank)}};
            return {};
        }
    };

    /// 1 round; rank r sends everything to the n - 1 - r ranks after it. (exclusive_scan: 2 rounds.)
    struct inclusive_scan : detail::all_pairs {
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

/// The all_reduce of small messages: everyone sends everything to everyone, and each combines all of it in rank order.
/// 1 round on n - 1 ports, n - 1 times the data a rank. Any n; rank order, and the same bits on every rank.
struct one_shot {
    struct all_reduce : detail::all_pairs {
        static constexpr collective implements = collective::all_reduce;
        static constexpr int blocks(int) { return 1; }
        static constexpr step at(int rank, int n, int, int port) {
            return {.send = {to(rank, n, port), block(0)}, .recv = {from(rank, n, port), block(0), action::reduce}};
        }
    };
};

}  // namespace colls::inline v1
