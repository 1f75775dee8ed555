// Where the schedule of a call comes from: it is given, or the best of several candidates.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/any_schedule.hpp>

#include <string_view>
#include <utility>

namespace colls::inline v1::detail {

/// A schedule that `automatic` may choose.
struct candidate {
    std::string_view name;
    any_schedule schedule;
    bool single_fold = false;  ///< at every group size (fold_properties.hpp)
    int period = 0;            ///< rank r + period does the same as rank r, moved on by as much; 0: not known
};
struct candidates {
    const candidate* first = nullptr;
    int count = 0;
};

/// The schedules of the known families for one collective, made at the first call.
template <collective C>
[[gnu::cold]] candidates candidates_for();

/// That function, of a collective that is known at run time. A template, so that programs that do not call it do not
/// compile the candidates of all collectives.
template <int count = collective_count>
auto list_of_candidates(collective what) -> candidates (*)() {
    return [what]<int... C>(std::integer_sequence<int, C...>) {
        static constexpr candidates (*all[])() = {&candidates_for<static_cast<collective>(C)>...};
        return all[static_cast<int>(what)];
    }(std::make_integer_sequence<int, count>{});
}

struct chooser {
    const any_schedule* given = nullptr;    ///< null: one of the candidates
    const any_schedule* instead = nullptr;  ///< runs in place of `given`, once that has been checked
    bool reproducible = false;              ///< the call has the constraint colls::reproducible
};

}  // namespace colls::inline v1::detail
