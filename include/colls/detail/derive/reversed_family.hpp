// A family whose schedules run backwards in time: what reversed<F> of a family is.
// IWYU pragma: private, include <colls/algebra/reversed.hpp>
#pragma once

#include <colls/detail/derive/reversal.hpp>
#include <colls/family.hpp>

namespace colls::inline v1::detail {

template <class F>
struct reversed_family : part<F> {
    static_assert(family<F>, "colls: reversed<S>: S is neither a schedule nor a family");
    constexpr decltype(auto) inner() const { return part<F>::get(); }

    template <collective C>
        requires(provides<F, dual(C)> && reversible<schedule_for<F, dual(C)>>)
    constexpr auto make() const {
        return reverse(schedule_of<dual(C)>(inner()));
    }
};

template <class F>
    requires(!schedule<F>)
struct reverse_trait<F> {
    static constexpr bool possible = family<F>;
    using type = reversed_family<F>;
    static constexpr type apply(const F& f) { return {f}; }
};
template <class F>
struct reverse_trait<reversed_family<F>> : unreverse_trait<reversed_family, F> {};

}  // namespace colls::inline v1::detail
