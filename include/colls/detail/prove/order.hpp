// How a schedule combines contributions, as constants: whether in rank order, and by which expressions.
// IWYU pragma: private, include <colls/verify/properties.hpp>
#pragma once

#include <colls/detail/prove/symbolic_execution.hpp>

#include <utility>

namespace colls::inline v1::detail {

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
    return supports(s, n) ? combining_at(reader_of<S>(s), n)
                          : combining{true, {.one_expression = true, .single_fold = true}};
}
// Initialised by a call with arguments: g++ evaluates one without them twice.
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
