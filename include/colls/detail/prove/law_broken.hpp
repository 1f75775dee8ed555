// What a compiler's message shows of a proof that fails: the report, spelled as a type.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/detail/prove/proof.hpp>

#include <type_traits>
#include <utility>

namespace colls::inline v1::detail {

// The arguments of law_broken<...>: the fields of the report that apply.
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
template <int>
struct supports_no_group_size_up_to;
}  // namespace where

/// A report as a type, which compilers print. It is not convertible to bool, so that a static_assert on it is an error.
template <class... Where>
struct law_broken {
    template <class... More>
    constexpr law_broken<Where..., More...> operator+(law_broken<More...>) const {
        return {};
    }
};
template <template <int> class Where, int i, bool applies = i != none>
using where_if = std::conditional_t<applies, law_broken<Where<i>>, law_broken<>>;

template <const evidence& r>
constexpr auto broken_law() {
    return law_broken<where::law_is<r.law>, where::schedule_for<r.what>, where::group_of<r.n>>{} +
           where_if<where::in_round, r.round>{} + where_if<where::at_rank, r.rank>{} +
           where_if<where::on_port, r.port>{} +
           where_if<where::block, r.block, r.block != none || r.kind == fault::block>{} +
           where_if<where::peer, r.peer>{} + where_if<where::peer_block, r.peer_block>{} +
           where_if<where::received, r.received>{} + where_if<where::sent, r.sent>{} +
           where_if<where::value, r.value, r.value != none || r.kind == fault::extent>{} +
           where_if<where::limit, r.limit>{} + where_if<where::contribution_of, r.source>{} +
           where_if<where::holds_block, r.held>{};
}
struct no_law_broken {};
/// law_broken<...> at the smallest of the group sizes at which a law is broken.
template <class S, int... n>
constexpr auto proof_of_sizes(std::integer_sequence<int, n...>) {
    if constexpr (!(evidence_at<S, n + 1>.supported || ...)) {
        return law_broken<where::supports_no_group_size_up_to<int{sizeof...(n)}>>{};  // nothing would be proven
    } else if constexpr ((evidence_at<S, n + 1>.ok() && ...)) {
        return no_law_broken{};
    } else {
        constexpr int first = [](int smallest) {
            static_cast<void>(((smallest = n + 1, evidence_at<S, n + 1>.ok()) && ...));
            return smallest;
        }(0);
        return broken_law<evidence_at<S, first>>();
    }
}
template <class S, int N>
constexpr auto proof_upto() {
    return proof_of_sizes<S>(std::make_integer_sequence<int, N>{});
}
template <class Proof>
concept no_law_is_broken = std::is_same_v<Proof, no_law_broken>;
template <class Proof>
constexpr bool refuted(Proof) {
    static_assert(
        no_law_is_broken<Proof>, "colls: a law of the proof is broken: law_broken<...> says which, and where");
    return false;
}

}  // namespace colls::inline v1::detail
