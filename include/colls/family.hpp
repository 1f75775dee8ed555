// A family: one algorithm, with its schedules for several collectives.
//
// A family names the schedules that the algorithm gives directly; the library derives others by the algebra. f has a
// schedule for collective C (schedule_of<C>(f), provides<F, C>) by the first of these rules that applies:
//   1. f.make<C>(), where F has such a member and it accepts C;
//   2. F::C, a nested type called like the collective, default-constructed;
//   3. reversed<S>, where F names (rules 1, 2) a schedule S for dual(C) that can be reversed;
//   4. all_reduce   compose<reduce_scatter, all_gather>, else compose<reduce, broadcast>
//      broadcast    compose<scatter, all_gather>
//      reduce       compose<reduce_scatter, gather>
//      barrier      synchronising<reduce_scatter>, else synchronising<all_reduce>
//      where rules 1 to 3 give both parts, and the parts agree on which rank owns which block.
// A schedule that is not a family implements the one collective that it names; nothing is derived from it.
#pragma once

#include <colls/detail/derive/derivation.hpp>
#include <colls/schedule.hpp>

#include <type_traits>
#include <utility>

namespace colls::inline v1 {

/// A trivially copyable type that is not a schedule itself and provides some: named as nested types called like the
/// collectives (`struct ring { struct reduce_scatter {...}; };`), or made from the family's state by a member
/// `template <collective C> constexpr auto make() const`.
template <class F>
concept family = detail::names_schedules<std::remove_cvref_t<F>>();

/// True where F, a family or a schedule, has a schedule for collective C, directly or derived (family.hpp).
template <class F, collective C>
inline constexpr bool provides = detail::derivation<std::remove_cvref_t<F>, C>::exists;

/// The schedule with which f implements C. A schedule that implements C is its own. A family's is what it names, or
/// what is derived from that, by the rules of family.hpp. A compile error where there is none.
template <collective C, class F>
constexpr auto schedule_of(const F& f) {
    static_assert(provides<F, C>,
        "colls: schedule_of<C>(f): f names no schedule for this collective, and none can be "
        "derived from those it names");
    return detail::derivation<F, C>::make(f);
}

/// The type of schedule_of<C>(F{}).
template <class F, collective C>
using schedule_for = decltype(schedule_of<C>(std::declval<const std::remove_cvref_t<F>&>()));

}  // namespace colls::inline v1

// What derived schedules are made of, which itself needs the declarations above.
#include <colls/algebra/compose.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/algebra/synchronising.hpp>
