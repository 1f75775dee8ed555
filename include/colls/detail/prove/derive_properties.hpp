// Deriving the properties of a schedule from its symbolic execution and its cost.
// IWYU pragma: private, include <colls/verify/properties.hpp>
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/prove/optimality.hpp>
#include <colls/detail/prove/symmetric_execution.hpp>
#include <colls/verify/properties.hpp>

namespace colls::inline v1::detail {

constexpr properties properties_of(const schedule_reader& s, int n) {
    symbolic_execution e(s, n, true);
    if (!e.run().ok()) return {};
    const cost c = traffic(s, n);
    const long busiest = c.blocks_sent > c.blocks_received ? c.blocks_sent : c.blocks_received;
    const bool least = busiest <= least_volume(s.kind(), c.blocks, n);
    return {.order_preserving = e.in_rank_order(),
        .rank_identical = e.same_on_every_rank(),
        .folds = e.folds(),
        .volume_optimal = least,
        .round_optimal = c.rounds <= least_rounds(s.kind(), c.blocks, n, widest(s, n), least),
        .symmetric = symmetric_execution(s, n).applies(),
        .keeps_slots = e.slots_keep_their_blocks(),
        .staged_rounds = e.staged_rounds()};
}

}  // namespace colls::inline v1::detail

namespace colls::inline v1 {

template <class S>
constexpr properties properties_of(const S& s, int n) {
    if constexpr (detail::expect_readable<S>())
        return detail::properties_of(detail::reader_of<S>(s), n);
    else
        return {};
}
template <class S>
constexpr properties properties_of(int n) {
    return properties_of(S{}, n);
}

template <class S>
constexpr fold_properties folds_of(const S& s, int n) {
    if constexpr (detail::expect_readable<S>())
        return detail::folds(detail::reader_of<S>(s), n);
    else
        return {};
}
template <class S>
constexpr fold_properties folds_of(int n) {
    return folds_of(S{}, n);
}
template <class S>
constexpr int fold_depth(int n) {
    return folds_of(S{}, n).depth;
}

}  // namespace colls::inline v1
