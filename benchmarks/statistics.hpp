// Medians, and the states of a machine whose cores move.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace bench {

/// The middle value, the upper one of two; 0 where there is none.
inline double median(std::vector<double> v) {
    if (v.empty()) return 0;
    const auto mid = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
    std::nth_element(v.begin(), mid, v.end());
    return *mid;
}

/// The state of the machine, by the latency of a cache line in ns: hardware threads of one core, one package, farther.
inline constexpr int states = 3;
constexpr int state_of(double line) { return line < 100 ? 0 : line < 320 ? 1 : 2; }

}  // namespace bench
