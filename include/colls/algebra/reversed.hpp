// reversed<S>: a schedule run backwards in time.
#pragma once

#include <colls/detail/derive/derivation.hpp>
#include <colls/detail/derive/reversal.hpp>

namespace colls::inline v1 {

/// S backwards in time: sends become receives, the last round becomes the first, the input becomes the output. It
/// implements dual(C) where S implements C: reduce_scatter <-> all_gather, broadcast <-> reduce, scatter <-> gather;
/// all_to_all and barrier stay what they are. Received blocks are reduced where dual(C) reduces, and copied otherwise.
/// reversed of a family is the family of its schedules, each reversed.
///
/// Law:  reversed<reversed<S>> = S
///       reversed<compose<A, B>> = compose<reversed<B>, reversed<A>>
///       rounds, ports and messages are those of S; each rank sends what it receives in S, and receives what it sends.
///
/// A compile error for what has no reverse: recursive doubling (an all_reduce that is not a composition), scans, and
/// schedules with scratch slots.
template <class S>
using reversed = detail::reverse_of<S>;

/// reversed<S> of a value, with its state.
template <class S>
constexpr reversed<S> reversed_of(const S& s) {
    return detail::reverse(s);
}

}  // namespace colls::inline v1
