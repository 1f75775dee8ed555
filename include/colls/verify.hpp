// The proof: a schedule is executed symbolically for every rank, at compile time or at run time by the same code.
//
// Laws, for a group of n ranks:
//   1  in_range      Every peer is a rank of the group, every block is a slot of its rank, and no extent (rounds,
//                    blocks, ports, scratch) is negative; a rank sends, and reduces into, only slots that hold data.
//   2  matched       Each send meets a receive of as many blocks at its peer, on the same port of the same round.
//   3  exactly_once  No contribution is reduced twice into one slot.
//   3b unmixed       A reduction combines contributions to the same block only.
//   4  complete      After the last round each rank holds the result of the collective. (Barrier: each rank depends on
//                    every rank.)
//   5  live          No rank waits for ever, even if each channel (source, destination, port) holds one message only.
//                    This follows from law 2 by induction on the smallest unfinished round k: a rank in round k finds
//                    each channel that it sends on empty, since the message of any round j < k was received in round j
//                    (law 2), which its receiver has finished. So all sends of round k are posted, and all its receives
//                    complete. (testing/schedule.hpp also checks it, by playing the exchange.)
//   6  hazards       No two copies arrive in one slot in one round. A receive into a slot that is sent in the same
//                    round is legal: executors stage it (overwrites_sent, properties::staged_rounds).
#pragma once

#include <colls/detail/prove/law_broken.hpp>
#include <colls/detail/prove/proof.hpp>
#include <colls/verify/properties.hpp>
#include <colls/verify/report.hpp>

namespace colls::inline v1 {

/// Checks every law of s in a group of n ranks. Returns the first finding, or a report that is ok(). Executes all ranks
/// in O(blocks moved * n / 64) steps. Where n > 64 and every rank does the same but for a translation, it executes rank
/// 0 alone, and findings name rank 0.
template <class S>
constexpr report verify(const S& s, int n) {
    return detail::run_proof(detail::readable(s), n);
}
/// verify(S{}, n).
template <class S>
constexpr report verify(int n) {
    return verify(S{}, n);
}

/// An examination, in one symbolic execution.
template <class S>
constexpr examination examine(const S& s, int n) {
    return detail::examined(detail::readable(s), n);
}

/// True where the laws hold for S at n ranks, or S does not support n. S is a schedule, or a family: then this holds
/// for each collective that it provides. Each (S, n) is a constant evaluation of its own, with the compiler's full
/// limits.
template <class S, int n>
inline constexpr bool proven_at = detail::evidence_at<S, n>.ok();

/// The laws hold for S at every supported group size from 1 to N, at least one:
/// static_assert(colls::proven<my_schedule, 16>);
/// A concept, so that a compiler explains why it is false: a note names law_broken<...>, with the law, the place and
/// the smallest such group size. prove<S, N>() has that in the first line; verify<S>(n).text() gives it in words.
template <class S, int N>
concept proven = detail::no_law_is_broken<decltype(detail::proof_upto<S, N>())>;

/// As proven<S, N>, but what fails to hold is a compile error whose first line names law, group size, round, rank and
/// blocks: static_assert(colls::prove<my_schedule, 16>());
template <class S, int N>
    requires proven<S, N>
constexpr bool prove() {
    return true;
}
/// The overload that names what is broken: it is not a constant expression of type bool.
template <class S, int N>
constexpr auto prove() {
#ifdef __CUDACC__  // nvcc names what it instantiates, but not a type that should be a bool
    return detail::refuted(detail::proof_upto<S, N>());
#else
    return detail::proof_upto<S, N>();
#endif
}

}  // namespace colls::inline v1
