// What a rank computes attention of, and what it reports.
#pragma once

#include "attention.hpp"

#include <chrono>
#include <cstddef>
#include <span>

namespace example {

using stopwatch = std::chrono::steady_clock;

inline std::span<double> numbers(matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }

/// Tokens of a rank: queries, keys over values, and the gradient of the output.
struct tokens {
    matrix q, kv, gradient;
};
/// What a rank computes of them, and what that took.
struct result {
    matrix output, dq, dkv;
    double work = 0, waited = 0, sent = 0, held = 0;  // pairs; seconds; bytes; most numbers beside inputs and outputs
};

inline double seconds_since(stopwatch::time_point begin) {
    return std::chrono::duration<double>(stopwatch::now() - begin).count();
}

}  // namespace example
