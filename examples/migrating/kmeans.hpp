// k-means: what kmeans_mpi.cpp and kmeans.cpp have in common, everything but the communication.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

namespace kmeans {

constexpr std::size_t clusters = 5, dimensions = 3, features = clusters * (dimensions + 1);
constexpr int steps = 12;

/// Points around `clusters` centres, one after the other. Coordinates are whole numbers, so that sums are exact, and
/// the clusters do not depend on the number of ranks.
inline std::vector<double> read_points() {
    std::mt19937 random(7);
    const auto number = [&](unsigned below) { return static_cast<double>(random() % below); };
    std::vector<double> centres(clusters * dimensions), points(10'007 * dimensions);
    for (double& x : centres) x = number(1000);
    for (std::size_t p = 0; p < points.size(); p += dimensions) {
        const std::size_t centre = random() % clusters * dimensions;
        for (std::size_t d = 0; d < dimensions; ++d) points[p + d] = centres[centre + d] + number(200);
    }
    return points;
}

/// Gives each point the label of its nearest centre. Returns the sum of the coordinates and the number of the points of
/// each cluster; sets `farthest` to the largest squared distance of a point from its centre.
inline std::vector<double> assign(
    const std::vector<double>& points, const std::vector<double>& centres, std::vector<int>& labels, double& farthest) {
    std::vector<double> sums(features);
    farthest = 0;
    for (std::size_t p = 0; p < labels.size(); ++p) {
        double best = std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < clusters; ++c) {
            double distance = 0;
            for (std::size_t d = 0; d < dimensions; ++d) {
                const double along = points[p * dimensions + d] - centres[c * dimensions + d];
                distance += along * along;
            }
            if (distance < best) best = distance, labels[p] = static_cast<int>(c);
        }
        double* const sum = &sums[static_cast<std::size_t>(labels[p]) * (dimensions + 1)];
        for (std::size_t d = 0; d < dimensions; ++d) sum[d] += points[p * dimensions + d];
        sum[dimensions] += 1;
        farthest = std::max(farthest, best);
    }
    return sums;
}

/// The mean of each cluster's points becomes its centre.
inline void move_centres(const std::vector<double>& sums, std::vector<double>& centres) {
    for (std::size_t c = 0; c < clusters; ++c)
        for (std::size_t d = 0; d < dimensions; ++d)
            if (sums[c * (dimensions + 1) + dimensions] > 0)
                centres[c * dimensions + d] = sums[c * (dimensions + 1) + d] / sums[c * (dimensions + 1) + dimensions];
}

inline void print(const std::vector<double>& centres, const std::vector<int>& labels, double farthest, int rank) {
    for (std::size_t c = 0; c < clusters; ++c)
        std::printf("cluster %zu: centre %.3f %.3f %.3f, %td points\n", c, centres[c * dimensions],
            centres[c * dimensions + 1], centres[c * dimensions + 2], std::ranges::count(labels, static_cast<int>(c)));
    std::printf("the point farthest from its centre is at %.6g, on rank %d\n", farthest, rank);
}

}  // namespace kmeans
