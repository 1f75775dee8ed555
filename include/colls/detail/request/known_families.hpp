// The list of families that `automatic` chooses from, each with its name.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/schedules.hpp>

#include <string_view>
#include <type_traits>

namespace colls::inline v1::detail {

/// A family, and the name by which COLLS_SCHEDULE and explanations know it.
template <class Family>
struct known_family {
    std::string_view name;
};

template <class... Family>
struct family_list : known_family<Family>... {
    template <class F>
    static constexpr bool holds = std::is_base_of_v<known_family<F>, family_list>;

    template <class F>
    constexpr std::string_view name_of() const {
        return static_cast<const known_family<F>&>(*this).name;
    }
    /// Calls f(F{}, name) for each family, in the order of the list.
    template <class F>
    constexpr void for_each(F f) const {
        (f(Family{}, name_of<Family>()), ...);
    }
    struct name_list {
        std::string_view all[sizeof...(Family)];
        constexpr const std::string_view* begin() const { return all; }
        constexpr const std::string_view* end() const { return all + sizeof...(Family); }
    };
    constexpr name_list names() const { return {{name_of<Family>()...}}; }
    /// How many of them have a schedule for the collective.
    template <collective C>
    static constexpr int count_of = (0 + ... + int{provides<Family, C>});
};
template <class... Family>
family_list(known_family<Family>...) -> family_list<Family...>;

/// In order of preference where predictions are equal. `direct` alone keeps the order of ranks at every group size.
inline constexpr family_list known_families{
    known_family<direct>{"direct"},
    known_family<ring>{"ring"},
    known_family<circulant<>>{"circulant"},
    known_family<halving_doubling>{"halving_doubling"},
    known_family<recursive_doubling>{"recursive_doubling"},
    known_family<distance_doubling>{"distance_doubling"},
    known_family<one_shot>{"one_shot"},
    known_family<fan_in>{"fan_in"},
    known_family<tree<2>>{"tree"},
    known_family<tree<4>>{"tree<4>"},
    known_family<double_tree>{"double_tree"},
    known_family<bruck<2>>{"bruck"},
    known_family<swing>{"swing"},
    known_family<bine>{"bine"},
    known_family<pat<1>>{"pat"},
    known_family<pipelined_broadcast>{"pipelined_broadcast"},
};

/// Each schedule of the family that reduces folds all contributions at once, in rank order, at every group size
/// (fold_properties::single_fold). That is what the proof finds, as a table, so that programs need not compile the
/// proof of these families; tests/exact/reproducible_test.cpp compares the two.
template <class Family>
inline constexpr bool folds_once =
    std::is_same_v<Family, direct> || std::is_same_v<Family, one_shot> || std::is_same_v<Family, fan_in>;

/// Every rank does the same up to rotation, in each schedule of the family that is neither rooted nor a scan, at every
/// group size (properties::symmetric). Also what the proof finds, as a table; tests/plans/scale_test.cpp compares the
/// two.
template <class Family>
inline constexpr bool rotates =
    std::is_same_v<Family, direct> || std::is_same_v<Family, ring> || std::is_same_v<Family, circulant<>> ||
    std::is_same_v<Family, one_shot> || std::is_same_v<Family, bruck<2>> || std::is_same_v<Family, pat<1>>;

/// Their names, in the same order.
inline constexpr auto known_names = known_families.names();

/// S is one of them: its schedules are proven in the library's own tests.
template <class S>
inline constexpr bool is_known_family = std::remove_const_t<decltype(known_families)>::template holds<S>;

}  // namespace colls::inline v1::detail
