// What the two-level schedules share: ranks in nodes, one level at work inside each node, the other among the ranks of
// equal place in all nodes. A level is embedded always in the same way: its peers are placed in the group, its blocks
// are cut and moved.
#pragma once

#include <colls/detail/derive/combinator.hpp>

namespace colls::inline v1::detail {

/// The largest divisor of n that is no greater than its square root.
constexpr int balanced_node(int n) {
    int best = 1;
    for (int m = 2; m * m <= n; ++m)
        if (n % m == 0) best = m;
    return best;
}

/// Role i of a level is rank first + i · apart.
struct placement {
    int first, apart;
    constexpr int operator()(int role) const { return first + role * apart; }
};

/// n ranks as `count` nodes of `size`: rank r is place r mod size of node r / size.
struct node_grid {
    int size, count;
    constexpr node_grid(int n, int node) : size(node > 0 ? node : balanced_node(n)), count(n / size) {}
    constexpr bool divides(int n) const { return size * count == n; }
    constexpr int node_of(int rank) const { return rank / size; }
    constexpr int place_of(int rank) const { return rank % size; }
    constexpr int rank_at(int node, int place) const { return node * size + place; }
    constexpr placement inside(int node) const { return {node * size, 1}; }
    constexpr placement across(int place) const { return {place, size}; }
};

/// A schedule as a level: for `size` ranks, of which one plays `role`, placed `where`.
template <class S>
struct level {
    S s;
    int size, role;
    placement where;
};
template <class S>
level(S, int, int, placement) -> level<S>;

/// What the rank does in the level, as seen by the whole group.
template <class S, class BlocksOf>
constexpr step embedded(level<S> l, int round, int port, const BlocksOf& blocks) {
    if (port >= ports_of(l.s, l.size)) return {};
    return moved(step_of(l.s, l.role, l.size, round, port), l.where, blocks);
}

/// True where s can be a level: legal at that size, and without scratch of its own.
template <class S>
constexpr bool is_level(const S& s, int size) {
    return supports(s, size) && scratch_of(s, size) == 0;
}
constexpr int larger(int a, int b) { return a > b ? a : b; }

}  // namespace colls::inline v1::detail
