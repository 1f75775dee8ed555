// Circulant graphs: a reduce_scatter for every sequence of skips.
#pragma once

#include <colls/schedule.hpp>

namespace colls::inline v1 {

// Skip sequences. A policy, and a user's own, has `count(n)`, the number of rounds, and `skip(n, k)` for 0 <= k <=
// count(n): skip(n, 0) = n, strictly decreasing to 1, and skip(n, k + 1) at least half of skip(n, k).

/// n, ceil(n/2), ceil(n/4), ..., 1: ceil(log2 n) rounds, the least.
struct halving {
    static constexpr int count(int n) { return log2_ceil(n); }
    static constexpr int skip(int n, int k) { return static_cast<int>((n + (1LL << k) - 1) >> k); }
};
/// n, then the powers of two below it: as many rounds; the first moves less than half the blocks if n is no power of
/// two. Its all_gather is bruck<2>'s.
struct doubling {
    static constexpr int count(int n) { return log2_ceil(n); }
    static constexpr int skip(int n, int k) { return k == 0 ? n : 1 << (count(n) - k); }
};
/// n, n - 1, ..., 1: n - 1 rounds of one block, in each of which every rank sends one other rank its block: the
/// pairwise exchange, which is direct with one port at a time. Rounds and volume of the ring; needs no scratch.
struct linear {
    static constexpr int count(int n) { return n - 1; }
    static constexpr int skip(int n, int k) { return n - k; }
};

/// reduce_scatter on a circulant graph (Träff, arXiv 2410.14234, 2024): in round k, from skip s to skip t, rank r sends
/// the partial results of blocks [r + t, r + s) to rank r + t. Any n; one port; n - 1 blocks a rank, the least; with
/// halving skips ceil(log2 n) rounds, the least. Does not combine in rank order: commutative operators. The same for
/// every rank up to rotation. all_gather, all_reduce and barrier follow.
template <class Skips = halving>
struct circulant {
    static_assert(
        requires(int n, int k) {
            { Skips::count(n) + Skips::skip(n, k) } -> std::same_as<int>;
        },
        "colls: circulant<Skips>: Skips has static int count(int n), the number of rounds, and static int "
        "skip(int n, int k), from n down to 1");

    struct reduce_scatter {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr int rounds(int n) { return Skips::count(n); }
        static constexpr step at(int rank, int n, int round) {
            const int s = Skips::skip(n, round), t = Skips::skip(n, round + 1);
            return {.send = {mod(rank + t, n), block_range(rank + t, s - t, n)},
                .recv = {mod(rank - t, n), block_range(rank, s - t, n), action::reduce}};
        }
    };
};

}  // namespace colls::inline v1
