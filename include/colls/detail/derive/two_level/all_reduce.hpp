// Two-level all_reduce.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/ownership.hpp>
#include <colls/detail/derive/recipes.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/detail/derive/two_level/level.hpp>

namespace colls::inline v1::detail {

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
        const int first = up().rounds(g.size), second = first + inter().rounds(g.count);
        const int cut = cut_to(common, blocks_of(up(), g.size));
        if (round < first) return embedded(level{up(), g.size, x, g.inside(k)}, round, port, recut{cut, 0});
        if (round >= second)
            return embedded(level{down(), g.size, x, g.inside(k)}, round - second, port,
                recut{cut_to(common, blocks_of(down(), g.size)), 0});
        const int each = ports_of(inter(), g.count);
        const stretch own = owned_stretch(up(), x, g.size, port / each);
        if (own.count == 0) return {};
        return embedded(level{inter(), g.count, k, g.across(x)}, round - first, port % each,
            recut{own.count * cut / blocks_of(inter(), g.count), own.first * cut});
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

}  // namespace colls::inline v1::detail
