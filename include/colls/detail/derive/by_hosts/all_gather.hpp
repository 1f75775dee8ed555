// all_gather for hosts of different sizes; reversed, it is reduce_scatter.
// IWYU pragma: private, include <colls/schedules/host_hierarchy.hpp>
#pragma once

#include <colls/detail/derive/by_hosts/lanes.hpp>
#include <colls/detail/derive/part.hpp>

namespace colls::inline v1::detail {

/// all_gather: lane by lane between hosts, where lane l gathers the blocks of the ranks at place l; then within each
/// host to all. Slots of hosts that have no rank at that place stand for no block: they have no bytes.
template <class Inter>
struct by_hosts_all_gather : part<Inter> {
    host_map hosts{};
    constexpr decltype(auto) inter() const { return part<Inter>::get(); }

    static constexpr collective implements = collective::all_gather;
    constexpr bool supports(int n) const { return goes_between(inter(), host_grid(hosts, n)); }
    constexpr int rounds(int n) const {
        const host_grid g(hosts, n);
        return inter().rounds(g.hosts) + (g.largest > 1 ? 1 : 0);
    }
    constexpr int blocks(int n) const {
        const host_lanes g = grid(n);
        return g.lanes * g.each;
    }
    constexpr int home(int n, int slot) const {
        const host_lanes g = grid(n);
        const int host = home_of(inter(), g.hosts, slot % g.each), place = slot / g.each;
        return host == none || place >= g.size(host) ? none : g.rank_at(host, place);
    }
    constexpr int ports(int n) const { return grid(n).ports(inter()); }
    constexpr step at(int rank, int n, int round, int port) const {
        const host_lanes g = grid(n);
        if (round < inter().rounds(g.hosts)) return g.between(inter(), rank, round, port);
        return g.from_owners(rank, port, false);
    }

private:
    constexpr host_lanes grid(int n) const {
        const host_grid g(hosts, n);
        return {g, 0, blocks_of(inter(), g.hosts)};
    }
};

}  // namespace colls::inline v1::detail
