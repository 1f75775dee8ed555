// What crowd.cpp measures in a group of ranks: how long forming takes, and all_reduce of each size, the first call and
// later ones.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

namespace bench {

inline double monotonic_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Prints, on rank 0, when the group had been formed, and for each size the first call's seconds and the median of the
/// others', each call between two barriers. `sum` is an all_reduce, `meet` a barrier.
template <class Sum, class Meet>
void measure_crowd(
    int rank, int ranks, std::span<const std::size_t> sizes, int calls, const Sum& sum, const Meet& meet) {
    meet();
    if (rank == 0) std::printf("formed %.6f\n", monotonic_seconds());
    for (const std::size_t bytes : sizes) {
        const std::vector<double> in(bytes / sizeof(double), rank + 1.0);
        std::vector<double> out(in.size()), times;
        for (int i = 0; i <= calls; ++i) {
            meet();
            const double begin = monotonic_seconds();
            sum(std::span<const double>(in), std::span<double>(out));
            meet();
            times.push_back(monotonic_seconds() - begin);
        }
        const double first = times.front();
        times.erase(times.begin());
        std::sort(times.begin(), times.end());
        const bool right =
            std::all_of(out.begin(), out.end(), [&](double x) { return x == ranks * (ranks + 1) / 2.0; });
        if (!right) std::printf("wrong\n");
        if (rank == 0) std::printf("call %zu %.9f %.9f\n", bytes, first, times[times.size() / 2]);
    }
    std::fflush(stdout);
}

inline constexpr std::size_t crowd_sizes[] = {8, 1024, 8192, 65536, 1 << 20};

}  // namespace bench
