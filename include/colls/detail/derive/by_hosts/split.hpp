// all_reduce, broadcast and all_gather for hosts of different sizes; reversed, the latter are reduce and
// reduce_scatter.
// IWYU pragma: private, include <colls/schedules/host_hierarchy.hpp>
#pragma once

#include <colls/detail/derive/by_hosts/lanes.hpp>
#include <colls/detail/derive/part.hpp>

namespace colls::inline v1::detail {

/// all_reduce: within each host to the lanes' owners, lane by lane between hosts, within each host to all. broadcast:
/// from the root to the lanes' owners on its host, and on in the same way. all_gather begins between hosts, where lane
/// l gathers the blocks of the ranks at place l; slots of hosts that have no rank there stand for no block: they have
/// no bytes.
template <class Inter>
struct by_hosts_split : part<Inter> {
    host_map hosts{};
    int lanes = 0, from = 0;
    constexpr decltype(auto) inter() const { return part<Inter>::get(); }

    static constexpr collective implements = implemented_by<Inter>;
    constexpr bool supports(int n) const { return goes_between(inter(), host_grid(hosts, n)); }
    constexpr int root(int n) const { return from > 0 && from < n ? from : 0; }
    constexpr int rounds(int n) const {
        const host_lanes g = grid(n);
        return rounds_before(g) + inter().rounds(g.hosts) + (g.largest > 1 ? 1 : 0);
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
        const int first = rounds_before(g);
        if (round < first) return rooted(implements) ? g.from_root(rank, port) : g.to_owners(rank, port);
        if (round - first < inter().rounds(g.hosts))
            return g.between(inter(), rank, round - first, port, rooted(implements) ? root_of(inter(), g.hosts) : 0);
        return g.from_owners(rank, port, rooted(implements));
    }

private:
    /// Those within hosts.
    static constexpr int rounds_before(const host_lanes& g) {
        if (implements == collective::all_gather) return 0;
        return (rooted(implements) ? g.owners(0) : g.largest) > 1 ? 1 : 0;
    }
    constexpr host_lanes grid(int n) const {
        const host_grid g(hosts, n, from);
        return {g, lanes, blocks_of(inter(), g.hosts)};
    }
};

}  // namespace colls::inline v1::detail
