// Deriving the properties of a schedule from its symbolic execution and its cost, with lower bounds on volume and
// rounds to compare it with.
// IWYU pragma: private, include <colls/verify/properties.hpp>
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/prove/symmetric_execution.hpp>
#include <colls/verify/properties.hpp>

namespace colls::inline v1::detail {

/// Blocks that the busiest rank must send or receive in any schedule of c.
constexpr long least_volume(collective c, long blocks, int n) {
    if (n == 1) return 0;
    const collective_traits& t = traits_of(c);
    if (t.in == content::nothing) return 0;
    if (!owned(c) && c != collective::all_to_all && c != collective::all_reduce) return blocks;
    return ((c == collective::all_reduce ? 2 : 1) * blocks * (n - 1) + n - 1) / n;
}

/// Rounds that any schedule of c needs whose ranks have `w.transfers` sends and receives a round.
constexpr int least_rounds(collective c, int blocks, int n, const width& w, bool volume_optimal) {
    if (n == 1 || w.transfers == 0) return 0;
    int spread = 0;  // least k with (transfers + 1)^k >= n: rounds for data of one rank to reach all
    for (long reached = 1; reached < n; reached *= w.transfers + 1) ++spread;
    if (c == collective::all_reduce && volume_optimal && w.transfers == 1) return 2 * spread;
    if (c != collective::broadcast && c != collective::reduce) return spread;
    // The root must send (or receive) all blocks, w.blocks a round.
    return w.blocks == 0 ? spread : static_cast<int>((blocks + w.blocks - 1) / w.blocks) - 1 + spread;
}

constexpr properties derive_properties(const schedule_reader& s, int n) {
    symbolic_execution e(s, n, true);
    if (!e.run().ok()) return {};
    width widest;
    const cost c = traffic(s, n, {}, 0, &widest);
    const long busiest = c.blocks_sent > c.blocks_received ? c.blocks_sent : c.blocks_received;
    const bool least = busiest <= least_volume(s.kind(), c.blocks, n);
    return {.order_preserving = e.in_rank_order(),
        .rank_identical = e.same_on_every_rank(),
        .folds = e.folds(),
        .volume_optimal = least,
        .round_optimal = c.rounds <= least_rounds(s.kind(), c.blocks, n, widest, least),
        .symmetric = symmetric_execution(s, n).applies(),
        .keeps_slots = e.slots_keep_their_blocks(),
        .staged_rounds = e.staged_rounds()};
}

}  // namespace colls::inline v1::detail
