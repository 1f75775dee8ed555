// The command line: the flags of nccl-tests, and those of this tool.
#pragma once

#include "calls.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace perf {

struct options {
    std::vector<job> jobs;
    std::vector<const element_type*> types;
    std::vector<reduction> ops{reduction::sum};
    bool all_jobs = false, all_ops = false;  ///< what does not fit together is left out instead of refused
    int root = 0;                            ///< -1: each rank in turn

    std::size_t min_bytes = std::size_t{32} << 20, max_bytes = std::size_t{32} << 20, step_bytes = std::size_t{1} << 20;
    std::size_t step_factor = 1;  ///< above 1: used in place of step_bytes
    int iterations = 0;           ///< 0: 20, or as many as take 20 ms
    int warmup = 5, checks = 1, aggregate = 1, cycles = 1;
    int average = 3;   ///< over ranks: 0 rank 0, 1 mean, 2 least, 3 greatest
    int blocking = 2;  ///< 0 started; 1 with a barrier, timed; 2 without; 3 with a barrier, not timed
    std::size_t unalign = 0;

    std::string schedule;  ///< empty: automatic
    bool reproducible = false, registered = false, fresh = false;
    bool percentiles = false, per_iteration = false, timestamps = false, show_schedule = false, progress = false;

    std::string transport;  ///< world, threads, processes, tcp, verbs, ofi, mpi
    bool carried_by_messages() const { return transport == "tcp" || transport == "verbs" || transport == "ofi"; }
    int ranks = 0;  ///< of threads, processes and tcp
    bool pin = false;
    std::string timeout;

    std::string name, json, plot, tune;
    std::vector<std::pair<std::string, std::string>> peers;  ///< a name, and its file
    std::string command;                                     ///< the words of the command line
};

/// Reads the command line. Returns the exit status where the program is to end: 0 after --help, 2 after wrong
/// arguments, which it explains on standard error. `over_mpi`: this is colls_perf_mpi.
std::optional<int> parse(int argc, char** argv, bool over_mpi, options& o);

}  // namespace perf
