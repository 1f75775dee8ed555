// The two-level schedules that hierarchical is made of: ranks in nodes of m, one level at work inside each node, the
// other among the ranks of equal place in all nodes. In all of them a level is embedded in the same way: its peers are
// placed in the group, its blocks are cut and moved.
#pragma once

#include <colls/algebra/compose.hpp>

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
    const S& s;
    int size, role;
    placement where;
};
template <class S>
level(const S&, int, int, placement) -> level<S>;

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

/// reduce_scatter: inside each node first, then across on what each rank owns. scatter: across the nodes' leaders
/// first, then inside. Each stretch of blocks that one rank owns between the levels has ports of its own.
template <class Intra, class Inter>
struct two_level_scatter {
    int node = 0;
    [[no_unique_address]] Intra intra{};
    [[no_unique_address]] Inter inter{};

    static constexpr collective implements = implemented_by<Intra>;
    static constexpr bool inside_first = implements == collective::reduce_scatter;

    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        return g.divides(n) && is_level(intra, g.size) && is_level(inter, g.count);
    }
    constexpr int rounds(int n) const {
        const node_grid g(n, node);
        return intra.rounds(g.size) + inter.rounds(g.count);
    }
    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return blocks_of(intra, g.size) * blocks_of(inter, g.count);
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        const int in = ports_of(intra, g.size), across = ports_of(inter, g.count);
        if constexpr (inside_first)
            return larger(in, across * most_stretches(intra, g.size));
        else
            return larger(across, in * most_stretches(inter, g.count));
    }
    constexpr int root(int n) const {
        const node_grid g(n, node);
        return g.rank_at(root_of(inter, g.count), root_of(intra, g.size));
    }
    constexpr int home(int n, int slot) const {
        const node_grid g(n, node);
        if constexpr (inside_first) {
            const place_pair at = homes(intra, g.size, inter, g.count, slot);
            return at.first == none || at.second == none ? none : g.rank_at(at.second, at.first);
        } else {
            const place_pair at = homes(inter, g.count, intra, g.size, slot);
            return at.first == none || at.second == none ? none : g.rank_at(at.first, at.second);
        }
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank);
        if constexpr (inside_first)
            return descend(level{intra, g.size, x, g.inside(k)}, true, level{inter, g.count, k, g.across(x)}, round,
                           port);
        else
            return descend(level{inter, g.count, k, g.across(x)}, x == root_of(intra, g.size),
                           level{intra, g.size, x, g.inside(k)}, round, port);
    }

private:
    struct place_pair {
        int first, second;
    };
    template <class A, class B>
    static constexpr place_pair homes(const A& a, int na, const B& b, int nb, int slot) {
        const int cut = blocks_of(b, nb);
        const int first = home_of(a, na, slot / cut);
        if (first == none) return {none, none};
        const stretch own = stretch_around(a, na, slot / cut);
        return {first, home_of(b, nb, (slot - own.first * cut) / own.count)};
    }
    template <class A, class B>
    static constexpr step descend(level<A> a, bool plays_first, level<B> b, int round, int port) {
        const int turn = a.s.rounds(a.size), cut = blocks_of(b.s, b.size);
        if (round < turn)
            return plays_first ? embedded(a, round, port, recut{cut, 0}) : step{};
        const int each = ports_of(b.s, b.size);
        const stretch own = owned_stretch(a.s, a.role, a.size, port / each);
        if (own.count == 0) return {};
        return embedded(b, round - turn, port % each, recut{own.count, own.first * cut});
    }
};

/// broadcast: across the nodes' leaders, then inside each node. reduce: inside each node to its leader, then across.
template <class Intra, class Inter>
struct two_level_rooted {
    int node = 0;
    [[no_unique_address]] Intra intra{};
    [[no_unique_address]] Inter inter{};

    static constexpr collective implements = implemented_by<Intra>;
    static constexpr bool inside_first = implements == collective::reduce;

    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        return g.divides(n) && is_level(intra, g.size) && is_level(inter, g.count);
    }
    constexpr int rounds(int n) const {
        const node_grid g(n, node);
        return intra.rounds(g.size) + inter.rounds(g.count);
    }
    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return lcm(blocks_of(intra, g.size), blocks_of(inter, g.count));
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(ports_of(intra, g.size), ports_of(inter, g.count));
    }
    constexpr int root(int n) const {
        const node_grid g(n, node);
        return g.rank_at(root_of(inter, g.count), root_of(intra, g.size));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank), common = blocks(n);
        const int turn = inside_first ? intra.rounds(g.size) : inter.rounds(g.count);
        const int since = round < turn ? round : round - turn;
        if ((round < turn) == inside_first)
            return embedded(level{intra, g.size, x, g.inside(k)}, since, port,
                            recut{cut_to(common, blocks_of(intra, g.size)), 0});
        if (x != root_of(intra, g.size)) return {};
        return embedded(level{inter, g.count, k, g.across(x)}, since, port,
                        recut{cut_to(common, blocks_of(inter, g.count)), 0});
    }
};

template <class Intra, class Inter>
struct reverse_trait<two_level_rooted<Intra, Inter>> {
    static constexpr bool possible = reversible<Intra> && reversible<Inter>;
    using type = two_level_rooted<reversed<Intra>, reversed<Inter>>;
    static constexpr type apply(const two_level_rooted<Intra, Inter>& t) {
        return {t.node, reversed_of(t.intra), reversed_of(t.inter)};
    }
};

/// all_reduce: `up` inside each node (reduce_scatter, or reduce to the leader), `inter` across on what each rank then
/// owns, `down` inside (all_gather, or broadcast).
template <class Up, class Inter, class Down>
struct two_level_all_reduce {
    int node = 0;
    [[no_unique_address]] Up up{};
    [[no_unique_address]] Inter inter{};
    [[no_unique_address]] Down down{};

    static constexpr collective implements = collective::all_reduce;
    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        return g.divides(n) && is_level(up, g.size) && is_level(inter, g.count) && is_level(down, g.size) &&
               owners_agree(up, down, g.size);
    }
    constexpr int rounds(int n) const {
        const node_grid g(n, node);
        return up.rounds(g.size) + inter.rounds(g.count) + down.rounds(g.size);
    }
    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return lcm(blocks_of(up, g.size), blocks_of(down, g.size)) * blocks_of(inter, g.count);
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(larger(ports_of(up, g.size), ports_of(down, g.size)),
                      ports_of(inter, g.count) * most_stretches(up, g.size));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank), common = blocks(n);
        const int first = up.rounds(g.size), second = first + inter.rounds(g.count);
        const int cut = cut_to(common, blocks_of(up, g.size));
        if (round < first) return embedded(level{up, g.size, x, g.inside(k)}, round, port, recut{cut, 0});
        if (round >= second)
            return embedded(level{down, g.size, x, g.inside(k)}, round - second, port,
                            recut{cut_to(common, blocks_of(down, g.size)), 0});
        const int each = ports_of(inter, g.count);
        const stretch own = owned_stretch(up, x, g.size, port / each);
        if (own.count == 0) return {};
        return embedded(level{inter, g.count, k, g.across(x)}, round - first, port % each,
                        recut{own.count * cut / blocks_of(inter, g.count), own.first * cut});
    }
};

template <class Up, class Inter, class Down>
struct reverse_trait<two_level_all_reduce<Up, Inter, Down>> {
    static constexpr bool possible = reversible<Up> && reversible<Inter> && reversible<Down>;
    using type = two_level_all_reduce<reversed<Down>, reversed<Inter>, reversed<Up>>;
    static constexpr type apply(const two_level_all_reduce<Up, Inter, Down>& t) {
        return {t.node, reversed_of(t.down), reversed_of(t.inter), reversed_of(t.up)};
    }
};

/// all_to_all: inside each node, all that goes to one place (in whichever node) as one block; then across, one
/// message for all places. Slots are by place, then by node.
template <class Intra, class Inter>
struct two_level_all_to_all {
    int node = 0;
    [[no_unique_address]] Intra intra{};
    [[no_unique_address]] Inter inter{};

    /// The level's blocks in each of `times` superblocks of `apart` blocks.
    struct repeated_in {
        int times, apart;
        constexpr block_set operator()(const block_set& b) const { return b.repeated(times, apart); }
    };

    static constexpr collective implements = collective::all_to_all;
    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        if (!g.divides(n) || !is_level(intra, g.size) || !is_level(inter, g.count)) return false;
        // A block set repeats at one distance only: an inter level whose own repetition ends elsewhere does not fit.
        const int apart = blocks_of(inter, g.count);
        for (int round = 0; round < inter.rounds(g.count); ++round)
            for (int port = 0; port < ports_of(inter, g.count); ++port) {
                const block_set b = step_of(inter, 0, g.count, round, port).send.blocks;
                if (b.reps > 1 && b.reps * b.stride != apart) return false;
            }
        return true;
    }
    constexpr int rounds(int n) const {
        const node_grid g(n, node);
        return intra.rounds(g.size) + inter.rounds(g.count);
    }
    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return blocks_of(intra, g.size) * blocks_of(inter, g.count);
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(ports_of(intra, g.size), ports_of(inter, g.count));
    }
    constexpr int input(int rank, int n, int slot) const {
        const node_grid g(n, node);
        const int cut = blocks_of(inter, g.count);
        return g.rank_at(input_of(inter, g.node_of(rank), g.count, slot % cut),
                         input_of(intra, g.place_of(rank), g.size, slot / cut));
    }
    constexpr int output(int rank, int n, int slot) const {
        const node_grid g(n, node);
        const int cut = blocks_of(inter, g.count);
        return g.rank_at(output_of(inter, g.node_of(rank), g.count, slot % cut),
                         output_of(intra, g.place_of(rank), g.size, slot / cut));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank), turn = intra.rounds(g.size);
        const int cut = blocks_of(inter, g.count);
        if (round < turn) return embedded(level{intra, g.size, x, g.inside(k)}, round, port, recut{cut, 0});
        return embedded(level{inter, g.count, k, g.across(x)}, round - turn, port,
                        repeated_in{blocks_of(intra, g.size), cut});
    }
};

}  // namespace colls::inline v1::detail
