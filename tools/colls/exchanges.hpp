// The commands export and import: schedules for other libraries, and plans of theirs as schedules.
#pragma once

#include "catalogue.hpp"

#include <colls/cost.hpp>

#include <string>

namespace tool {

struct export_request {
    std::string format = "msccl";  ///< msccl, dot or trace
    bool out_of_place = false;
    double bytes = 0;  ///< of the user's buffer, for a trace
};
/// The text of a schedule on n ranks in another library's format.
std::string exported(const entry& e, int n, const export_request& how);

/// What a plan is: its collective, rounds and cost; proven or refuted; with `run`, run over threads.
int import(const std::string& file, double bytes, const colls::model& m, bool run, bool json);

}  // namespace tool
