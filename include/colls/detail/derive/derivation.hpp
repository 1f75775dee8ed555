// How a schedule is found in a family, or derived from the schedules that the family names.
// IWYU pragma: private, include <colls/family.hpp>
#pragma once

#include <colls/detail/derive/recipes.hpp>
#include <colls/detail/derive/reversal.hpp>
#include <colls/schedule.hpp>

#include <type_traits>
#include <utility>

namespace colls::inline v1 {

// What derived schedules are made of. Complete where a derivation is asked for: family.hpp includes them.
template <class A, class B>
struct compose;
template <class S>
struct synchronising;

}  // namespace colls::inline v1

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
#define COLLS_NESTED(name)                      \
    template <class F>                          \
        requires requires { typename F::name; } \
    struct nested<F, collective::name> {        \
        using type = typename F::name;          \
    };
COLLS_NESTED(broadcast)
COLLS_NESTED(scatter)
COLLS_NESTED(gather)
COLLS_NESTED(all_gather)
COLLS_NESTED(reduce)
COLLS_NESTED(reduce_scatter)
COLLS_NESTED(all_reduce)
COLLS_NESTED(all_to_all)
COLLS_NESTED(barrier)
COLLS_NESTED(inclusive_scan)
COLLS_NESTED(exclusive_scan)
#undef COLLS_NESTED

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
    } else if constexpr (requires { requires derived<named_for<F, dual(C)>> && reversible<named_for<F, dual(C)>>; }) {
        return reverse(named<dual(C)>(f));
    } else {
        return underivable{};
    }
}
template <class F, collective C>
using plain_for = decltype(named_or_reversed<C>(std::declval<const F&>()));

template <class F, collective A, collective B>
inline constexpr bool composes = composable<plain_for<F, A>, plain_for<F, B>>();
/// The schedule for A, then the schedule for B.
template <collective A, collective B, class F>
constexpr auto composed(const F& f) {
    return compose<plain_for<F, A>, plain_for<F, B>>{named_or_reversed<A>(f), named_or_reversed<B>(f)};
}

/// The rule that family.hpp documents. A schedule that is no family derives nothing.
template <collective C, class F>
constexpr auto derive(const F& f) {
    using enum collective;
    if constexpr (schedule<F> || derived<plain_for<F, C>>) {
        return named_or_reversed<C>(f);
    } else if constexpr (C == all_reduce && composes<F, reduce_scatter, all_gather>) {
        return composed<reduce_scatter, all_gather>(f);
    } else if constexpr (C == all_reduce && composes<F, reduce, broadcast>) {
        return composed<reduce, broadcast>(f);
    } else if constexpr (C == broadcast && composes<F, scatter, all_gather>) {
        return composed<scatter, all_gather>(f);
    } else if constexpr (C == reduce && composes<F, reduce_scatter, gather>) {
        return composed<reduce_scatter, gather>(f);
    } else if constexpr (C == barrier && derived<plain_for<F, reduce_scatter>>) {
        // Half the rounds of a barrier made of the all_reduce.
        return synchronising<plain_for<F, reduce_scatter>>{named_or_reversed<reduce_scatter>(f)};
    } else if constexpr (C == barrier) {
        using whole = decltype(derive<all_reduce>(f));
        if constexpr (derived<whole>)
            return synchronising<whole>{derive<all_reduce>(f)};
        else
            return underivable{};
    } else {
        return underivable{};
    }
}

/// How F, a family or a schedule, comes by a schedule for C.
template <class F, collective C>
struct derivation {
    using type = decltype(derive<C>(std::declval<const F&>()));
    static constexpr bool exists = derived<type>;
    static constexpr auto make(const F& f) { return derive<C>(f); }
};

/// The first recipe for C whose parts A and B provide, and whose schedules fit together; or none.
template <class A, class B, collective C, int I = 0>
constexpr int family_recipe() {
    if constexpr (I == recipe_count) {
        return none;
    } else {
        constexpr recipe r = recipes[I];
        if constexpr (r.result == C) {
            using first = typename derivation<A, r.first>::type;
            using second = typename derivation<B, r.second>::type;
            if constexpr (composable<first, second>()) return I;
        }
        return family_recipe<A, B, C, I + 1>();
    }
}

/// Whether F is a family: no schedule itself, and provides some.
template <class F>
constexpr bool names_schedules() {
    if constexpr (schedule<F> || !std::is_trivially_copyable_v<F>)
        return false;
    else
        return []<int... C>(std::integer_sequence<int, C...>) {
            return (derivation<F, static_cast<collective>(C)>::exists || ...);
        }(std::make_integer_sequence<int, collective_count>{});
}

/// A family whose schedules run backwards in time: what reversed<F> of a family is.
template <class F>
struct reversed_family : part<F> {
    static_assert(names_schedules<F>(), "colls: reversed<S>: S is neither a schedule nor a family");
    constexpr decltype(auto) inner() const { return part<F>::get(); }

    template <collective C>
        requires(reversible<typename derivation<F, dual(C)>::type>)
    constexpr auto make() const {
        return reverse(derivation<F, dual(C)>::make(inner()));
    }
};

template <class F>
    requires(!schedule<F>)
struct reverse_trait<F> {
    static constexpr bool possible = names_schedules<F>();
    using type = reversed_family<F>;
    static constexpr type apply(const F& f) { return {f}; }
};
template <class F>
struct reverse_trait<reversed_family<F>> : unreverse_trait<reversed_family, F> {};

}  // namespace colls::inline v1::detail
