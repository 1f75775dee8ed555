// Which two-level schedule implements which collective.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/two_level/all_reduce.hpp>
#include <colls/detail/derive/two_level/all_to_all.hpp>
#include <colls/detail/derive/two_level/rooted.hpp>
#include <colls/detail/derive/two_level/scan.hpp>
#include <colls/detail/derive/two_level/scatter.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

template <class Intra, class Inter>
struct hierarchical;

}  // namespace colls::inline v1

namespace colls::inline v1::detail {

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
