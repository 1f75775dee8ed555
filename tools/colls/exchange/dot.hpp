// Schedules as graphs, for Graphviz.
#pragma once

#include <colls/any_schedule.hpp>

#include <string>

namespace exchange {

/// A node for each rank before and after each round in which it takes part, an edge for each transfer. The schedule
/// must be one whose sends meet receives.
std::string write_dot(const colls::any_schedule& s, int n, const std::string& name);

}  // namespace exchange
