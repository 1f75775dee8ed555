// What the two-level schedules share: the grid of nodes, and a schedule as one level of it. One level runs inside each
// node, the other among the ranks of equal place in all nodes. Either is embedded in the same way: its roles become
// ranks of the group, its blocks are cut and moved.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

/// The largest divisor of n whose square is at most n.
constexpr int balanced_node(int n) {
    int m = 1;
    while ((m + 1) * (m + 1) <= n) ++m;
    while (n % m != 0) --m;
    return m;
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

/// A schedule as a level, seen from one rank: it has `size` roles, the rank plays `role`, and `where` maps roles to
/// ranks.
template <class S>
struct level {
    S s;
    int size, role;
    placement where;
};
template <class S>
level(S, int, int, placement) -> level<S>;

/// The step of that rank, with ranks and blocks of the whole group.
template <class S, class BlocksOf>
constexpr step embedded(level<S> l, int round, int port, const BlocksOf& blocks) {
    if (port >= ports_of(l.s, l.size)) return {};
    return moved(step_of(l.s, l.role, l.size, round, port), l.where, blocks);
}

/// Whether s can be a level of that size: legal there, and without scratch slots.
template <class S>
constexpr bool is_level(const S& s, int size) {
    return supports(s, size) && scratch_of(s, size) == 0;
}

/// What two-level schedules of one schedule a level have in common; some have other blocks or ports.
template <class Intra, class Inter>
struct two_level_pair : part<Intra, 0>, part<Inter, 1> {
    int node = 0;
    constexpr decltype(auto) intra() const { return part<Intra, 0>::get(); }
    constexpr decltype(auto) inter() const { return part<Inter, 1>::get(); }

    static constexpr collective implements = implemented_by<Intra>;
    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        return g.divides(n) && is_level(intra(), g.size) && is_level(inter(), g.count);
    }
    constexpr int rounds(int n) const {
        const node_grid g(n, node);
        return intra().rounds(g.size) + inter().rounds(g.count);
    }
    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return blocks_of(intra(), g.size) * blocks_of(inter(), g.count);
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(ports_of(intra(), g.size), ports_of(inter(), g.count));
    }
    constexpr int root(int n) const {
        const node_grid g(n, node);
        return g.rank_at(root_of(inter(), g.count), root_of(intra(), g.size));
    }
};

}  // namespace colls::inline v1::detail
