// Schedules for hosts of different sizes, and which of them implements which collective.
// IWYU pragma: private, include <colls/schedules/host_hierarchy.hpp>
#pragma once

#include <colls/detail/derive/by_hosts/lanes.hpp>
#include <colls/detail/derive/ownership.hpp>
#include <colls/detail/derive/part.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/family.hpp>

namespace colls::inline v1 {

template <class Inter>
struct host_hierarchy;

}  // namespace colls::inline v1

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

/// scatter: whole hosts' blocks from the root to one rank of each host, then within each host. A block of `inter` is
/// as many slots as the largest host has ranks; those that a host has no rank for stand for no block.
template <class Inter>
struct by_hosts_scatter : part<Inter> {
    host_map hosts{};
    int from = 0;
    constexpr decltype(auto) inter() const { return part<Inter>::get(); }

    static constexpr collective implements = collective::scatter;
    constexpr bool supports(int n) const {
        const host_grid g = grid(n);
        return goes_between(inter(), g) && most_stretches(inter(), g.hosts) == 1;
    }
    constexpr int root(int n) const { return from > 0 && from < n ? from : 0; }
    constexpr int rounds(int n) const {
        const host_grid g = grid(n);
        return inter().rounds(g.hosts) + (g.largest > 1 ? 1 : 0);
    }
    constexpr int blocks(int n) const {
        const host_grid g = grid(n);
        return blocks_of(inter(), g.hosts) * g.largest;
    }
    constexpr int home(int n, int slot) const {
        const host_grid g = grid(n);
        const int role = home_of(inter(), g.hosts, slot / g.largest), place = slot % g.largest;
        if (role == none) return none;
        const int host = mod(role - shift(g), g.hosts);
        return place >= g.size(host) ? none : g.rank_at(host, place);
    }
    constexpr int ports(int n) const {
        const host_grid g = grid(n);
        return larger(ports_of(inter(), g.hosts), g.largest - 1);
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const host_grid g = grid(n);
        const int host = g.host_of(rank), place = g.place_of(rank), change = inter().rounds(g.hosts);
        const int role = mod(host + shift(g), g.hosts);
        if (round < change) {
            if (place != 0 || port >= ports_of(inter(), g.hosts)) return {};
            const auto leader = [&](int r) { return g.rank_at(mod(r - shift(g), g.hosts), 0); };
            return moved(step_of(inter(), role, g.hosts, round, port), leader, recut{g.largest, 0});
        }
        if (port + 1 >= g.size(host)) return {};
        const stretch own = owned_stretch(inter(), role, g.hosts, 0);
        const block_set b{.first = own.first * g.largest + port + 1, .count = own.count, .run = 1, .period = g.largest};
        if (place == 0) return {.send = {g.rank_at(host, port + 1), b}};
        if (place == port + 1) return {.recv = {g.rank_at(host, 0), b}};
        return {};
    }

private:
    constexpr host_grid grid(int n) const { return {hosts, n, from}; }
    constexpr int shift(const host_grid& g) const { return root_of(inter(), g.hosts); }
};

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
