// Whether a schedule combines contributions in rank order, as constants.
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

template <class S, class N>
inline constexpr bool order_kept = false;
template <class S, int... i>
inline constexpr bool order_kept<S, std::integer_sequence<int, i...>> = (order_of<S, i + 2>.kept && ...);

}  // namespace colls::inline v1::detail
