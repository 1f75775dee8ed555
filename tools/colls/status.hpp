// What the ranks of running programs do: from the records of this host's processes, or asked of a program that answers
// on the network. docs/tracing.md.
#pragma once

#include <string>
#include <vector>

namespace tool {

enum class status_format { table, json, prometheus };

/// `targets`: processes of this host, by number, and HOST:PORT, where programs listen as COLLS_STATUS says; none: all
/// processes of this host. Prints to the standard output; throws std::runtime_error, or colls::error.
int show_status(const std::vector<std::string>& targets, status_format how);

}  // namespace tool
