// Schedules of a user's own, compiled and loaded into the tool.
#pragma once

#include <colls/any_schedule.hpp>

#include <string>
#include <vector>

namespace tool {

/// The schedules of C++ type `type`, a schedule or a family that `header` declares: one for each collective that it
/// implements or that follows from those. Throws std::runtime_error, with the compiler's messages where it fails. What
/// is returned lives until the program ends.
std::vector<colls::any_schedule> schedules_of_header(const std::string& header, const std::string& type);

}  // namespace tool
