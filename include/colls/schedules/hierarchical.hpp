// hierarchical<Intra, Inter>: nodes of ranks; one family inside a node, another across the nodes.
#pragma once

#include <colls/algebra.hpp>
#include <colls/detail/derive/two_level/all_reduce.hpp>
#include <colls/detail/derive/two_level/all_to_all.hpp>
#include <colls/detail/derive/two_level/level.hpp>
#include <colls/detail/derive/two_level/rooted.hpp>
#include <colls/detail/derive/two_level/scan.hpp>
#include <colls/detail/derive/two_level/scatter.hpp>

namespace colls::inline v1 {

template <class Intra, class Inter>
struct hierarchical;

namespace detail {

/// T of these parts.
template <template <class...> class T, class... Part>
constexpr T<Part...> two_levels(int node, const Part&... parts) {
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
        // Backwards, the dual of the reversed levels.
        if constexpr (reversible<schedule_for<Intra, C>> && reversible<schedule_for<Inter, C>>)
            return reversed_of(two_levels<two_level_scatter>(
                h.node, reversed_of(schedule_of<C>(h.intra)), reversed_of(schedule_of<C>(h.inter))));
        else
            return underivable{};
    } else {
        return underivable{};
    }
}

}  // namespace detail

/// A family over two families (or schedules), for ranks in nodes of `node` consecutive ranks: Intra inside a node,
/// Inter among the ranks of equal place in all nodes. Either may itself be hierarchical, to any depth. node = 0: the
/// largest divisor of n whose square is at most n. Legal where node divides n and the levels support their sizes.
///     all_reduce      Intra reduce_scatter, Inter all_reduce on what each rank owns, Intra all_gather
///                     (Intra reduce, Inter all_reduce among leaders, Intra broadcast where Intra has only those)
///     reduce_scatter  Intra, then Inter; all_gather the reverse
///     broadcast       Inter among the leaders, then Intra; reduce the other way round
///     scatter         Inter of whole nodes' blocks among the leaders, then Intra; gather the reverse
///     all_to_all      Intra on blocks gathered by place, then Inter, one message for all places
///     scans           Intra's scan, Inter's exclusive scan of the nodes' totals among their last ranks, Intra's
///                     broadcast of it from there, and a local combination (levels of one block; keeps rank order)
/// Law: rounds and bytes moved are the sum of the levels', each on its own links: Inter moves node's share, 1 / node of
/// the data in all_reduce and reduce_scatter.
template <class Intra, class Inter>
struct hierarchical {
    static_assert(detail::schedule_or_family<Intra> && detail::schedule_or_family<Inter>,
        "colls: hierarchical<Intra, Inter>: Intra and Inter must be families or schedules");
    int node = 0;
    Intra intra{};
    Inter inter{};

    template <collective C>
        requires(detail::derived<decltype(detail::two_level<C>(std::declval<const hierarchical<Intra, Inter>&>()))>)
    constexpr auto make() const {
        return detail::two_level<C>(*this);
    }
};

}  // namespace colls::inline v1
