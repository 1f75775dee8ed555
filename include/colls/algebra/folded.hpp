// folded<S>: a schedule for powers of two, extended to all group sizes.
#pragma once

#include <colls/detail/derive/folding.hpp>

namespace colls::inline v1 {

/// S for every n, where S supports powers of two only. With p the largest of them (n itself if S supports it) and e =
/// n - p, ranks 0 ... 2e - 1 form pairs (2i, 2i + 1): the odd rank passes its part to the even one, which runs S with
/// the ranks that have no partner, and passes the result back at the end. Combines in rank order where S does. For
/// all_reduce, reduce_scatter, all_gather, broadcast, reduce, scatter, gather and barrier; all_to_all and scans are a
/// compile error. folded of a family is the family of those of its schedules that fold.
///
/// Law:  at a size that S supports, folded<S> = S; at any other, rounds = rounds(S, p) + 2 (rooted: + 1).
///       Fold outside a composition: folded<compose<A, B>> adds two rounds, compose<folded<A>, folded<B>> four.
template <class S>
using folded = decltype(detail::fold_value(std::declval<const S&>()));

/// folded<S> of a value, with its state.
template <class S>
constexpr folded<S> folded_of(const S& s) {
    return detail::fold_value(s);
}

}  // namespace colls::inline v1
