// Circulant graphs: a reduce_scatter for every sequence of skips.
#pragma once

#include <colls/detail/derive/translation.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

// Skip sequences. Skips, of the library or of a user, is a type with static int count(int n), the number of rounds, and
// static int skip(int n, int k) for 0 <= k <= count(n): skip(n, 0) = n, strictly decreasing to 1, and skip(n, k + 1) at
// least half of skip(n, k).

/// n, ceil(n/2), ceil(n/4), ..., 1: ceil(log2 n) rounds, the fewest.
struct halving {
    static constexpr int count(int n) { return log2_ceil(n); }
    static constexpr int skip(int n, int k) { return static_cast<int>((n + (1LL << k) - 1) >> k); }
};
/// n, then the powers of two below it: ceil(log2 n) rounds; where n is not a power of two, the first round sends fewer
/// than half of the blocks. Its all_gather is that of bruck<2>.
struct doubling {
    static constexpr int count(int n) { return log2_ceil(n); }
    static constexpr int skip(int n, int k) { return k == 0 ? n : 1 << (count(n) - k); }
};
/// n, n - 1, ..., 1: n - 1 rounds of one block, in each of which a rank sends its block to another rank. This is the
/// pairwise exchange: `direct` with one port at a time, in the rounds and volume of the ring, without scratch.
struct linear {
    static constexpr int count(int n) { return n - 1; }
    static constexpr int skip(int n, int k) { return n - k; }
};

/// A reduce_scatter on a circulant graph: in round k, from skip s = skip(n, k) to t = skip(n, k + 1), rank r sends the
/// partial results of blocks [r + t, r + s) to rank r + t.
///
///   implements    reduce_scatter; derived: all_gather, all_reduce, barrier
///   group sizes   any
///   rounds        Skips::count(n): ceil(log2 n), the fewest, with halving skips (all_reduce twice as many)
///   blocks sent   n - 1 by each rank, the least (all_reduce 2 (n - 1))
///   scratch       fewer than n / 2 partial results with halving skips
///   order         not rank order: commutative operators
///   source        Träff, 2024, arXiv 2410.14234
template <class Skips = halving>
struct circulant {
    static_assert(
        requires(int n, int k) {
            { Skips::count(n) + Skips::skip(n, k) } -> std::same_as<int>;
        },
        "colls: circulant<Skips>: Skips has static int count(int n), the number of rounds, and static int "
        "skip(int n, int k), from n down to 1");

    struct reduce_scatter : detail::by_translation<reduce_scatter> {
        static constexpr collective implements = collective::reduce_scatter;
        static constexpr int rounds(int n) { return Skips::count(n); }
        static constexpr step of_rank_0(int n, int round) {
            const int s = Skips::skip(n, round), t = Skips::skip(n, round + 1);
            return {.send = {mod(t, n), block_range(t, s - t, n)},
                .recv = {mod(-t, n), block_range(0, s - t, n), action::reduce}};
        }
    };
};

}  // namespace colls::inline v1
