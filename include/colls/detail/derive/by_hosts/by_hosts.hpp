// Which schedule for hosts of different sizes implements which collective.
// IWYU pragma: private, include <colls/schedules/host_hierarchy.hpp>
#pragma once

#include <colls/detail/derive/by_hosts/scatter.hpp>
#include <colls/detail/derive/by_hosts/split.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

template <class Inter>
struct host_hierarchy;

}  // namespace colls::inline v1

namespace colls::inline v1::detail {

/// What host_hierarchy names: a schedule from that of `inter` for the same collective.
template <collective C, class Inter>
constexpr auto by_hosts(const host_hierarchy<Inter>& h) {
    using enum collective;
    if constexpr (!provides<Inter, C>) {
        return underivable{};
    } else {
        const auto across = schedule_of<C>(h.inter);
        using S = std::remove_const_t<decltype(across)>;
        if constexpr (C == all_reduce)
            return by_hosts_split<S>{across, h.hosts, h.lanes};
        else if constexpr (C == broadcast)
            return by_hosts_split<S>{across, h.hosts, h.lanes, h.root};
        else if constexpr (C == all_gather)
            return by_hosts_split<S>{across, h.hosts};
        else if constexpr (C == scatter)
            return by_hosts_scatter<S>{across, h.hosts, h.root};
        else if constexpr (!reversible<S>)
            return underivable{};
        // The dual of the reversed schedule, reversed.
        else if constexpr (C == reduce)
            return reverse(by_hosts_split<reverse_of<S>>{reverse(across), h.hosts, h.lanes, h.root});
        else if constexpr (C == reduce_scatter)
            return reverse(by_hosts_split<reverse_of<S>>{reverse(across), h.hosts});
        else if constexpr (C == gather)
            return reverse(by_hosts_scatter<reverse_of<S>>{reverse(across), h.hosts, h.root});
        else
            return underivable{};
    }
}

}  // namespace colls::inline v1::detail
