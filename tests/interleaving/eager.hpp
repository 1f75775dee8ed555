// The eager path (colls/detail/execute/eager.hpp) under the interleavings of its ranks.
#pragma once

#include "scheduler.hpp"

#include <vector>

namespace interleaving {

enum class eager_kind : unsigned char {
    barrier,
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    scan,            ///< rank r reads from the ranks 0 to r
    exclusive_scan,  ///< likewise without r
    broadcast,
    reduce,
    scatter_v,  ///< from here on the ranks know their own lengths only
    gather_v,
    all_to_all_v
};
inline constexpr int eager_kinds = 12;
struct eager_call {
    eager_kind kind;
    int root = 0;
    /// Its data travel apart from the flag. Where ranks know their own lengths only: what one rank sends is too long
    /// for the eager path (of a scatter the root, else the one after it).
    bool is_long = false;
};

/// The ranks make these calls in a row. Faults: a wrong result, an error, a race, a rank that waits for ever.
outcome explore_eager(int ranks, const std::vector<eager_call>& calls, int delays);

}  // namespace interleaving
