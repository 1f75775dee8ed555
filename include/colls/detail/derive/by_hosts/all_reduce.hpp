// all_reduce for hosts of different sizes.
// IWYU pragma: private, include <colls/schedules/host_hierarchy.hpp>
#pragma once

#include <colls/detail/derive/by_hosts/lanes.hpp>
#include <colls/detail/derive/part.hpp>

namespace colls::inline v1::detail {

/// all_reduce: within each host to the lanes' owners, lane by lane between hosts, within each host to all.
template <class Inter>
struct by_hosts_all_reduce : part<Inter> {
    host_map hosts{};
    int lanes = 0;
    constexpr decltype(auto) inter() const { return part<Inter>::get(); }

    static constexpr collective implements = collective::all_reduce;
    constexpr bool supports(int n) const { return goes_between(inter(), host_grid(hosts, n)); }
    constexpr int rounds(int n) const {
        const host_grid g(hosts, n);
        return inter().rounds(g.hosts) + (g.largest > 1 ? 2 : 0);
    }
    constexpr int blocks(int n) const {
        const host_lanes g = grid(n);
        return g.lanes * g.each;
    }
    constexpr int ports(int n) const { return grid(n).ports(inter()); }
    constexpr step at(int rank, int n, int round, int port) const {
        const host_lanes g = grid(n);
        const int first = g.largest > 1 ? 1 : 0;
        if (round < first) return g.to_owners(rank, port);
        if (round - first < inter().rounds(g.hosts)) return g.between(inter(), rank, round - first, port);
        return g.from_owners(rank, port, false);
    }

private:
    constexpr host_lanes grid(int n) const {
        const host_grid g(hosts, n);
        return {g, lanes, blocks_of(inter(), g.hosts)};
    }
};

}  // namespace colls::inline v1::detail
