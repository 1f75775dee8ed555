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

#include <colls/detail/derive/expect.hpp>
#include <colls/family.hpp>
#include <colls/verify/properties.hpp>

#include <utility>

namespace colls::inline v1 {

namespace detail {
/// From this group size on (masks of several words) it pays to look for symmetry first.
inline constexpr int symmetry_from = 65;

[[gnu::cold]] [[gnu::noinline]] constexpr report verify(const schedule_reader& s, int n) {
    if (n >= symmetry_from)
        if (symmetric_execution e(s, n); e.applies()) return e.run();
    return symbolic_execution(s, n).run();
}
}  // namespace detail

/// Checks every law of s in a group of n ranks: the first finding, or ok(). constexpr. Plays all ranks in
/// O(blocks moved · n / 64) steps; where every rank does the same but for a translation, n > 64: rank 0 alone, and
/// finds what it finds there.
template <class S>
constexpr report verify(const S& s, int n) {
    if constexpr (detail::expect_readable<S>())
        return detail::verify(detail::reader_of<S>(s), n);
    else
        return {};
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
    if constexpr (detail::expect_readable<S>()) {
        const detail::reader_of<S> reader(s);
        detail::symbolic_execution e(reader, n, reduces(reader.kind()));
        const report proof = e.run();
        return {proof, proof.ok() && e.in_rank_order(), e.staged_rounds()};
    } else {
        return {};
    }
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
    if constexpr (!expect_schedule_or_family<S>())
        return true;  // has been said; nothing more about it
    else if constexpr (schedule<S>)
        return proof_of<S, n>.ok();
    else
        return family_proven<S, n, std::make_integer_sequence<int, collective_count>>;
}
template <class S, int n>
inline constexpr bool proven_once = is_proven_at<S, n>();

template <class S, class N>
inline constexpr bool proven_upto = false;
template <class S, int... i>
inline constexpr bool proven_upto<S, std::integer_sequence<int, i...>> = (proven_once<S, i + 1> && ...);

// What a compiler's message shows of a report: law_broken<...>, with the fields of the report that apply.
namespace where {
template <law>
struct law_is;
template <collective>
struct schedule_for;
template <int>
struct group_of;
template <int>
struct in_round;
template <int>
struct at_rank;
template <int>
struct on_port;
template <int>
struct block;
template <int>
struct peer;
template <int>
struct peer_block;
template <int>
struct received;
template <int>
struct sent;
template <int>
struct value;
template <int>
struct limit;
template <int>
struct contribution_of;
template <int>
struct holds_block;
}  // namespace where

/// verify<S>(n).text() says in words what this says in types. No bool: to use it as one is the error.
template <class... Where>
struct law_broken {
    template <class... More>
    constexpr law_broken<Where..., More...> operator+(law_broken<More...>) const {
        return {};
    }
};
template <template <int> class Where, int i, bool applies = i != none>
using where_if = std::conditional_t<applies, law_broken<Where<i>>, law_broken<>>;

template <collective C, const report& r>
constexpr auto name_broken() {
    return law_broken<where::law_is<r.law>, where::schedule_for<C>, where::group_of<r.n>>{} +
           where_if<where::in_round, r.round>{} + where_if<where::at_rank, r.rank>{} +
           where_if<where::on_port, r.port>{} +
           where_if<where::block, r.block, r.block != none || r.kind == fault::block>{} +
           where_if<where::peer, r.peer>{} + where_if<where::peer_block, r.peer_block>{} +
           where_if<where::received, r.received>{} + where_if<where::sent, r.sent>{} +
           where_if<where::value, r.value, r.value != none || r.kind == fault::extent>{} +
           where_if<where::limit, r.limit>{} + where_if<where::contribution_of, r.source>{} +
           where_if<where::holds_block, r.held>{};
}
template <class F, int n, int... C>
constexpr auto name_broken_of(std::integer_sequence<int, C...>) {
    constexpr int first = [](int c) {
        static_cast<void>(((c = C, proven_for<F, static_cast<collective>(C), n>()) && ...));
        return c;
    }(0);
    constexpr auto broken = static_cast<collective>(first);
    return name_broken<broken, proof_of<schedule_for<F, broken>, n>>();
}
/// law_broken<...> at the smallest of the group sizes that is broken.
template <class S, int... n>
constexpr auto first_broken(std::integer_sequence<int, n...>) {
    constexpr int first = [](int smallest) {
        static_cast<void>(((smallest = n + 1, proven_once<S, n + 1>) && ...));
        return smallest;
    }(0);
    if constexpr (schedule<S>)
        return name_broken<implemented_by<S>, proof_of<S, first>>();
    else
        return name_broken_of<S, first>(std::make_integer_sequence<int, collective_count>{});
}

struct no_law_broken {};
template <class S, int N>
constexpr auto proof_upto() {
    using sizes = std::make_integer_sequence<int, N>;
    if constexpr (proven_upto<S, sizes>)
        return no_law_broken{};
    else
        return first_broken<S>(sizes{});
}
template <class Proof>
concept no_law_is_broken = std::is_same_v<Proof, no_law_broken>;
}  // namespace detail

/// The laws hold for S at n ranks, or S does not support n. S is a schedule, or a family: then for each collective that
/// it provides. An evaluation of its own, so that a compiler's limits on constant evaluation hold per group size.
template <class S, int n>
inline constexpr bool proven_at = detail::proven_once<S, n>;

/// The laws hold for S at every supported group size from 1 to N: static_assert(colls::proven<my_schedule, 16>);
/// A concept, so that a compiler says why it is false: a note names law_broken<...>, what is broken and where, at the
/// smallest such group size. prove<S, N>() has it in the first line; verify<S>(n).text() gives it in words.
template <class S, int N>
concept proven = detail::no_law_is_broken<decltype(detail::proof_upto<S, N>())>;

/// As proven<S, N>, but what fails to hold is a compile error whose first line names law, group size, round, rank and
/// blocks: static_assert(colls::prove<my_schedule, 16>());
template <class S, int N>
    requires proven<S, N>
constexpr bool prove() {
    return true;
}
template <class S, int N>
constexpr auto prove() {
    return detail::proof_upto<S, N>();
}

}  // namespace colls::inline v1
