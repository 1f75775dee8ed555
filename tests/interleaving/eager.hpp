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
    scatter,
    reduce,
    gather
};
inline constexpr int eager_kinds = 11;
struct eager_call {
    eager_kind kind;
    int root = 0;
    bool is_long = false;  ///< its data travel apart from the flag
};

/// The ranks make these calls in a row. Faults: a wrong result, an error, a race, a rank that waits for ever.
outcome explore_eager(int ranks, const std::vector<eager_call>& calls, int delays);

}  // namespace interleaving
