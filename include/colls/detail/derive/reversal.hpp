// A schedule run backwards in time: what reversed<S> of a schedule is. (Of a family: derivation.hpp.)
// IWYU pragma: private, include <colls/algebra/reversed.hpp>
#pragma once

#include <colls/detail/derive/part.hpp>
#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

/// True for the collectives whose schedules can run backwards.
constexpr bool has_dual(collective c) {
    return owned(c) || rooted(c) || c == collective::all_to_all || c == collective::barrier;
}

template <class S>
struct reversal;

/// What reversed<S> is: `type`; `apply(s)` for a value; `possible`: whether S can be reversed. Combinators specialise
/// it, so that they are reversed part by part.
template <class S>
struct reverse_trait {
    static constexpr bool possible = requires(const S& s, int n) {
        requires schedule<S>;
        requires has_dual(implemented_by<S>) && !requires { s.scratch(n); };
    };
    using type = reversal<S>;
    static constexpr type apply(const S& s) { return {s}; }
};
/// For the reverse of what has been reversed: S itself.
template <template <class> class Reversal, class S>
struct unreverse_trait {
    static constexpr bool possible = true;
    using type = S;
    static constexpr S apply(const Reversal<S>& r) { return r.inner(); }
};
template <class S>
struct reverse_trait<reversal<S>> : unreverse_trait<reversal, S> {};

template <class S>
inline constexpr bool reversible = reverse_trait<S>::possible;
template <class S>
using reverse_of = typename reverse_trait<S>::type;
template <class S>
constexpr reverse_of<S> reverse(const S& s) {
    return reverse_trait<S>::apply(s);
}

template <class S>
struct reversal : part<S> {
    static_assert(reversible<S>,
        "colls: reversed<S>: S implements an all_reduce that is not a composition, or a scan, or uses scratch "
        "slots: run backwards it implements nothing");
    constexpr decltype(auto) inner() const { return part<S>::get(); }

    static constexpr collective implements = dual(implemented_by<S>);
    constexpr int rounds(int n) const { return inner().rounds(n); }
    constexpr int blocks(int n) const { return blocks_of(inner(), n); }
    constexpr int ports(int n) const { return ports_of(inner(), n); }
    constexpr bool supports(int n) const { return colls::supports(inner(), n); }
    constexpr int root(int n) const { return root_of(inner(), n); }
    constexpr int home(int n, int slot) const { return home_of(inner(), n, slot); }
    constexpr int input(int rank, int n, int slot) const { return output_of(inner(), rank, n, slot); }
    constexpr int output(int rank, int n, int slot) const { return input_of(inner(), rank, n, slot); }

    constexpr step at(int rank, int n, int round, int port) const {
        const step s = step_of(inner(), rank, n, rounds(n) - 1 - round, port);
        return {.send = {s.recv.peer, s.recv.blocks},
            .recv = {s.send.peer, s.send.blocks, reduces(implements) ? action::reduce : action::copy}};
    }
};

}  // namespace colls::inline v1::detail
