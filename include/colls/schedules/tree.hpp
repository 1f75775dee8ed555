// The k-nomial tree.
#pragma once

#include <colls/detail/support/digits.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1 {

/// The K-nomial tree from rank 0: every rank that has the data hands it to K - 1 others a round, on K - 1 ports. K =
/// 2 is the binomial tree. ceil(log_K n) rounds; any n. Before round k the holders are the multiples of K d, d =
/// K^(q-1-k); r serves r + j d, 0 < j < K, which then stands for the ranks [r + j d, r + (j + 1) d). As these are
/// intervals, reduce keeps rank order. reduce, gather, all_reduce (reduce, then broadcast) and barrier follow.
template <int K = 2>
struct tree {
    static_assert(K >= 2, "colls: tree<K>: the radix K is at least 2");

    /// Everything at most (K - 1) ceil(log_K n) times a rank (the root).
    struct broadcast {
        static constexpr collective implements = collective::broadcast;
        static constexpr int ports(int) { return K - 1; }
        static constexpr int rounds(int n) { return detail::log_ceil(K, n); }
        static constexpr step at(int rank, int n, int round, int port) {
            const edge e = edge_of(rank, n, round, port);
            if (e.child != none) return {.send = {e.child, block(0)}};
            if (e.parent != none) return {.recv = {e.parent, block(0)}};
            return {};
        }
    };

    /// n - 1 blocks from the root; whoever stands for an interval of ranks is sent the blocks of that interval.
    struct scatter {
        static constexpr collective implements = collective::scatter;
        static constexpr int ports(int) { return K - 1; }
        static constexpr int rounds(int n) { return detail::log_ceil(K, n); }
        static constexpr step at(int rank, int n, int round, int port) {
            const edge e = edge_of(rank, n, round, port);
            if (e.child != none) return {.send = {e.child, interval(e.child, e.distance, n)}};
            if (e.parent != none) return {.recv = {e.parent, interval(rank, e.distance, n)}};
            return {};
        }
    };

private:
    /// What a port is in a round: the way to a child, or to the parent, or neither.
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
