// reversed<S>: a schedule run backwards in time.
#pragma once

#include <colls/detail/derive/combinator.hpp>

namespace colls::inline v1 {

namespace detail {
/// True for the collectives that have a dual.
constexpr bool has_dual(collective c) {
    return owned(c) || rooted(c) || c == collective::all_to_all || c == collective::barrier;
}
}  // namespace detail

/// The collective that a schedule for c implements when it runs backwards. c itself where there is none.
constexpr collective dual(collective c) {
    switch (c) {
        case collective::broadcast:
            return collective::reduce;
        case collective::reduce:
            return collective::broadcast;
        case collective::scatter:
            return collective::gather;
        case collective::gather:
            return collective::scatter;
        case collective::all_gather:
            return collective::reduce_scatter;
        case collective::reduce_scatter:
            return collective::all_gather;
        default:
            return c;
    }
}

namespace detail {

template <class S>
struct reversal;
template <class F>
struct reversed_family;

/// What reversed<S> is. Combinators specialise it, to be reversed part by part: `apply` does for values what `type`
/// does for types, and `possible` says whether every part can be.
template <class S>
struct reverse_trait {
    static constexpr bool possible = [] {
        if constexpr (schedule<S>)
            return has_dual(implemented_by<S>) && !requires(const S& s, int n) { s.scratch(n); };
        else
            return family<S>;
    }();
    using type = std::conditional_t<schedule<S>, reversal<S>, reversed_family<S>>;
    static constexpr type apply(const S& s) { return {s}; }
};
template <template <class> class Reversal, class S>
struct unreverse_trait {
    static constexpr bool possible = true;
    using type = S;
    static constexpr S apply(const Reversal<S>& r) { return r.inner(); }
};
template <class S>
struct reverse_trait<reversal<S>> : unreverse_trait<reversal, S> {};
template <class F>
struct reverse_trait<reversed_family<F>> : unreverse_trait<reversed_family, F> {};

template <class S>
inline constexpr bool reversible = reverse_trait<S>::possible;

}  // namespace detail

/// S backwards: sends become receives, the last round the first, input output. What it implements is dual(S's):
/// reduce_scatter <-> all_gather, broadcast <-> reduce, scatter <-> gather; all_to_all and barrier remain. Received
/// blocks are reduced where that collective reduces, else they replace. Of a family: its schedules, each reversed.
/// Law: reversed<reversed<S>> is S; reversed<compose<A, B>> is compose<reversed<B>, reversed<A>>; rounds, ports and
/// blocks moved are those of S. Recursive doubling and scans have no reverse: a compile error.
template <class S>
using reversed = typename detail::reverse_trait<S>::type;

/// reversed<S> of a value, with its state.
template <class S>
constexpr reversed<S> reversed_of(const S& s) {
    return detail::reverse_trait<S>::apply(s);
}

namespace detail {

template <class S>
struct reversal : part<S> {
    static_assert(reversible<S>,
        "colls: reversed<S>: S implements an all_reduce that is no composition, or a scan, or uses scratch "
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

template <class F>
struct reversed_family : part<F> {
    static_assert(family<F>, "colls: reversed<S>: S is neither a schedule nor a family");
    constexpr decltype(auto) inner() const { return part<F>::get(); }

    template <collective C>
        requires(provides<F, dual(C)> && reversible<schedule_for<F, dual(C)>>)
    constexpr auto make() const {
        return reversed_of(schedule_of<dual(C)>(inner()));
    }
};

}  // namespace detail
}  // namespace colls::inline v1
