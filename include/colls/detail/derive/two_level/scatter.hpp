// Two-level reduce_scatter and scatter; reversed, they are all_gather and gather.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/ownership.hpp>
#include <colls/detail/derive/two_level/level.hpp>

namespace colls::inline v1::detail {

/// reduce_scatter: inside each node, then across the nodes on what each rank owns. scatter: across the nodes' leaders,
/// then inside each node. Each stretch of blocks that a rank owns between the two levels has ports of its own.
template <class Intra, class Inter>
struct two_level_scatter : two_level_pair<Intra, Inter> {
    using pair = two_level_pair<Intra, Inter>;
    using pair::implements, pair::inter, pair::intra, pair::node;
    static constexpr bool inside_first = implements == collective::reduce_scatter;

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
        if constexpr (inside_first) {
            const place_pair at = homes(intra(), g.size, inter(), g.count, slot);
            return at.first == none || at.second == none ? none : g.rank_at(at.second, at.first);
        } else {
            const place_pair at = homes(inter(), g.count, intra(), g.size, slot);
            return at.first == none || at.second == none ? none : g.rank_at(at.first, at.second);
        }
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank);
        if constexpr (inside_first)
            return descend(
                level{intra(), g.size, x, g.inside(k)}, true, level{inter(), g.count, k, g.across(x)}, round, port);
        else
            return descend(level{inter(), g.count, k, g.across(x)}, x == root_of(intra(), g.size),
                level{intra(), g.size, x, g.inside(k)}, round, port);
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
        const int change = a.s.rounds(a.size), cut = blocks_of(b.s, b.size);
        if (round < change) return plays_first ? embedded(a, round, port, recut{cut, 0}) : step{};
        const int each = ports_of(b.s, b.size);
        const stretch own = owned_stretch(a.s, a.role, a.size, port / each);
        if (own.count == 0) return {};
        return embedded(b, round - change, port % each, recut{own.count, own.first * cut});
    }
};

}  // namespace colls::inline v1::detail
