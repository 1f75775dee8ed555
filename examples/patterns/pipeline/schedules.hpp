// The order in which the stages of a pipeline work on microbatches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace example {

struct action {
    bool forward;
    int microbatch;
};
using schedule = std::vector<action> (*)(int stage, int stages, int microbatches);

// example-begin schedules
/// All forward passes, then all backward passes.
inline std::vector<action> gpipe(int, int, int microbatches) {
    std::vector<action> order;
    for (const bool forward : {true, false})
        for (int i = 0; i < microbatches; ++i) order.push_back({forward, i});
    return order;
}

/// One forward, one backward: after as many forward passes as there are stages behind this one, each further forward
/// pass is followed by the backward pass of the oldest microbatch.
inline std::vector<action> one_f_one_b(int stage, int stages, int microbatches) {
    std::vector<action> order;
    const int warm_up = std::min(stages - 1 - stage, microbatches);
    for (int i = 0; i < microbatches + warm_up; ++i) {
        if (i < microbatches) order.push_back({true, i});
        if (i >= warm_up) order.push_back({false, i - warm_up});
    }
    return order;
}
// example-end

/// Plays a schedule where a forward pass takes 1, a backward pass 2 and a message nothing. Returns the part of the time
/// in which stages are idle, or 2 where they wait for one another for ever.
inline double simulated_bubble(schedule s, int stages, int microbatches) {
    const auto at = [&](int p, int i) { return static_cast<std::size_t>(p * microbatches + i); };
    std::vector<double> end[2];  // of [forward][stage and microbatch]; 0: not yet
    for (auto& e : end) e.resize(at(stages, 0));
    std::vector<double> clock(static_cast<std::size_t>(stages));
    std::vector<std::size_t> next(clock.size());
    std::size_t done = 0;
    for (bool moved = true; std::exchange(moved, false);)
        for (int p = 0; p < stages; ++p) {
            const auto order = s(p, stages, microbatches);
            for (auto& n = next[static_cast<std::size_t>(p)]; n < order.size(); ++n, ++done, moved = true) {
                const auto [forward, i] = order[n];
                double& now = clock[static_cast<std::size_t>(p)];
                if (forward ? p > 0 : p + 1 < stages) {
                    const double input = end[forward][at(forward ? p - 1 : p + 1, i)];
                    if (input == 0) break;
                    now = std::max(now, input);
                }
                end[forward][at(p, i)] = now += forward ? 1 : 2;
            }
        }
    if (done != 2 * at(stages, 0)) return 2;
    return 1 - 3.0 * microbatches / std::ranges::max(clock);
}

}  // namespace example
