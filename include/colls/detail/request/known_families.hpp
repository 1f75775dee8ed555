// The list of families that `automatic` chooses from, each with its name.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/support/type_name.hpp>
#include <colls/schedules.hpp>

#include <array>
#include <string_view>
#include <type_traits>

namespace colls::inline v1::detail {

/// The name of a family, by which COLLS_SCHEDULE and explanations know it, is its type as users write it.
template <class... Family>
struct family_list {
    template <class F>
    static constexpr bool holds = (std::is_same_v<F, Family> || ...);

    /// Calls f(F{}, name) for each family, in the order of the list.
    template <class F>
    static constexpr void for_each(F f) {
        (f(Family{}, written_name<Family>()), ...);
    }
    /// Their names, in the same order.
    static std::array<std::string_view, sizeof...(Family)> names() { return {written_name<Family>()...}; }
    /// How many of them have a schedule for the collective.
    template <collective C>
    static constexpr int count_of = (0 + ... + int{provides<Family, C>});
};

/// In order of preference where predictions are equal. `direct` alone keeps the order of ranks at every group size.
using known_families = family_list<direct, ring, circulant<>, halving_doubling, recursive_doubling, distance_doubling,
    one_shot, fan_in, tree<2>, tree<4>, double_tree, bruck<2>, swing, bine, pat<1>, pipelined_broadcast>;

/// Each schedule of the family that reduces folds all contributions at once, in rank order, at every group size
/// (fold_properties::single_fold). That is what the proof finds, as a table, so that programs need not compile the
/// proof of these families; tests/exact/reproducible_test.cpp compares the two.
template <class Family>
inline constexpr bool folds_once = family_list<direct, one_shot, fan_in>::holds<Family>;

/// Every rank does the same up to rotation, in each schedule of the family that is neither rooted nor a scan, at every
/// group size (properties::symmetric). Also what the proof finds, as a table; tests/plans/scale_test.cpp compares the
/// two.
template <class Family>
inline constexpr bool rotates = family_list<direct, ring, circulant<>, one_shot, bruck<2>, pat<1>>::holds<Family>;

/// The name of the eager path among those of schedules, in texts and in COLLS_SCHEDULE.
inline constexpr std::string_view eager_name = "eager";

/// Made once.
inline const auto& known_names() {
    static const auto names = known_families::names();
    return names;
}

}  // namespace colls::inline v1::detail
