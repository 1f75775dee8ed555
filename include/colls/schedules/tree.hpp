// The k-nomial tree.
#pragma once

#include <colls/detail/schedule/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// The K-nomial tree with root 0: in each round every rank that has the data sends it to K - 1 others. K = 2 is the
/// binomial tree. Before round k the ranks that have it are the multiples of K d, d = K^(q-1-k), q = ceil(log_K n);
/// rank r sends to r + j d, 0 < j < K, which from then on serves the ranks [r + j d, r + (j + 1) d).
///
///   implements    broadcast, scatter; derived: reduce, gather, all_reduce, barrier
///   group sizes   any
///   rounds        ceil(log_K n) on K - 1 ports (all_reduce twice as many)
///   blocks sent   broadcast: the whole buffer at most (K - 1) ceil(log_K n) times, by the root; reduce: once by each
///                 rank; scatter: n - 1 blocks by the root
///   scratch       reduce: one partial result; scatter, gather: at most K^(q-1) - 1 blocks of others
///   order         rank order
template <int K = 2>
struct tree {
    static_assert(K >= 2, "colls: tree<K>: the radix K is at least 2");

    struct broadcast : detail::by_digits<K> {
        static constexpr collective implements = collective::broadcast;
        static constexpr step at(int rank, int n, int round, int port) {
            const edge e = edge_of(rank, n, round, port);
            if (e.child != none) return {.send = {e.child, block(0)}};
            if (e.parent != none) return {.recv = {e.parent, block(0)}};
            return {};
        }
    };

    /// A rank that serves an interval of ranks receives the blocks of that interval.
    struct scatter : detail::by_digits<K> {
        static constexpr collective implements = collective::scatter;
        static constexpr step at(int rank, int n, int round, int port) {
            const edge e = edge_of(rank, n, round, port);
            if (e.child != none) return {.send = {e.child, interval(e.child, e.distance, n)}};
            if (e.parent != none) return {.recv = {e.parent, interval(rank, e.distance, n)}};
            return {};
        }
    };

private:
    /// What a port is in a round: the edge to a child, or to the parent, or neither.
    struct edge {
        int distance, child = none, parent = none;
    };
    static constexpr edge edge_of(int rank, int n, int round, int port) {
        const int d = detail::power(K, detail::log_ceil(K, n) - 1 - round);
        edge e{d};
        if (rank % d != 0) return e;
        const long long reach = (port + 1LL) * d;
        if (rank / d % K == 0 && rank + reach < n) e.child = static_cast<int>(rank + reach);
        if (rank / d % K == port + 1) e.parent = static_cast<int>(rank - reach);
        return e;
    }
    static constexpr block_set interval(int first, int length, int n) {
        return block_range(first, first + length < n ? length : n - first);
    }
};

}  // namespace colls::inline v1
