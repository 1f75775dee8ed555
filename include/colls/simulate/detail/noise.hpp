// Times that ranks lose, drawn from distributions: the same for the same seed, rank and round, in any order of calls.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/simulate.hpp>
#include <colls/simulate/detail/drawn.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace colls::inline v1::simulation {

inline delay exponential_noise(double mean, std::uint64_t seed) {
    return [=](int rank, int round) { return -mean * std::log(detail::drawn(seed, rank, round)); };
}
inline delay normal_noise(
    std::function<double(int rank)> mean, std::function<double(int rank)> deviation, std::uint64_t seed) {
    return [=, mean = std::move(mean), deviation = std::move(deviation)](int rank, int round) {
        const double radius = std::sqrt(-2 * std::log(detail::drawn(seed, rank, round))),
                     angle = 6.283185307179586 * detail::drawn(seed, rank, round, 1);
        return std::max(0.0, mean(rank) + deviation(rank) * radius * std::cos(angle));
    };
}
inline delay stragglers(int one_in, double late, std::uint64_t seed) {
    detail::error_text text;
    if (one_in < 1)
        throw error(errc::invalid_argument,
            (text << "colls: stragglers: late is one rank in 1 or more, not in " << one_in).text());
    return [=](int rank, int round) { return round == 0 && detail::drawn(seed, rank, 0) * one_in <= 1 ? late : 0.0; };
}

}  // namespace colls::inline v1::simulation
