// The commands that simulate schedules on a network. Each prints to the standard output and returns an exit status.
#pragma once

#include "catalogue.hpp"
#include "network.hpp"
#include "synthesis.hpp"

#include <string>
#include <vector>

namespace tool {

/// Times that ranks lose, in seconds.
struct disturbance {
    double noise = 0;  ///< in each round, exponentially distributed with this mean
    int one_in = 0;    ///< of so many ranks one is a straggler; 0: none
    double late = 0;   ///< by so much, in the first round
    int trials = 1;    ///< simulations, each with other times, whose mean is shown
    bool any() const { return noise > 0 || one_in > 0; }
};

/// The times of all schedules of a collective for `bytes`, or of `only` these, on the first ranks of a network: a
/// column for each number of ranks. `sizes` empty: powers of two.
int simulate(const std::string& collective, const std::vector<entry>& only, const network& on, std::vector<int> sizes,
    double bytes, const disturbance& late, bool json);

/// The best schedule of a collective, of the library's and the user's `own`, on the first n ranks of a network by size,
/// and where it changes. `tune`: if not empty, the file for COLLS_TUNE to be written, with `origin` as remark.
int choose(const std::string& collective, const std::vector<entry>& own, const network& on, int n,
    const std::vector<double>& sizes, const std::string& tune, const std::string& origin, bool json);

/// Searches places of the ranks for a schedule: what is gained, and the places.
int place(const std::vector<entry>& schedules, const network& on, int n, double bytes, int tries, bool json);

/// What to make, and what of it to keep.
struct synthesis_request {
    synthesis what;      ///< cut 0: several are tried, and that with the least time is taken
    double bytes = 0;    ///< of the user's buffer
    std::string output;  ///< the header to be written; empty: none
    std::string type;    ///< the name of the schedule's type
    std::string origin;  ///< the command, for the header
};
/// Makes a schedule for the first ranks of a network, proves it, and compares its time with what links need at least
/// and with the schedules of the library, and the user's `own`.
int synthesise(const synthesis_request& asked, const std::vector<entry>& own, const network& on, bool json);

}  // namespace tool
