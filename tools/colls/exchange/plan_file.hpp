// A file with a plan, in whichever format, as a schedule.
#pragma once

#include "rounds.hpp"

#include <memory>
#include <string>

namespace exchange {

/// True for names that end as those of plans do: .xml and .json.
bool names_plan(const std::string& file);

/// A plan that was read, and the schedule that it is. The schedule refers to the rest.
struct plan_schedule {
    std::string format;  ///< "MSCCL XML", ...
    std::unique_ptr<const imported> from;
    colls::any_schedule schedule;
    int sizes = 0;  ///< of chunks, with which the plan was looked at: more than one where these decide what it does
};
/// Reads a plan's text. `file` names the format. Throws refuted or refused, or std::runtime_error.
std::shared_ptr<const plan_schedule> read_plan(const std::string& text, const std::string& file);
/// The same from a file; once for each name, and for as long as the program runs.
std::shared_ptr<const plan_schedule> load_plan(const std::string& file);

}  // namespace exchange
