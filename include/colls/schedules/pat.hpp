// PAT: parallel aggregated trees.
#pragma once

#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// PAT (Jeaugey, arXiv 2506.20252, 2025), aggregating A blocks, A a power of two: any n. The block of rank r + s
/// reaches rank r by way of the ranks r + (s without its lowest bits), so along a binomial tree a block, all trees at
/// once. First log2 A rounds far away, then a round for each a < P / A, P the power of two from n on: log2 A + P/A -
/// 1 rounds (n - 1 with A = 1, log2 P with A = P) of one port; n - 1 blocks a rank, the least; at most A blocks a
/// message. As the tail runs through each tree depth first, a reduce_scatter needs no more than a logarithmic buffer:
/// for long data in small buffers. reduce_scatter (commutative operators), all_reduce and barrier follow.
template <int A = 1>
struct pat {
    static_assert(is_power_of_two(A), "colls: pat<A>: the aggregation A is a power of two");

    struct all_gather {
        static constexpr collective implements = collective::all_gather;
        static constexpr int rounds(int n) { return far_rounds(n) + (stride(n) < n ? stride(n) : n) - 1; }
        static constexpr step at(int rank, int n, int round) {
            const int far = far_rounds(n);
            if (round < far) {
                const int d = 1 << (log2_ceil(n) - 1 - round);
                return pass(rank, n, d, d, 2 * d);
            }
            const int a = round - far + 1;
            return pass(rank, n, a & -a, a, stride(n));
        }

    private:
        static constexpr int far_rounds(int n) {
            const int all = log2_ceil(n), some = log2_ceil(A);
            return some < all ? some : all;
        }
        /// P / A: how far apart the blocks of one message are.
        static constexpr int stride(int n) { return 1 << (log2_ceil(n) - far_rounds(n)); }

        /// Rank r - hop is sent the blocks that it lacks at its offsets s, s + apart, s + 2 apart, ... below n.
        static constexpr step pass(int rank, int n, int hop, int s, int apart) {
            const int count = (n - s + apart - 1) / apart;
            return {.send = {mod(rank - hop, n), strided(rank + s - hop, count, apart, n)},
                .recv = {mod(rank + hop, n), strided(rank + s, count, apart, n)}};
        }
        static constexpr block_set strided(int first, int count, int apart, int n) {
            return {.first = mod(first, n), .count = count, .period = apart, .modulus = n};
        }
    };
};

}  // namespace colls::inline v1
