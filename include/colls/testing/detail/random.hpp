// Random numbers that are the same on every platform.
// IWYU pragma: private, include <colls/testing/mutate.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstdint>

namespace colls::inline v1::testing::detail {

/// splitmix64.
class random {
public:
    explicit random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    int below(int limit) { return static_cast<int>(next() % static_cast<std::uint64_t>(limit)); }

private:
    std::uint64_t state_;
};

}  // namespace colls::inline v1::testing::detail
