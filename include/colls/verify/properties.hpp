// What follows from a schedule beyond being right: derived by the same symbolic execution, never declared.
#pragma once

#include <colls/detail/prove/proof.hpp>
#include <colls/detail/prove/reader.hpp>
#include <colls/schedule.hpp>
#include <colls/verify/fold_properties.hpp>

namespace colls::inline v1 {

/// What is true of a schedule in a group of one size.
struct properties {
    /// Contributions are combined in ascending rank order everywhere: right for operators that do not commute.
    bool order_preserving = false;
    /// All ranks that hold one result computed it by the same expression: bit for bit the same.
    bool rank_identical = false;
    /// By which expressions results are computed: see fold_properties.hpp.
    fold_properties folds;
    /// No rank sends or receives more blocks than the busiest rank must in any schedule of this collective.
    bool volume_optimal = false;
    /// No schedule with as many transfers a round, and as many blocks in each, has fewer rounds. (An all_reduce that is
    /// volume-optimal is compared with twice the logarithm: it cannot overlap reducing and spreading.)
    bool round_optimal = false;
    /// Every rank does what rank 0 does, translated by the rank.
    bool symmetric = false;
    /// Every block always lies in the slot of its own number: blocks may differ in size without staging.
    bool keeps_slots = false;
    /// Rounds in which some rank receives into a slot that it also sends: executors stage these (law 6, hazards).
    int staged_rounds = 0;
};

/// The derived properties of s in a group of n; all false where a law is broken. Executes every rank.
template <class S>
constexpr properties properties_of(const S& s, int n) {
    return derive_properties(detail::readable(s), n);
}
/// properties_of(S{}, n).
template <class S>
constexpr properties properties_of(int n) {
    return properties_of(S{}, n);
}

/// True where S combines in rank order at every group size from 2 to 8 that it supports: what an operator that does not
/// commute requires of a schedule, at compile time.
template <class S>
inline constexpr bool order_preserving = detail::at_small_sizes<S>.order_preserving;

/// By which expressions s computes its results in a group of n; all false where a law is broken. Executes every rank.
template <class S>
constexpr fold_properties folds_of(const S& s, int n) {
    return detail::examined(detail::readable(s), n).folds;
}
/// folds_of(S{}, n).
template <class S>
constexpr fold_properties folds_of(int n) {
    return folds_of(S{}, n);
}
/// folds_of(S{}, n).depth: how often a contribution is folded on its way into a result, at most.
template <class S>
constexpr int fold_depth(int n) {
    return folds_of(S{}, n).depth;
}

/// True where the bits of S's results do not depend on the place of an element, on the count, or on how data are cut
/// into calls, at every group size from 2 to 8 that S supports: what colls::reproducible requires of a schedule, at
/// compile time.
template <class S>
inline constexpr bool one_expression = detail::at_small_sizes<S>.folds.one_expression;
/// True where each result of S is one fold in rank order, at every group size from 2 to 8 that S supports.
template <class S>
inline constexpr bool single_fold = detail::at_small_sizes<S>.folds.single_fold;

/// Whether `rank` receives in `round` into a slot that it sends in the same round, so that an executor must stage one
/// of the two (law 6). O(blocks moved).
template <class S>
constexpr bool overwrites_sent(const S& s, int rank, int n, int round) {
    detail::buffer<bool> sent(blocks_of(s, n) + scratch_of(s, n));
    for (const bool receiving : {false, true})
        for (int port = 0; port < ports_of(s, n); ++port) {
            const step st = step_of(s, rank, n, round, port);
            if ((receiving ? st.recv.peer : st.send.peer) == none) continue;
            const block_set& b = receiving ? st.recv.blocks : st.send.blocks;
            for (int j = 0; j < detail::size_of(b); ++j) {
                if (receiving && sent.p[b[j]]) return true;
                if (!receiving) sent.p[b[j]] = true;
            }
        }
    return false;
}

}  // namespace colls::inline v1

#include <colls/detail/prove/derive_properties.hpp>  // derive_properties
