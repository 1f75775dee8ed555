// How the ranks of a group form another one: one of them makes a place, and each joins the group there.
#pragma once

#include <colls/config.hpp>

#include <cstdint>
#include <span>

namespace colls::inline v1::extend {

/// A new group, as one of its members joins it.
struct formation {
    std::uint64_t place = 0;       ///< what `create` returned to the rank that made the place
    int rank = 0;                  ///< this rank's number in the new group
    std::span<const int> members;  ///< of each rank of the new group, its number in the present one
    bool crowded = false;          ///< the present group has more ranks than cores

    /// Ranks of the new group.
    int size() const { return static_cast<int>(members.size()); }
};

}  // namespace colls::inline v1::extend
