// The timed part.
#pragma once

#include "options.hpp"
#include "trial.hpp"

#include <chrono>
#include <vector>

namespace perf {

inline double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What rank 0 knows of a trial; on other ranks all is 0.
struct timing {
    double seconds = 0;  ///< an operation, over ranks as -a says
    int iterations = 0;
    std::vector<double> iteration;  ///< seconds of each, the greatest over ranks; empty unless asked for
};

/// One iteration: the operations of the trial, started at once or by a blocking call, as -z and -m say.
/// `started`: room for these, so that no iteration allocates.
void iterate(colls::communicator& comm, const trial& t, const element_type& type, const options& o,
    std::vector<colls::operation>& started);

/// Warms up and measures. Collective. Unless --fresh is given, iterations follow one another on the same buffers, and a
/// rank's time is that from the first to the end of the last, over their number. With --fresh or -z 3 it is the sum of
/// the times of the iterations, each begun behind a barrier.
timing measure(colls::communicator& comm, trial& t, const element_type& type, const options& o);

/// Seconds in which a rank copies `bytes` bytes, at least one, from one buffer to the other while all ranks do, the
/// mean over ranks; on rank 0. Collective.
double time_copies(colls::communicator& comm, buffer_pair& pair, std::size_t bytes);

/// One value for those of all ranks, as -a says: 0 that of rank 0, 1 the mean, 2 the least, 3 the greatest. 0 of none.
double over_ranks(const std::vector<double>& all, int average);

/// The share p of values is at most the result: the nearest rank. `values` not empty.
double percentile(std::vector<double> values, double p);

}  // namespace perf
