// A run: all rows, on every rank of a group.
#pragma once

#include "options.hpp"

namespace perf {

enum exit_status { fine = 0, failed = 1, wrong_arguments = 2, wrong_data = 3 };

/// What a rank must do before it joins its group: schedules and deadlines are settings of the environment.
void set_environment(const options& o);

/// Measures, checks and prints all that the options ask for; rank 0 prints. Collective. Returns the program's exit
/// status, the same on all ranks. Throws colls::error.
int run(colls::communicator& comm, const options& o);

}  // namespace perf
