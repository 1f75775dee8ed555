// PAT: parallel aggregated trees.
#pragma once

#include <colls/detail/derive/translation.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// A binomial tree for each block, all trees at once, for long data in small buffers. The block of rank r + s reaches
/// rank r by way of the ranks r + (s without its lowest bits). The first log2 A rounds go to far ranks; then there is a
/// round for each a < P / A, where P is the least power of two not below n, which runs through each tree depth first.
/// A, a power of two, is the most blocks that one message carries (the aggregation).
///
///   implements    all_gather; derived: reduce_scatter, all_reduce, barrier
///   group sizes   any
///   rounds        log2 A + min(P / A, n) - 1: n - 1 with A = 1, log2 P with A = P (all_reduce twice as many)
///   blocks sent   n - 1 by each rank, the least (all_reduce 2 (n - 1))
///   scratch       reduce_scatter: O(A log(P / A)) partial results (n = 64: 3 with A = 1, 11 with A = 4)
///   order         not rank order: commutative operators
///   source        Jeaugey, 2025, arXiv 2506.20252
template <int A = 1>
struct pat {
    static_assert(is_power_of_two(A), "colls: pat<A>: the aggregation A is a power of two");

    struct all_gather : detail::by_translation<all_gather> {
        static constexpr collective implements = collective::all_gather;
        static constexpr int rounds(int n) { return far_rounds(n) + (stride(n) < n ? stride(n) : n) - 1; }
        static constexpr step of_rank_0(int n, int round) {
            const int far = far_rounds(n);
            if (round < far) {
                const int d = 1 << (log2_ceil(n) - 1 - round);
                return pass(n, d, d, 2 * d);
            }
            const int a = round - far + 1;
            return pass(n, a & -a, a, stride(n));
        }

    private:
        static constexpr int far_rounds(int n) {
            const int all = log2_ceil(n), some = log2_ceil(A);
            return some < all ? some : all;
        }
        /// P / A: the distance between the blocks of one message.
        static constexpr int stride(int n) { return 1 << (log2_ceil(n) - far_rounds(n)); }

        /// Sends to rank -hop the blocks at its offsets s, s + apart, s + 2 apart, ... below n, which it lacks.
        static constexpr step pass(int n, int hop, int s, int apart) {
            const int count = (n - s + apart - 1) / apart;
            return {.send = {n - hop, strided(s - hop, count, apart, n)}, .recv = {hop, strided(s, count, apart, n)}};
        }
        static constexpr block_set strided(int first, int count, int apart, int n) {
            return {.first = first, .count = count, .period = apart, .modulus = n};
        }
    };
};

}  // namespace colls::inline v1
