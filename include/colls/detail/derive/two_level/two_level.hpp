// Which two-level schedule implements which collective; and those of broadcast, reduce and all_to_all.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/reversal.hpp>
#include <colls/detail/derive/two_level/all_reduce.hpp>
#include <colls/detail/derive/two_level/level.hpp>
#include <colls/detail/derive/two_level/scan.hpp>
#include <colls/detail/derive/two_level/scatter.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

template <class Intra, class Inter>
struct hierarchical;

}  // namespace colls::inline v1

namespace colls::inline v1::detail {

/// all_to_all: inside each node, where the data for one place of every node is one block; then across the nodes, where
/// one message carries the blocks of all places. Slots are ordered by place, then by node.
template <class Intra, class Inter>
struct two_level_all_to_all : two_level_pair<Intra, Inter> {
    using pair = two_level_pair<Intra, Inter>;
    using pair::implements, pair::inter, pair::intra, pair::node;
    /// The blocks of the level across nodes, in each of `times` superblocks of `apart` blocks.
    struct repeated_in {
        int times, apart;
        constexpr block_set operator()(const block_set& b) const { return b.repeated(times, apart); }
    };

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
        return embedded(level{inter(), g.count, k, g.across(x)}, round - change, port,
            repeated_in{blocks_of(intra(), g.size), cut});
    }
};

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
    } else if constexpr (C == reduce_scatter || C == scatter) {
        return two_levels<two_level_scatter>(h.node, schedule_of<C>(h.intra), schedule_of<C>(h.inter));
    } else if constexpr (C == broadcast || C == reduce) {
        return two_levels<two_level_rooted>(h.node, schedule_of<C>(h.intra), schedule_of<C>(h.inter));
    } else if constexpr (C == all_to_all) {
        return two_levels<two_level_all_to_all>(h.node, schedule_of<C>(h.intra), schedule_of<C>(h.inter));
    } else if constexpr (C == all_gather || C == gather) {
        // The dual of the reversed levels, reversed.
        if constexpr (reversible<schedule_for<Intra, C>> && reversible<schedule_for<Inter, C>>)
            return reverse(two_levels<two_level_scatter>(
                h.node, reverse(schedule_of<C>(h.intra)), reverse(schedule_of<C>(h.inter))));
        else
            return underivable{};
    } else {
        return underivable{};
    }
}

}  // namespace colls::inline v1::detail
