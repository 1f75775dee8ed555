// The round-optimal broadcast of several blocks.
#pragma once

#include <colls/schedules/circulant.hpp>

namespace colls::inline v1 {

/// A broadcast in `segments` blocks over a circulant graph: a pipeline without the latency of a chain. 0 segments (the
/// default) stands for ceil(log2 n).
///
///   implements    broadcast; derived: reduce, all_reduce, barrier
///   group sizes   any
///   rounds        segments + ceil(log2 n) - 1, the fewest for this many blocks (all_reduce twice as many)
///   blocks sent   at most one a round by each rank, on one port; each rank but the root receives every block once
///   scratch       reduce: a few partial results (n = 64: 2)
///   order         not rank order: commutative operators
///   source        Träff, 2023, arXiv 2312.11236, and 2024, arXiv 2407.18004
///
/// Round i belongs to phase i / q, q = ceil(log2 n). In it each rank r sends to r + skip_k, k = i mod q, with skips 1,
/// ..., ceil(n/4), ceil(n/2). In each phase the root sends q consecutive blocks, the k-th in round k; rank r receives
/// one of them in the same phase, the others q rounds or more later. at() finds the block in O(log n), without tables.
struct pipelined_broadcast {
    int segments = 0;  ///< into which the buffer is cut; 0: ceil(log2 n)

    struct broadcast {
        int segments = 0;  ///< as above

        static constexpr collective implements = collective::broadcast;
        constexpr int blocks(int n) const { return segments > 0 ? segments : n > 2 ? log2_ceil(n) : 1; }
        constexpr int rounds(int n) const { return n == 1 ? 0 : blocks(n) + log2_ceil(n) - 1; }
        constexpr step at(int rank, int n, int round) const {
            const int q = log2_ceil(n), count = blocks(n), idle = (q - (count - 1) % q) % q;  // the last phase is whole
            const int k = (round + idle) % q, phase = (round + idle) / q * q - idle;
            const int skip = halving::skip(n, q - k), to = mod(rank + skip, n);
            step s;
            if (const int b = to == 0 ? none : phase + arrival(to, n, k); b >= 0)
                s.send = {to, block(b < count ? b : count - 1)};
            if (const int b = rank == 0 ? none : phase + arrival(rank, n, k); b >= 0)
                s.recv = {mod(rank - skip, n), block(b < count ? b : count - 1)};
            return s;
        }
    };

    template <collective C>
        requires(C == collective::broadcast)
    constexpr broadcast make() const {
        return {segments};
    }

    /// The block, counted from the first of the phase, that a rank other than the root receives in round k of each
    /// phase. A rank is a sum of different skips; the least of them, its first hop, is the block that the rank receives
    /// in the same phase. The blocks of the other rounds k = 0, 1, ... are the first hops e of the paths, over skips
    /// not used before, to the nearest rank at or before rank + n - skip_k and before the rank found last. Both
    /// searches take the greatest skips first.
    static constexpr int arrival(int rank, int n, int k) {
        const int q = log2_ceil(n), own = first_hop(rank, n);
        const auto skip = [&](int e) { return static_cast<long long>(halving::skip(n, q - e)); };
        const long long target = static_cast<long long>(rank) + n;
        unsigned long long unused = ((2ull << q) - 1) & ~(1ull << own);
        const auto below = [&](int e) {  // the next unused skip
            do --e;
            while (e >= 0 && (unused >> e & 1) == 0);
            return e;
        };
        int path[64], hops = 0;
        long long at = 0, found = 2LL * n;  // the end of the path so far; the rank found last
        for (int e = below(q + 1), j = 0;;) {
            if (e < 0 || at > target - skip(j + 1)) {
                e = path[--hops];
                at -= skip(e);
                if (at > target - skip(j + 1)) continue;
            } else {
                const long long next = at + skip(e);
                if (next > target - skip(j) || next >= found) {
                    e = below(e);
                    continue;
                }
                if (next <= target - skip(j + 1)) {
                    path[hops++] = e;
                    at = next;
                    continue;
                }
            }
            if (j == k) return e == q ? own : e - q;
            found = at + skip(e);
            unused &= ~(1ull << e);
            e = below(e);
            ++j;
        }
    }

private:
    static constexpr int first_hop(int rank, int n) {
        const int q = log2_ceil(n);
        int hop = q;
        for (int e = q - 1, rest = rank; rest > 0; --e)
            if (const int skip = halving::skip(n, q - e); skip <= rest) rest -= skip, hop = e;
        return hop;
    }
};

}  // namespace colls::inline v1
