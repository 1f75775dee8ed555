// What COLLS_TRACE has recorded: read from the files of all processes, on one clock, and summed up. docs/tracing.md.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tool {

/// One rank's part of a call, or a wait, copy or fold in it. Times in microseconds.
struct recorded_span {
    std::string name;  ///< the collective, send or recv; wait, copy, fold
    std::string schedule;
    int thread = 0;  ///< of recording::threads
    int rank = 0;    ///< in the call's group
    int peer = -1;
    double begin = 0, end = 0, bytes = 0;
    double took() const { return end - begin; }
};

/// A thread that was a rank; its name is that of the first group in which it was one.
struct recorded_thread {
    std::string host, name;
    int clock = 0;
};

/// What one clock shows, that of a host.
struct recorded_clock {
    std::string host;
    double ahead = 0;   ///< microseconds, of the first clock
    double unsure = 0;  ///< by how much `ahead` may be wrong; infinite where no call joins it with the first
};

struct recording {
    std::vector<recorded_thread> threads;
    std::vector<recorded_clock> clocks;
    /// The collective calls by group and number: the parts of their ranks. A group's name has its number, too, since
    /// groups of several runs, or of several processes, may have one label.
    std::map<std::pair<std::string, long long>, std::vector<recorded_span>> calls;
    std::map<std::string, int> sizes;     ///< of the groups
    std::vector<recorded_span> messages;  ///< sends and receives
    std::vector<recorded_span> parts;     ///< waits, copies and folds
    nlohmann::json events;                ///< all of them, on the first clock; processes are numbered anew, and named
};

/// Reads the files of a run. A name that is no file stands for those that COLLS_TRACE of that name makes. Clocks of
/// different hosts are set by the calls in which every rank waits for every other: none of these ends on a rank before
/// it has begun on all. Throws std::runtime_error.
recording read_recording(const std::vector<std::string>& names);

/// Which rank comes last, which waits take the most time, and what calls consist of. Prints to the standard output.
int summarise(const recording& r, bool json);

}  // namespace tool
