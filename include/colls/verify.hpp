// The proof: a schedule is run symbolically for every rank, at compile time or at run time by the same code.
//
// Laws, for a group of n (numbers as in the documentation):
//   1  in_range      peers, blocks, slots and extents exist; nothing undefined is sent or reduced into
//   2  matched       each send meets a receive of as many blocks, on the same port of the same round
//   3  exactly_once  no contribution is reduced twice into one slot
//   3b unmixed       a reduction joins contributions to the same block only
//   4  complete      the collective's postcondition holds (barrier: every rank has heard of every rank)
//   5  live          no deadlock with channels that hold one message: follows from law 2. A theorem, by induction on the
//                    smallest unfinished round k: a rank at k finds every channel that it sends on empty, since by law 2
//                    the message of any earlier round j < k was received in round j, which its receiver has finished;
//                    so all sends of round k are posted, hence all its receives complete.
//                    (testing/schedule.hpp also plays it in an executor's order.)
//   6  hazards       no two copies land in one slot in one round. A receive into a slot that the same round sends is
//                    legal, and derived: `overwrites_sent`, `properties::staged_rounds`.
#pragma once

#include <colls/verify/engine.hpp>

#include <utility>

namespace colls::inline v1 {

/// Checks every law of `s` in a group of n ranks: the first finding, or ok(). constexpr. Cost: about 50 operations per
/// block moved, times n/64 words.
template <class S>
constexpr report verify(const S& s, int n) {
    return detail::engine(detail::reader_of<S>(s), n).run();
}
template <class S>
constexpr report verify(int n) {
    return verify(S{}, n);
}

namespace detail {
template <class S>
constexpr report proof_at(const S& s, int n) {
    return v1::supports(s, n) ? verify(s, n) : report{.n = n};
}
// Initialised by a call with arguments: g++ evaluates one without them twice.
template <class S, int n>
inline constexpr report proof_of = proof_at(S{}, n);
}  // namespace detail

/// The laws hold for S at n ranks, or S does not support n. An evaluation of its own, so that a compiler's limits on
/// constant evaluation hold per group size.
template <class S, int n>
inline constexpr bool proven_at = detail::proof_of<S, n>.ok();

namespace detail {
template <class S, int... i>
constexpr bool proven_upto(std::integer_sequence<int, i...>) {
    return (proven_at<S, i + 1> && ...);
}
}  // namespace detail

/// The laws hold for S at every supported group size from 1 to N: static_assert(colls::proven<my_schedule, 16>);
template <class S, int N>
inline constexpr bool proven = detail::proven_upto<S>(std::make_integer_sequence<int, N>{});

}  // namespace colls::inline v1
