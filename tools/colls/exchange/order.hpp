// The order of a plan's events: what waits for what, and what is left without an order.
#pragma once

#include "program.hpp"

#include <functional>
#include <vector>

namespace exchange {

/// The position of each event in an order in which all waits end. Events that write nothing come as early as they can.
/// Throws refuted, with the steps of a cycle, where there is no such order.
std::vector<int> positions_of(const program& plan);

/// Two events of which the first must come before the second.
struct ordered_pair {
    int first = 0, second = 0;
    int subject = 0;  ///< for the caller
};
/// The first of these pairs whose second event does not wait for its first one, directly or through others; or null.
/// `positions` are those of positions_of.
const ordered_pair* unordered_pair(
    const program& plan, const std::vector<int>& positions, const std::vector<ordered_pair>& pairs);

}  // namespace exchange
