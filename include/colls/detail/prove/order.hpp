// How a schedule combines contributions, as constants: whether in rank order, and by which expressions.
// IWYU pragma: private, include <colls/verify/properties.hpp>
#pragma once

#include <colls/detail/prove/symbolic_execution.hpp>

#include <utility>

namespace colls::inline v1::detail {

constexpr bool keeps_order(const schedule_reader& s, int n) {
    if (!s.supports(n)) return true;
    symbolic_execution e(s, n, true);
    return e.run().ok() && e.in_rank_order();
}

struct order_finding {
    bool kept = false;
};
template <class S>
constexpr order_finding order_at(const S& s, int n) {
    return {keeps_order(reader_of<S>(s), n)};
}
// A class, initialised by a call with arguments: g++ evaluates it once.
template <class S, int n>
inline constexpr order_finding order_of = order_at(S{}, n);

constexpr fold_properties folds(const schedule_reader& s, int n) {
    symbolic_execution e(s, n, true);
    return e.run().ok() ? e.folds() : fold_properties{};
}
template <class S>
constexpr fold_properties folds_at(const S& s, int n) {
    const reader_of<S> reader(s);
    return reader.supports(n) ? folds(reader, n) : fold_properties{.one_expression = true, .single_fold = true};
}
template <class S, int n>
inline constexpr fold_properties folds_of = folds_at(S{}, n);

template <class S, class N>
inline constexpr bool has_one_expression = false;
template <class S, int... i>
inline constexpr bool has_one_expression<S, std::integer_sequence<int, i...>> =
    (folds_of<S, i + 2>.one_expression && ...);
template <class S, class N>
inline constexpr bool is_single_fold = false;
template <class S, int... i>
inline constexpr bool is_single_fold<S, std::integer_sequence<int, i...>> = (folds_of<S, i + 2>.single_fold && ...);

template <class S, class N>
inline constexpr bool order_kept = false;
template <class S, int... i>
inline constexpr bool order_kept<S, std::integer_sequence<int, i...>> = (order_of<S, i + 2>.kept && ...);

}  // namespace colls::inline v1::detail
