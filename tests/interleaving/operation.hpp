// Operations that access buffers of other ranks (colls/detail/execute/direct_executor.hpp) under the interleavings of
// their ranks.
#pragma once

#include "scheduler.hpp"

#include <vector>

namespace interleaving {

enum class operation_kind_of_test : unsigned char {
    direct_all_reduce,
    ring_all_reduce,
    direct_broadcast,
    tree_broadcast,
    ring_all_gather,
    direct_all_to_all
};
inline constexpr int operation_kinds = 6;
struct started_call {
    operation_kind_of_test kind;
    int root = 0;
};

/// The ranks start these calls in a row, each when `in_flight` - 1 others are in flight at most, and complete them in
/// that order, or, if `backwards`, the latest first. A rank writes its buffers before a call and after it. Faults: a
/// wrong result, an error, a race, a rank that waits for ever.
outcome explore_operations(
    int ranks, const std::vector<started_call>& calls, std::size_t in_flight, bool backwards, int delays);

}  // namespace interleaving
