// The schedule with which a family implements a collective.
#pragma once

#include <colls/detail/derive/derivation.hpp>
#include <colls/schedule.hpp>

#include <type_traits>
#include <utility>

namespace colls::inline v1 {

/// True where F, a family or a schedule, has a schedule for collective C, be it by derivation (family.hpp).
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

#include <colls/family.hpp>  // and the combinators that derived schedules are made of
