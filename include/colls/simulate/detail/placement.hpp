// The search for the places of ranks on a topology.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/simulate.hpp>
#include <colls/simulate/detail/drawn.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

inline simulation::outcome played(const schedule_reader& s, int n, const simulation::topology& t, double bytes,
    const simulation::options& o);  // played_group.hpp

/// The places 0 ... n - 1, each followed by the nearest one left: in a tree, its subtrees one after another. Near: a
/// message of `bytes` bytes takes less time alone, or as long over fewer links.
inline std::vector<int> chain_of_places(int n, const simulation::topology& t, double bytes) {
    std::vector<int> chain{0}, left(static_cast<std::size_t>(n) - 1), route;
    std::iota(left.begin(), left.end(), 1);
    while (!left.empty()) {
        std::pair best{std::numeric_limits<double>::infinity(), std::size_t{0}};
        std::size_t nearest = 0;
        for (std::size_t i = 0; i < left.size(); ++i) {
            t.route(chain.back(), left[i], route);
            double latency = 0, narrowest = std::numeric_limits<double>::infinity();
            for (const int l : route) {
                latency += t.links()[static_cast<std::size_t>(l)].latency;
                narrowest = std::min(narrowest, t.links()[static_cast<std::size_t>(l)].bandwidth);
            }
            if (const std::pair found{latency + bytes / narrowest, route.size()}; found < best) {
                best = found;
                nearest = i;
            }
        }
        chain.push_back(left[nearest]);
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(nearest));
    }
    return chain;
}

inline simulation::placement placed_for(const schedule_reader& s, int n, const simulation::topology& t, double bytes,
    const simulation::options& o, int tries, std::uint64_t seed) {
    std::vector<int> best(static_cast<std::size_t>(std::max(n, 0)));
    std::iota(best.begin(), best.end(), 0);
    const auto seconds_at = [&](const std::vector<int>& places) {
        return played(s, n, t.placed(places), bytes, o).seconds;
    };
    const double before = played(s, n, t, bytes, o).seconds;
    double least = before;
    const auto try_places = [&](std::vector<int> places) {
        const double seconds = seconds_at(places);
        if (!(seconds < least)) return;
        least = seconds;
        best = std::move(places);
    };
    try_places(chain_of_places(n, t, bytes / n));
    for (int i = 0; i < tries && n > 1; ++i) {
        const auto some = [&](int which) {
            return std::min(static_cast<std::size_t>(drawn(seed, which, i) * n), static_cast<std::size_t>(n) - 1);
        };
        std::vector<int> places = best;
        std::swap(places[some(0)], places[some(1)]);
        if (places != best) try_places(std::move(places));
    }
    simulation::placement found(std::move(best));
    found.before = before;
    found.after = least;
    return found;
}

}  // namespace colls::inline v1::detail

namespace colls::inline v1::simulation {

inline placement::placement(std::vector<int> places) : places_(std::move(places)), roles_(places_.size(), none) {
    const int n = static_cast<int>(places_.size());
    for (int r = 0; r < n; ++r) {
        const int p = places_[static_cast<std::size_t>(r)];
        if (p < 0 || p >= n || roles_[static_cast<std::size_t>(p)] != none)
            throw error(errc::invalid_argument, "colls: placement: the places are not a permutation of the ranks");
        roles_[static_cast<std::size_t>(p)] = r;
    }
}
template <class S>
placement place(const S& s, int n, const topology& t, double bytes, const options& o, int tries, std::uint64_t seed) {
    return detail::placed_for(detail::reader_of<S>(s), n, t, bytes, o, tries, seed);
}

}  // namespace colls::inline v1::simulation
