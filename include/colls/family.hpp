// How a family's schedules are found, and derived where it does not name them: the one place for both.
#pragma once

#include <colls/algebra/compose.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/algebra/synchronising.hpp>
#include <colls/detail/derive/combinator.hpp>

namespace colls::inline v1::detail {

/// "No such schedule", as a type.
struct underivable {};
template <class S>
inline constexpr bool derived = !std::is_same_v<S, underivable>;

/// The type that a family nests under the name of a collective.
template <class F, collective C>
struct nested {
    using type = underivable;
};
template <class F>
    requires requires { typename F::broadcast; }
struct nested<F, collective::broadcast> {
    using type = typename F::broadcast;
};
template <class F>
    requires requires { typename F::scatter; }
struct nested<F, collective::scatter> {
    using type = typename F::scatter;
};
template <class F>
    requires requires { typename F::gather; }
struct nested<F, collective::gather> {
    using type = typename F::gather;
};
template <class F>
    requires requires { typename F::all_gather; }
struct nested<F, collective::all_gather> {
    using type = typename F::all_gather;
};
template <class F>
    requires requires { typename F::reduce; }
struct nested<F, collective::reduce> {
    using type = typename F::reduce;
};
template <class F>
    requires requires { typename F::reduce_scatter; }
struct nested<F, collective::reduce_scatter> {
    using type = typename F::reduce_scatter;
};
template <class F>
    requires requires { typename F::all_reduce; }
struct nested<F, collective::all_reduce> {
    using type = typename F::all_reduce;
};
template <class F>
    requires requires { typename F::all_to_all; }
struct nested<F, collective::all_to_all> {
    using type = typename F::all_to_all;
};
template <class F>
    requires requires { typename F::barrier; }
struct nested<F, collective::barrier> {
    using type = typename F::barrier;
};
template <class F>
    requires requires { typename F::inclusive_scan; }
struct nested<F, collective::inclusive_scan> {
    using type = typename F::inclusive_scan;
};
template <class F>
    requires requires { typename F::exclusive_scan; }
struct nested<F, collective::exclusive_scan> {
    using type = typename F::exclusive_scan;
};

/// What f names for C.
template <collective C, class F>
constexpr auto named(const F& f) {
    if constexpr (schedule<F>) {
        if constexpr (implemented_by<F> == C)
            return f;
        else
            return underivable{};
    } else if constexpr (requires { f.template make<C>(); }) {
        return f.template make<C>();
    } else {
        return typename nested<F, C>::type{};
    }
}
template <class F, collective C>
using named_for = decltype(named<C>(std::declval<const F&>()));

/// What f names for C, or else the reverse of what it names for C's dual.
template <collective C, class F>
constexpr auto named_or_reversed(const F& f) {
    if constexpr (derived<named_for<F, C>> || schedule<F> || dual(C) == C) {
        return named<C>(f);
    } else if constexpr (derived<named_for<F, dual(C)>>) {
        if constexpr (reversible<named_for<F, dual(C)>>)
            return reversed_of(named<dual(C)>(f));
        else
            return underivable{};
    } else {
        return underivable{};
    }
}
template <class F, collective C>
using plain_for = decltype(named_or_reversed<C>(std::declval<const F&>()));

template <class F, collective A, collective B>
constexpr bool composes() {
    if constexpr (derived<plain_for<F, A>> && derived<plain_for<F, B>>)
        return composable<plain_for<F, A>, plain_for<F, B>>();
    else
        return false;
}

/// The whole rule, but for barriers made of an all_reduce. A plain schedule derives nothing.
template <collective C, class F>
constexpr auto derive(const F& f) {
    using enum collective;
    if constexpr (schedule<F> || derived<plain_for<F, C>>) {
        return named_or_reversed<C>(f);
    } else if constexpr (C == all_reduce && composes<F, reduce_scatter, all_gather>()) {
        return compose{named_or_reversed<reduce_scatter>(f), named_or_reversed<all_gather>(f)};
    } else if constexpr (C == all_reduce && composes<F, reduce, broadcast>()) {
        return compose{named_or_reversed<reduce>(f), named_or_reversed<broadcast>(f)};
    } else if constexpr (C == broadcast && composes<F, scatter, all_gather>()) {
        return compose{named_or_reversed<scatter>(f), named_or_reversed<all_gather>(f)};
    } else if constexpr (C == reduce && composes<F, reduce_scatter, gather>()) {
        return compose{named_or_reversed<reduce_scatter>(f), named_or_reversed<gather>(f)};
    } else if constexpr (C == barrier && derived<plain_for<F, reduce_scatter>>) {
        return synchronising{named_or_reversed<reduce_scatter>(f)};  // half the rounds of the all_reduce made of it
    } else {
        return underivable{};
    }
}

template <collective C, class F>
constexpr auto derive_all(const F& f) {
    if constexpr (C == collective::barrier && !schedule<F>) {
        if constexpr (derived<decltype(derive<C>(f))>)
            return derive<C>(f);
        else if constexpr (derived<decltype(derive<collective::all_reduce>(f))>)
            return synchronising{derive<collective::all_reduce>(f)};
        else
            return underivable{};
    } else {
        return derive<C>(f);
    }
}

template <class F, collective C>
struct derivation {
    static constexpr bool exists = derived<decltype(derive_all<C>(std::declval<const F&>()))>;
    static constexpr auto make(const F& f) { return derive_all<C>(f); }
};

}  // namespace colls::inline v1::detail
