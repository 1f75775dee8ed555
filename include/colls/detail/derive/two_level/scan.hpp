// Two-level scans.
// IWYU pragma: private, include <colls/schedules/hierarchical.hpp>
#pragma once

#include <colls/detail/derive/two_level/level.hpp>

namespace colls::inline v1::detail {

/// Scans of one block, in four phases: a scan inside each node; an exclusive scan of the nodes' totals among their last
/// ranks, in a slot of its own; a broadcast of its result inside each node; a local reduction with it as the left
/// operand. For an exclusive scan the last rank of a node first copies its contribution aside, to make up the total.
template <class Intra, class Inter, class Broadcast>
struct two_level_scan : part<Intra, 0>, part<Inter, 1>, part<Broadcast, 2> {
    int node = 0;
    constexpr decltype(auto) intra() const { return part<Intra, 0>::get(); }
    constexpr decltype(auto) inter() const { return part<Inter, 1>::get(); }
    constexpr decltype(auto) broadcast() const { return part<Broadcast, 2>::get(); }

    static constexpr collective implements = implemented_by<Intra>;
    static constexpr bool exclusive = implements == collective::exclusive_scan;

    constexpr bool supports(int n) const {
        const node_grid g(n, node);
        return g.divides(n) && colls::supports(intra(), g.size) && blocks_of(intra(), g.size) == 1 &&
               colls::supports(inter(), g.count) && blocks_of(inter(), g.count) == 1 && is_level(broadcast(), g.size) &&
               blocks_of(broadcast(), g.size) == 1;
    }
    constexpr int rounds(int n) const {
        const node_grid g(n, node);
        return phases(g).end;
    }
    constexpr int blocks(int) const { return 1; }
    constexpr int scratch(int n) const {
        const node_grid g(n, node);
        return g.count == 1 ? scratch_of(intra(), g.size) : aside(g) + scratch_of(inter(), g.count);
    }
    constexpr int ports(int n) const {
        const node_grid g(n, node);
        return larger(larger(ports_of(intra(), g.size), ports_of(inter(), g.count)), ports_of(broadcast(), g.size));
    }
    constexpr step at(int rank, int n, int round, int port) const {
        const node_grid g(n, node);
        const phase p = phases(g);
        const int k = g.node_of(rank), x = g.place_of(rank), slot = aside(g);
        const bool last = x == g.size - 1;
        if (round < p.inside) return last ? local(rank, port, 0, slot, action::copy) : step{};
        if (round < p.total)
            return embedded(level{intra(), g.size, x, g.inside(k)}, round - p.inside, port, same_blocks{});
        if (round < p.across) {
            if (!last || (exclusive && x == 0)) return {};
            return local(rank, port, 0, slot, exclusive ? action::reduce : action::copy);
        }
        if (round < p.down) {
            if (!last) return {};
            return embedded(level{inter(), g.count, k, g.across(x)}, round - p.across, port, recut{1, slot});
        }
        if (k == 0) return {};  // no node precedes the first
        if (round < p.fold) {
            // The broadcast is rotated so that its root is the last rank of the node.
            const int by = mod(g.size - 1 - root_of(broadcast(), g.size), g.size);
            return moved(
                embedded(level{broadcast(), g.size, mod(x - by, g.size), {0, 1}}, round - p.down, port, recut{1, slot}),
                rotated{g.size, by, g.rank_at(k, 0)}, same_blocks{});
        }
        return local(rank, port, slot, 0, exclusive && x == 0 ? action::copy : action::reduce);
    }

private:
    struct rotated {
        int size, by, first;
        constexpr int operator()(int role) const { return first + mod(role + by, size); }
    };
    /// The rounds in which the phases begin; rounds before `inside` copy contributions aside.
    struct phase {
        int inside, total, across, down, fold, end;
    };
    constexpr phase phases(const node_grid& g) const {
        phase p{};
        p.inside = exclusive && g.count > 1 ? 1 : 0;
        p.total = p.inside + intra().rounds(g.size);
        if (g.count == 1) {
            p.across = p.down = p.fold = p.end = p.total;
        } else {
            p.across = p.total + 1;
            p.down = p.across + inter().rounds(g.count);
            p.fold = p.down + broadcast().rounds(g.size);
            p.end = p.fold + 1;
        }
        return p;
    }
    /// The slot of the totals: behind the scratch slots of the scan inside nodes.
    constexpr int aside(const node_grid& g) const { return 1 + scratch_of(intra(), g.size); }
    static constexpr step local(int rank, int port, int from, int to, action a) {
        if (port > 0) return {};
        return {.send = {rank, block(from)}, .recv = {rank, block(to), a}};
    }
};

}  // namespace colls::inline v1::detail
