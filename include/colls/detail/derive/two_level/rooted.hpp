// Two-level broadcast and reduce.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/reversal.hpp>
#include <colls/detail/derive/two_level/level.hpp>

namespace colls::inline v1::detail {

/// broadcast: across the nodes' leaders, then inside each node. reduce: inside each node to its leader, then across.
template <class Intra, class Inter>
struct two_level_rooted : two_level_pair<Intra, Inter> {
    using pair = two_level_pair<Intra, Inter>;
    using pair::implements, pair::inter, pair::intra, pair::node;
    static constexpr bool inside_first = implements == collective::reduce;

    constexpr int blocks(int n) const {
        const node_grid g(n, node);
        return lcm(blocks_of(intra(), g.size), blocks_of(inter(), g.count));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const int k = g.node_of(rank), x = g.place_of(rank), common = blocks(n);
        const int change = inside_first ? intra().rounds(g.size) : inter().rounds(g.count);
        const int since = round < change ? round : round - change;
        if ((round < change) == inside_first)
            return embedded(level{intra(), g.size, x, g.inside(k)}, since, port,
                recut{cut_to(common, blocks_of(intra(), g.size)), 0});
        if (x != root_of(intra(), g.size)) return {};
        return embedded(level{inter(), g.count, k, g.across(x)}, since, port,
            recut{cut_to(common, blocks_of(inter(), g.count)), 0});
    }
};

template <class Intra, class Inter>
struct reverse_trait<two_level_rooted<Intra, Inter>> {
    static constexpr bool possible = reversible<Intra> && reversible<Inter>;
    using type = two_level_rooted<reverse_of<Intra>, reverse_of<Inter>>;
    static constexpr type apply(const two_level_rooted<Intra, Inter>& t) {
        return {{reverse(t.intra()), reverse(t.inter()), t.node}};
    }
};

}  // namespace colls::inline v1::detail
