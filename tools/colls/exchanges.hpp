// The commands export and import: schedules for other libraries, and plans of theirs as schedules.
#pragma once

#include "catalogue.hpp"

#include <colls/cost.hpp>

#include <string>
#include <vector>

namespace tool {

struct export_request {
    std::string format = "msccl";  ///< msccl, mscclpp, dot, trace or chakra
    bool out_of_place = false;
    double bytes = 0;  ///< of the user's buffer, for a trace
};
/// A file in another library's format.
struct exported_file {
    std::string suffix;  ///< to the name that the user chooses: ".0.et" where there is a file for each rank, or none
    std::string content;
};
/// A schedule on n ranks in another library's format. Throws where it cannot be one, or there is no such format.
std::vector<exported_file> exported(const entry& e, int n, const export_request& how);

/// What a plan is: its collective, rounds and cost; proven or refuted; with `run`, run over threads.
int import(const std::string& file, double bytes, const colls::model& m, bool run, bool json);

}  // namespace tool
