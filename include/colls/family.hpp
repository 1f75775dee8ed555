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
// A schedule that is no family implements the one collective that it names; nothing is derived from it.
#pragma once

#include <colls/schedule_of.hpp>

namespace colls::inline v1 {

/// A trivially copyable type that is no schedule itself and provides some: named as nested types called like the
/// collectives (`struct ring { struct reduce_scatter {...}; };`), or made from the family's state by a member
/// `template <collective C> constexpr auto make() const`.
template <class F>
concept family = detail::names_schedules<std::remove_cvref_t<F>>();

}  // namespace colls::inline v1

// What derived schedules are made of, which itself needs the declarations above.
#include <colls/algebra/compose.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/algebra/synchronising.hpp>
