// scatter for hosts of different sizes; reversed, it is gather.
// IWYU pragma: private, include <colls/schedules/host_hierarchy.hpp>
#pragma once

#include <colls/detail/derive/by_hosts/lanes.hpp>
#include <colls/detail/derive/ownership.hpp>
#include <colls/detail/derive/part.hpp>

namespace colls::inline v1::detail {

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
        const int across = ports_of(inter(), g.hosts);
        return across > g.largest - 1 ? across : g.largest - 1;
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

}  // namespace colls::inline v1::detail
