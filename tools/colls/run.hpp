// Starts the ranks of a program: processes of this host, or of others by ssh. docs/colls.md.
#pragma once

#include <string>
#include <vector>

namespace tool {

struct run_request {
    int ranks = 0;              ///< 0: one for each place of `hosts`
    std::string hosts;          ///< `a,b:4`: names, and how many ranks each has room for; none: this host
    std::string shell = "ssh";  ///< what runs a command on a host: its words, before the host and the command
    bool label = true, elastic = false;
    std::vector<std::string> command;
};

/// Passes on what the ranks write, a line at a time. The first that fails ends all others, by SIGTERM and then SIGKILL;
/// with `elastic` none does. Returns the status of the first that has failed (128 + S after signal S), or 0; with
/// `elastic` 0 if one rank has ended well. In place of 0, 1 where not all that they wrote could be passed on. Throws
/// std::runtime_error.
int run_ranks(const run_request& asked);

}  // namespace tool
