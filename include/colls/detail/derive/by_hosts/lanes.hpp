// What schedules for hosts of different sizes share: hosts, their ranks' places, and lanes.
//
// Blocks are cut into lanes. On each host every lane has an owner, lane l the rank at place l mod (the host's owners),
// so that a host with fewer ranks than lanes has ranks of several lanes. Within a host data go straight between the
// owners and the others; between hosts each lane goes by a schedule of its own, among its owners. A lane's port is its
// number on all of its owners.
// IWYU pragma: private, include <colls/schedules/host_hierarchy.hpp>
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/extend/host_map.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

/// n ranks on hosts. The host of rank `root` is host 0, and `root` is place 0 there; all else is moved on cyclically.
class host_grid {
public:
    constexpr host_grid(host_map map, int n, int root = 0) : t_(map.table()), n_(n) {
        hosts = t_ ? t_->hosts : 1;
        largest = t_ ? t_->largest : n;
        if (!fits() || root <= 0 || root >= n) return;
        root_host_ = t_ ? t_->host_of[root] : 0;
        root_place_ = t_ ? t_->place_of[root] : root;
    }
    /// The map is for this many ranks.
    constexpr bool fits() const { return t_ == nullptr || t_->ranks == n_; }
    constexpr int size(int host) const { return size_at(mod(host + root_host_, hosts)); }
    constexpr int host_of(int rank) const { return mod((t_ ? t_->host_of[rank] : 0) - root_host_, hosts); }
    constexpr int place_of(int rank) const {
        const int place = t_ ? t_->place_of[rank] : rank, host = t_ ? t_->host_of[rank] : 0;
        return host == root_host_ ? mod(place - root_place_, size_at(host)) : place;
    }
    constexpr int rank_at(int host, int place) const {
        const int h = mod(host + root_host_, hosts);
        if (h == root_host_) place = mod(place + root_place_, size_at(h));
        return t_ ? t_->members[t_->first[h] + place] : place;
    }

    int hosts = 1, largest = 1;  ///< how many; ranks of the largest

private:
    constexpr int size_at(int h) const { return t_ ? t_->first[h + 1] - t_->first[h] : n_; }

    const host_table* t_;
    int n_, root_host_ = 0, root_place_ = 0;
};

/// A grid whose blocks are cut into `lanes` lanes of `each` blocks: lane l has blocks l · each to (l + 1) · each - 1.
struct host_lanes : host_grid {
    int lanes, each;
    /// `most`: lanes at most; 0: as many as the largest host has ranks.
    constexpr host_lanes(const host_grid& g, int most, int blocks)
        : host_grid(g), lanes(most > 0 && most < g.largest ? most : g.largest), each(blocks) {}

    constexpr int owners(int host) const { return size(host) < lanes ? size(host) : lanes; }
    constexpr int owner(int host, int lane) const { return lane % owners(host); }
    /// The blocks of all lanes of the rank at that place; it may have none.
    constexpr block_set owned_by(int host, int place) const {
        const int step = owners(host);
        if (place >= step) return {};
        return {.first = place * each,
            .count = (lanes - place + step - 1) / step,
            .run = 1,
            .period = step * each,
            .grain = each};
    }

    /// Within a host every rank sends every other the blocks that the other owns, which combines them.
    constexpr step to_owners(int rank, int port) const {
        const pair p = pair_of(rank, port);
        if (p.to == none) return {};
        step s;
        if (const block_set b = owned_by(p.host, p.to); !b.empty()) s.send = {rank_at(p.host, p.to), b};
        if (const block_set b = owned_by(p.host, p.place); !b.empty())
            s.recv = {rank_at(p.host, p.from), b, action::reduce};
        return s;
    }
    /// Within a host every owner sends every other rank what it owns; where there is a root, not to the root.
    constexpr step from_owners(int rank, int port, bool rooted) const {
        const pair p = pair_of(rank, port);
        if (p.to == none) return {};
        const auto has_all = [&](int place) { return rooted && p.host == 0 && place == 0; };
        step s;
        if (const block_set b = owned_by(p.host, p.place); !b.empty() && !has_all(p.to))
            s.send = {rank_at(p.host, p.to), b};
        if (const block_set b = owned_by(p.host, p.from); !b.empty() && !has_all(p.place))
            s.recv = {rank_at(p.host, p.from), b};
        return s;
    }
    /// The root's host: the root, place 0, sends the other owners what they own.
    constexpr step from_root(int rank, int port) const {
        const int place = place_of(rank);
        if (host_of(rank) != 0 || port + 1 >= owners(0)) return {};
        const block_set b = owned_by(0, port + 1);
        if (place == 0) return {.send = {rank_at(0, port + 1), b}};
        if (place == port + 1) return {.recv = {rank_at(0, 0), b}};
        return {};
    }
    /// Between hosts: the step of lane port / ports_of(inter), if the rank owns it, in which host h plays role
    /// h + shift of `inter`.
    template <class Inter>
    constexpr step between(const Inter& inter, int rank, int round, int port, int shift = 0) const {
        const int ports = ports_of(inter, hosts), lane = port / ports, host = host_of(rank);
        if (lane >= lanes || owner(host, lane) != place_of(rank)) return {};
        const auto rank_of = [&](int role) {
            const int h = mod(role - shift, hosts);
            return rank_at(h, owner(h, lane));
        };
        return moved(
            step_of(inter, mod(host + shift, hosts), hosts, round, port % ports), rank_of, recut{1, lane * each});
    }
    /// Ports of all steps, where lanes go by `inter`.
    template <class Inter>
    constexpr int ports(const Inter& inter) const {
        return larger(lanes * ports_of(inter, hosts), largest - 1);
    }

private:
    struct pair {
        int host, place, to = none, from = none;
    };
    constexpr pair pair_of(int rank, int port) const {
        pair p{host_of(rank), place_of(rank)};
        const int s = size(p.host);
        if (port + 1 < s) p.to = mod(p.place + port + 1, s), p.from = mod(p.place - port - 1, s);
        return p;
    }
};

/// Whether `inter` can go between the hosts of a grid: the grid is one of n ranks, and the schedule has no scratch
/// slots.
template <class Inter>
constexpr bool goes_between(const Inter& inter, const host_grid& g) {
    return g.fits() && supports(inter, g.hosts) && scratch_of(inter, g.hosts) == 0;
}

}  // namespace colls::inline v1::detail
