// The two-level schedules, and which of them implements which collective.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/ownership.hpp>
#include <colls/detail/derive/recipes.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/detail/derive/two_level/level.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

template <class Intra, class Inter>
struct hierarchical;

}  // namespace colls::inline v1

namespace colls::inline v1::detail {

/// Scans of one block, in four phases: a scan inside each node; an exclusive scan of the nodes' totals among their last
/// ranks, in a slot of its own; a broadcast of its result inside each node; a local reduction with it as the left
/// operand. For an exclusive scan the last rank of a node first copies its contribution aside, to make up the total.
template <class Intra, class Inter, class Broadcast>
struct two_level_scan : part<Intra, 0>, part<Inter, 1>, part<Broadcast, 2> {
    int node = 0;
    constexpr decltype(auto) intra() const { return part<Intra, 0>::get(); }
    constexpr decltype(auto) inter() const { return part<Inter, 1>::get(); }
    constexpr decltype(auto) broadcast() const { return part<Broadcast, 2>::get(); }

    static constexpr collective implements = implemented_by<Intra>;
    static constexpr bool exclusive = implements == collective::exclusive_scan;

    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        return g.divides(n) && colls::supports(intra(), g.size) && blocks_of(intra(), g.size) == 1 &&
               colls::supports(inter(), g.count) && blocks_of(inter(), g.count) == 1 && is_level(broadcast(), g.size) &&
               blocks_of(broadcast(), g.size) == 1;
    }
    constexpr int rounds(int n) const { return phases({n, node}).end; }
    constexpr int blocks(int) const { return 1; }
    constexpr int scratch(int n) const {
        const node_grid g(n, node);
        return g.count == 1 ? scratch_of(intra(), g.size) : aside(g) + scratch_of(inter(), g.count);
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(larger(ports_of(intra(), g.size), ports_of(inter(), g.count)), ports_of(broadcast(), g.size));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const phase p = phases(g);
        const int k = g.node_of(rank), x = g.place_of(rank), slot = aside(g);
        const bool last = x == g.size - 1;
        if (round < p.inside) return last ? local(rank, port, 0, slot, action::copy) : step{};
        if (round < p.total)
            return embedded(level{intra(), g.size, x, g.inside(k)}, round - p.inside, port, same_blocks{});
        if (round < p.across) {
            if (!last || (exclusive && x == 0)) return {};
            return local(rank, port, 0, slot, exclusive ? action::reduce : action::copy);
        }
        if (round < p.down) {
            if (!last) return {};
            return embedded(level{inter(), g.count, k, g.across(x)}, round - p.across, port, recut{1, slot});
        }
        if (k == 0) return {};  // no node precedes the first
        if (round < p.fold) {
            // The broadcast is rotated so that its root is the last rank of the node.
            const int by = mod(g.size - 1 - root_of(broadcast(), g.size), g.size);
            const auto rank_of = [&](int role) { return g.rank_at(k, mod(role + by, g.size)); };
            return moved(
                embedded(level{broadcast(), g.size, mod(x - by, g.size), {0, 1}}, round - p.down, port, recut{1, slot}),
                rank_of, same_blocks{});
        }
        return local(rank, port, slot, 0, exclusive && x == 0 ? action::copy : action::reduce);
    }

private:
    /// The rounds in which the phases begin; rounds before `inside` copy contributions aside.
    struct phase {
        int inside, total, across, down, fold, end;
    };
    constexpr phase phases(const node_grid& g) const {
        phase p{};
        p.inside = exclusive && g.count > 1 ? 1 : 0;
        p.total = p.inside + intra().rounds(g.size);
        if (g.count == 1) {
            p.across = p.down = p.fold = p.end = p.total;
        } else {
            p.across = p.total + 1;
            p.down = p.across + inter().rounds(g.count);
            p.fold = p.down + broadcast().rounds(g.size);
            p.end = p.fold + 1;
        }
        return p;
    }
    /// The slot of the totals: behind the scratch slots of the scan inside nodes.
    constexpr int aside(const node_grid& g) const { return 1 + scratch_of(intra(), g.size); }
    static constexpr step local(int rank, int port, int from, int to, action a) {
        if (port > 0) return {};
        return {.send = {rank, block(from)}, .recv = {rank, block(to), a}};
    }
};

/// Level a, then level b on what a leaves to the rank, with a port for each stretch of it; `common` blocks in all.
template <class A, class B>
constexpr step descend(level<A> a, bool plays_first, level<B> b, int round, int port, int common) {
    const int change = a.s.rounds(a.size), cut = cut_to(common, blocks_of(a.s, a.size));
    if (round < change) return plays_first ? embedded(a, round, port, recut{cut, 0}) : step{};
    const int each = ports_of(b.s, b.size);
    const stretch own = owned_stretch(a.s, a.role, a.size, port / each);
    if (own.count == 0) return {};
    return embedded(b, round - change, port % each, recut{own.count * cut / blocks_of(b.s, b.size), own.first * cut});
}

/// reduce_scatter and reduce: inside each node, then across the nodes on what each rank owns. scatter and broadcast:
/// across the nodes' leaders, then inside each node. Each stretch of blocks that a rank owns between the two levels has
/// ports of its own.
template <class Intra, class Inter>
struct two_level_pass : two_level_pair<Intra, Inter> {
    using pair = two_level_pair<Intra, Inter>;
    using pair::implements, pair::inter, pair::intra, pair::node;
    static constexpr bool inside_first = reduces(implements);

    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return owned(implements) ? pair::blocks(n) : lcm(blocks_of(intra(), g.size), blocks_of(inter(), g.count));
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        const int in = ports_of(intra(), g.size), across = ports_of(inter(), g.count);
        if constexpr (inside_first)
            return larger(in, across * most_stretches(intra(), g.size));
        else
            return larger(across, in * most_stretches(inter(), g.count));
    }
    constexpr int home(int n, int slot) const {
        const node_grid g(n, node);
        const auto [first, second] = inside_first ? homes(intra(), g.size, inter(), g.count, slot)
                                                  : homes(inter(), g.count, intra(), g.size, slot);
        if (first == none || second == none) return none;
        return inside_first ? g.rank_at(second, first) : g.rank_at(first, second);
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank);
        if constexpr (inside_first)
            return descend(level{intra(), g.size, x, g.inside(k)}, true, level{inter(), g.count, k, g.across(x)}, round,
                port, blocks(n));
        else
            return descend(level{inter(), g.count, k, g.across(x)}, x == root_of(intra(), g.size),
                level{intra(), g.size, x, g.inside(k)}, round, port, blocks(n));
    }

private:
    struct place_pair {
        int first, second;
    };
    template <class A, class B>
    static constexpr place_pair homes(const A& a, int na, const B& b, int nb, int slot) {
        const int cut = blocks_of(b, nb);
        const stretch own = stretch_around(a, na, slot / cut);
        return {home_of(a, na, slot / cut), home_of(b, nb, (slot - own.first * cut) / own.count)};
    }
};

/// all_reduce: `up` inside each node (reduce_scatter, or reduce to the leader), `inter` across the nodes on what each
/// rank then owns, `down` inside each node (all_gather, or broadcast).
template <class Up, class Inter, class Down>
struct two_level_all_reduce : part<Up, 0>, part<Inter, 1>, part<Down, 2> {
    int node = 0;
    constexpr decltype(auto) up() const { return part<Up, 0>::get(); }
    constexpr decltype(auto) inter() const { return part<Inter, 1>::get(); }
    constexpr decltype(auto) down() const { return part<Down, 2>::get(); }

    static constexpr collective implements = collective::all_reduce;
    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        return g.divides(n) && is_level(up(), g.size) && is_level(inter(), g.count) && is_level(down(), g.size) &&
               owners_agree(up(), down(), g.size);
    }
    constexpr int rounds(int n) const {
        const node_grid g(n, node);
        return up().rounds(g.size) + inter().rounds(g.count) + down().rounds(g.size);
    }
    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return lcm(blocks_of(up(), g.size), blocks_of(down(), g.size)) * blocks_of(inter(), g.count);
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(larger(ports_of(up(), g.size), ports_of(down(), g.size)),
            ports_of(inter(), g.count) * most_stretches(up(), g.size));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank), common = blocks(n);
        const int second = up().rounds(g.size) + inter().rounds(g.count);
        if (round >= second)
            return embedded(level{down(), g.size, x, g.inside(k)}, round - second, port,
                recut{cut_to(common, blocks_of(down(), g.size)), 0});
        return descend(
            level{up(), g.size, x, g.inside(k)}, true, level{inter(), g.count, k, g.across(x)}, round, port, common);
    }
};

template <class Up, class Inter, class Down>
struct reverse_trait<two_level_all_reduce<Up, Inter, Down>> {
    static constexpr bool possible = reversible<Up> && reversible<Inter> && reversible<Down>;
    using type = two_level_all_reduce<reverse_of<Down>, reverse_of<Inter>, reverse_of<Up>>;
    static constexpr type apply(const two_level_all_reduce<Up, Inter, Down>& t) {
        return {reverse(t.down()), reverse(t.inter()), reverse(t.up()), t.node};
    }
};

/// all_to_all: inside each node, where the data for one place of every node is one block; then across the nodes, where
/// one message carries the blocks of all places. Slots are ordered by place, then by node.
template <class Intra, class Inter>
struct two_level_all_to_all : two_level_pair<Intra, Inter> {
    using pair = two_level_pair<Intra, Inter>;
    using pair::implements, pair::inter, pair::intra, pair::node;

    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        if (!pair::supports(n)) return false;
        // A block set repeats at one distance only: an inter level whose own repetition ends elsewhere does not fit.
        const int apart = blocks_of(inter(), g.count);
        for (int round = 0; round < inter().rounds(g.count); ++round)
            for (int port = 0; port < ports_of(inter(), g.count); ++port) {
                const block_set b = step_of(inter(), 0, g.count, round, port).send.blocks;
                if (b.reps > 1 && b.reps * b.stride != apart) return false;
            }
        return true;
    }
    constexpr int input(int rank, int n, int slot) const {
        const node_grid g(n, node);
        const int cut = blocks_of(inter(), g.count);
        return g.rank_at(input_of(inter(), g.node_of(rank), g.count, slot % cut),
            input_of(intra(), g.place_of(rank), g.size, slot / cut));
    }
    constexpr int output(int rank, int n, int slot) const {
        const node_grid g(n, node);
        const int cut = blocks_of(inter(), g.count);
        return g.rank_at(output_of(inter(), g.node_of(rank), g.count, slot % cut),
            output_of(intra(), g.place_of(rank), g.size, slot / cut));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank), change = intra().rounds(g.size);
        const int cut = blocks_of(inter(), g.count);
        if (round < change) return embedded(level{intra(), g.size, x, g.inside(k)}, round, port, recut{cut, 0});
        const auto in_each = [&](const block_set& b) { return b.repeated(blocks_of(intra(), g.size), cut); };
        return embedded(level{inter(), g.count, k, g.across(x)}, round - change, port, in_each);
    }
};

template <class Intra, class Inter>
    requires(!owned(implemented_by<Intra>))
struct reverse_trait<two_level_pass<Intra, Inter>> {
    static constexpr bool possible = reversible<Intra> && reversible<Inter>;
    using type = two_level_pass<reverse_of<Intra>, reverse_of<Inter>>;
    static constexpr type apply(const two_level_pass<Intra, Inter>& t) {
        return {{reverse(t.intra()), reverse(t.inter()), t.node}};
    }
};

/// The two-level schedule T of these parts.
template <template <class...> class T, class... Part>
constexpr T<Part...> two_levels(int node, const Part&... parts) {
    if constexpr (sizeof...(Part) == 2)
        return {{parts..., node}};  // a two_level_pair
    else
        return {parts..., node};
}

/// The schedule with which h implements C, from its levels' schedules.
template <collective C, class Intra, class Inter>
constexpr auto two_level(const hierarchical<Intra, Inter>& h) {
    using enum collective;
    if constexpr (C == all_reduce) {
        constexpr int halves = family_recipe<Intra, Intra, C>();
        if constexpr (halves != none && provides<Inter, C>)
            return two_levels<two_level_all_reduce>(h.node, schedule_of<recipes[halves].first>(h.intra),
                schedule_of<C>(h.inter), schedule_of<recipes[halves].second>(h.intra));
        else
            return underivable{};
    } else if constexpr (C == inclusive_scan || C == exclusive_scan) {
        if constexpr (provides<Intra, C> && provides<Inter, exclusive_scan> && provides<Intra, broadcast>)
            return two_levels<two_level_scan>(
                h.node, schedule_of<C>(h.intra), schedule_of<exclusive_scan>(h.inter), schedule_of<broadcast>(h.intra));
        else
            return underivable{};
    } else if constexpr (!provides<Intra, C> || !provides<Inter, C>) {
        return underivable{};
    } else if constexpr (C == reduce_scatter || C == scatter || C == broadcast || C == reduce) {
        return two_levels<two_level_pass>(h.node, schedule_of<C>(h.intra), schedule_of<C>(h.inter));
    } else if constexpr (C == all_to_all) {
        return two_levels<two_level_all_to_all>(h.node, schedule_of<C>(h.intra), schedule_of<C>(h.inter));
    } else if constexpr (C == all_gather || C == gather) {
        // The dual of the reversed levels, reversed.
        if constexpr (reversible<schedule_for<Intra, C>> && reversible<schedule_for<Inter, C>>)
            return reverse(
                two_levels<two_level_pass>(h.node, reverse(schedule_of<C>(h.intra)), reverse(schedule_of<C>(h.inter))));
        else
            return underivable{};
    } else {
        return underivable{};
    }
}

}  // namespace colls::inline v1::detail
