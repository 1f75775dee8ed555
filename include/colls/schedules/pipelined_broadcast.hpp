// The round-optimal broadcast of many blocks.
#pragma once

#include <colls/schedules/circulant.hpp>

namespace colls::inline v1 {

/// Broadcast in `segments` blocks over a circulant graph (Träff, arXiv 2312.11236, 2023, and 2407.18004, 2024): any n;
/// segments + ceil(log2 n) - 1 rounds of one block on one port, the least for so many blocks. Every rank but the root
/// receives every block once; none sends more than it must. A pipeline without the latency of a chain. 0 segments (the
/// default) stands for ceil(log2 n). reduce (commutative operators) and all_reduce (reduce, then broadcast) follow.
///
/// Round i belongs to phase i / q, q = ceil(log2 n), and goes from every rank r to r + skip_k, k = i mod q, skips 1,
/// ..., ceil(n/4), ceil(n/2). In each phase q consecutive blocks set out from the root, block k in round k; r gets
/// one of them in its own phase, the rest q later. at() finds what is received in O(log n), without tables.
struct pipelined_broadcast {
    int segments = 0;

    struct broadcast {
        int segments = 0;

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
    /// phase. A rank is a sum of different skips; the least, the first hop, names the block that it gets in its own
    /// phase. The others, for k = 0, 1, ..., are the first hops e of the ways, of skips not yet used up, to the
    /// nearest rank at or before rank + n - skip_k and before the one found last. Both searches take the greatest
    /// skips first.
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
        int way[64], hops = 0;
        long long at = 0, found = 2LL * n;  // where the way has come to; the rank found last
        for (int e = below(q + 1), j = 0;;) {
            if (e < 0 || at > target - skip(j + 1)) {
                e = way[--hops];
                at -= skip(e);
                if (at > target - skip(j + 1)) continue;
            } else {
                const long long next = at + skip(e);
                if (next > target - skip(j) || next >= found) {
                    e = below(e);
                    continue;
                }
                if (next <= target - skip(j + 1)) {
                    way[hops++] = e;
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
