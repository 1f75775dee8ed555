// The proof: a schedule is run symbolically for every rank, at compile time or at run time by the same code.
//
// Laws, for a group of n (numbers as in the documentation):
//   1  in_range      peers, blocks, slots and extents exist; nothing undefined is sent or reduced into
//   2  matched       each send meets a receive of as many blocks, on the same port of the same round
//   3  exactly_once  no contribution is reduced twice into one slot
//   3b unmixed       a reduction joins contributions to the same block only
//   4  complete      the collective's postcondition holds (barrier: every rank has heard of every rank)
//   5  live          no deadlock with channels that hold one message. Follows from law 2, by induction on the smallest
//                    unfinished round k: a rank at k finds every channel that it sends on empty, since the message of
//                    any earlier round j < k was received in round j (law 2), which its receiver has finished. So all
//                    sends of round k are posted, hence all its receives complete. (testing/schedule.hpp also plays it,
//                    in an executor's order.)
//   6  hazards       no two copies land in one slot in one round. A receive into a slot that the same round sends is
//                    legal, and derived: `overwrites_sent`, `properties::staged_rounds`.
#pragma once

#include <colls/family.hpp>
#include <colls/verify/properties.hpp>

#include <utility>

namespace colls::inline v1 {

namespace detail {
/// From this group size on (masks of several words) it pays to look for symmetry first.
inline constexpr int symmetry_from = 65;

[[gnu::cold]] [[gnu::noinline]] constexpr report verify(const schedule_reader& s, int n) {
    if (n >= symmetry_from)
        if (symmetric_engine e(s, n); e.applies()) return e.run();
    return engine(s, n).run();
}
}  // namespace detail

/// Checks every law of s in a group of n ranks: the first finding, or ok(). constexpr. Plays all ranks in
/// O(blocks moved · n / 64) steps; where every rank does the same but for a translation, n > 64: rank 0 alone, and
/// finds what it finds there.
template <class S>
constexpr report verify(const S& s, int n) {
    return detail::verify(detail::reader_of<S>(s), n);
}
template <class S>
constexpr report verify(int n) {
    return verify(S{}, n);
}

/// What an executor asks before it runs a schedule, found in one go.
struct examination {
    report proof;                   ///< as verify(s, n), by playing every rank
    bool order_preserving = false;  ///< as properties_of(s, n)
    int staged_rounds = 0;          ///< likewise
};
template <class S>
constexpr examination examine(const S& s, int n) {
    const detail::reader_of<S> reader(s);
    detail::engine e(reader, n, reduces(reader.kind()));
    const report proof = e.run();
    return {proof, proof.ok() && e.in_rank_order(), e.staged_rounds()};
}

namespace detail {
template <class S>
constexpr report proof_at(const S& s, int n) {
    return v1::supports(s, n) ? v1::verify(s, n) : report{.n = n};
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
template <class F, int n, class Collectives>
inline constexpr bool family_proven = false;
template <class F, int n, int... C>
inline constexpr bool family_proven<F, n, std::integer_sequence<int, C...>> =
    (proven_for<F, static_cast<collective>(C), n>() && ...);

template <class S, int n>
constexpr bool is_proven_at() {
    if constexpr (schedule<S>)
        return proof_of<S, n>.ok();
    else
        return family_proven<S, n, std::make_integer_sequence<int, collective_count>>;
}
}  // namespace detail

/// The laws hold for S at n ranks, or S does not support n. S is a schedule, or a family: then for each collective that
/// it provides. An evaluation of its own, so that a compiler's limits on constant evaluation hold per group size.
template <class S, int n>
inline constexpr bool proven_at = detail::is_proven_at<S, n>();

namespace detail {
template <class S, class N>
inline constexpr bool proven_upto = false;
template <class S, int... i>
inline constexpr bool proven_upto<S, std::integer_sequence<int, i...>> = (proven_at<S, i + 1> && ...);
}  // namespace detail

/// The laws hold for S at every supported group size from 1 to N: static_assert(colls::proven<my_schedule, 16>);
/// What does not hold, and where: prove<S, N>().
template <class S, int N>
inline constexpr bool proven = detail::proven_upto<S, std::make_integer_sequence<int, N>>;

namespace detail {
template <int>
struct group_of;
template <int>
struct in_round;
template <int>
struct at_rank;
template <int>
struct on_port;
template <int>
struct block_of;
template <int>
struct from_rank;
template <int>
struct its_block;

template <law broken, class...>
struct law_broken {
    static_assert(broken == law::none,
        "colls: the schedule breaks a law: law_broken<...>, above or below, names it, and "
        "where; verify<S>(n).text() says it in words");
    static constexpr bool ok = broken == law::none;
};
template <class S, int n>
constexpr bool prove_at() {
    constexpr const report& r = proof_of<S, n>;
    return law_broken<r.law, group_of<r.n>, in_round<r.round>, at_rank<r.rank>, on_port<r.port>, block_of<r.block>,
        from_rank<r.peer>, its_block<r.other>>::ok;
}
template <class S, int... i>
constexpr bool prove_upto(std::integer_sequence<int, i...>) {
    return (prove_at<S, i + 1>() && ...);
}
}  // namespace detail

/// As proven<S, N>, for a schedule, but what fails to hold is a compile error that names law, group size, round, rank,
/// port and blocks: static_assert(colls::prove<my_schedule, 16>());
template <schedule S, int N>
constexpr bool prove() {
    return detail::prove_upto<S>(std::make_integer_sequence<int, N>{});
}

}  // namespace colls::inline v1
