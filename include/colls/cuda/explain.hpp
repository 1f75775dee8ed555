// What `automatic` would choose in a group of GPUs, and why. For units that nvcc compiles; not part of
// transports/cuda.hpp, since it names the candidates of all collectives.
#pragma once

#include <colls/cuda/communicator.hpp>
#include <colls/cuda/detail/launch/explained.hpp>

#include <cstddef>
#include <cstdio>
#include <string>

namespace colls::inline v1::cuda {

/// The name of the schedule that `automatic` takes for a collective of `bytes` bytes on `comm`, with an operator that
/// commutes; "eager" where such calls take the eager path. `bytes` are those of the larger of the two buffers. Not
/// collective, and the same on all ranks. Throws errc::invalid_argument where COLLS_SCHEDULE or COLLS_TUNE names no
/// schedule.
inline std::string chosen(communicator& comm, collective what, std::size_t bytes, int root = 0) {
    detail::local_ranks& ranks = comm.context();
    std::string name = "eager";
    if (detail::is_eager(ranks, what, bytes)) return name;
    detail::for_collective(what, [&]<collective C>() {
        name = ranks.template choice_for<C>(root).choose(ranks.demand_of(static_cast<double>(bytes))).name;
    });
    return name;
}

/// A table of the schedules that `automatic` weighs for such a call, one a line: rounds, those of them between hosts,
/// bytes that the busiest rank sends within its host and to others, chunks that follow each other, and predicted
/// microseconds. The one that `chosen` names is marked "<- chosen". Throws as `chosen` does.
inline std::string explain(communicator& comm, collective what, std::size_t bytes, int root = 0) {
    detail::local_ranks& ranks = comm.context();
    const detail::link_figures& f = ranks.links();
    char line[240];
    std::snprintf(line, sizeof line,
        "%s of %zu bytes, %d ranks on %d hosts: launch %.1f us; within a host a round %.1f us, %.4f ns/B; between "
        "hosts "
        "%.1f us, %.4f ns/B\n",
        name_of(what), bytes, ranks.size(), ranks.far() != nullptr ? ranks.hosts().hosts() : 1, f.launch * 1e6,
        f.near.alpha * 1e6, f.near.beta * 1e9, f.far.alpha * 1e6, f.far.beta * 1e9);
    std::string text = line;
    const detail::gpu_demand d = ranks.demand_of(static_cast<double>(bytes));
    const bool eager = detail::is_eager(ranks, what, bytes);
    if (eager) text += "  eager (options.protocol, small_bytes, middle_bytes)  <- chosen\n";
    if (!d.forced.empty()) text += "  COLLS_SCHEDULE=" + std::string(d.forced) + "\n";
    detail::for_collective(
        what, [&]<collective C>() { text += ranks.template choice_for<C>(root).explain(d, !eager); });
    return text;
}

}  // namespace colls::inline v1::cuda
