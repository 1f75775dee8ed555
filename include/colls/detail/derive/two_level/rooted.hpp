// Two-level broadcast and reduce.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/reversal.hpp>
#include <colls/detail/derive/two_level/level.hpp>

namespace colls::inline v1::detail {

/// broadcast: across the nodes' leaders, then inside each node. reduce: inside each node to its leader, then across.
template <class Intra, class Inter>
struct two_level_rooted : part<Intra, 0>, part<Inter, 1> {
    int node = 0;
    constexpr decltype(auto) intra() const { return part<Intra, 0>::get(); }
    constexpr decltype(auto) inter() const { return part<Inter, 1>::get(); }

    static constexpr collective implements = implemented_by<Intra>;
    static constexpr bool inside_first = implements == collective::reduce;

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
        return lcm(blocks_of(intra(), g.size), blocks_of(inter(), g.count));
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(ports_of(intra(), g.size), ports_of(inter(), g.count));
    }
    constexpr int root(int n) const {
        const node_grid g(n, node);
        return g.rank_at(root_of(inter(), g.count), root_of(intra(), g.size));
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
        return {reverse(t.intra()), reverse(t.inter()), t.node};
    }
};

}  // namespace colls::inline v1::detail
