// The proof, and how a schedule combines contributions, as constants: one evaluation for each schedule and group size,
// so that a compiler's limits on constant evaluation hold for each of them.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/detail/prove/symmetric_execution.hpp>
#include <colls/family.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// Says in words what S lacks where a call or a proof is given it. False: what follows is not compiled.
template <class S>
constexpr bool expect_schedule_or_family() {
    constexpr bool is = schedule<S> || family<S>;
    static_assert(is,
        "colls: this is not a schedule: it needs `implements`, `rounds(n)`, and `at(rank, n, round)` or `at(rank, n, "
        "round, port)` "
        "that returns a colls::step, const or static, in a trivially copyable type; or it is a family, which names "
        "such types");
    return is;
}

/// From this group size on, where masks have several words, the search for symmetry pays.
inline constexpr int symmetry_from = 65;

[[gnu::cold]] [[gnu::noinline]] constexpr report run_proof(const schedule_reader& s, int n) {
    if (n >= symmetry_from)
        if (symmetric_execution e(s, n); e.applies()) return e.run();
    return symbolic_execution(s, n).run();
}

template <class S>
constexpr report proof_at(const S& s, int n) {
    return v1::supports(s, n) ? run_proof(reader_of<S>(s), n) : report{.n = n};
}
// Initialised by a call with arguments: g++ evaluates one without them twice.
template <class S, int n>
inline constexpr report proof_of = proof_at(S{}, n);

template <class F, collective C, int n>
constexpr bool proven_for() {
    if constexpr (provides<F, C>)
        return proof_of<schedule_for<F, C>, n>.ok();
    else
        return true;
}

template <class S, int n>
constexpr bool is_proven_at() {
    if constexpr (!expect_schedule_or_family<S>())
        return true;  // the error has been reported
    else if constexpr (schedule<S>)
        return proof_of<S, n>.ok();
    else
        return []<int... C>(std::integer_sequence<int, C...>) {
            return (proven_for<S, static_cast<collective>(C), n>() && ...);
        }(std::make_integer_sequence<int, collective_count>{});
}
template <class S, int n>
inline constexpr bool proven_once = is_proven_at<S, n>();

/// S, or a collective of the family S, supports n ranks.
template <class S, int n>
constexpr bool is_made_for() {
    if constexpr (!expect_schedule_or_family<S>())
        return true;  // the error has been reported
    else if constexpr (schedule<S>)
        return v1::supports(S{}, n);
    else
        return []<int... C>(std::integer_sequence<int, C...>) {
            return ([] {
                if constexpr (provides<S, static_cast<collective>(C)>)
                    return v1::supports(schedule_for<S, static_cast<collective>(C)>{}, n);
                else
                    return false;
            }() || ...);
        }(std::make_integer_sequence<int, collective_count>{});
}

/// Whether in rank order, and by which expressions.
struct combining {
    bool in_order = false;
    fold_properties folds;
};
constexpr combining combining_at(const schedule_reader& s, int n) {
    symbolic_execution e(s, n, true);
    return e.run().ok() ? combining{e.in_rank_order(), e.folds()} : combining{};
}
template <class S>
constexpr combining combining_of(const S& s, int n) {
    return v1::supports(s, n) ? combining_at(reader_of<S>(s), n)
                              : combining{true, {.one_expression = true, .single_fold = true}};
}
// Likewise.
template <class S, int n>
inline constexpr combining combines = combining_of(S{}, n);

/// What holds at every group size from 2 to 8 that S supports.
template <class S>
inline constexpr combining combines_at_small_sizes = []<int... i>(std::integer_sequence<int, i...>) {
    return combining{
        (combines<S, i + 2>.in_order && ...), {.one_expression = (combines<S, i + 2>.folds.one_expression && ...),
                                                  .single_fold = (combines<S, i + 2>.folds.single_fold && ...)}};
}(std::make_integer_sequence<int, 7>{});

}  // namespace colls::inline v1::detail
