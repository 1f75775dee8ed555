// k-means by the ranks of an MPI program. kmeans.cpp is the same program on colls.
//
// Build: mpicxx -std=c++20 -O2 examples/migrating/kmeans_mpi.cpp -o kmeans_mpi
// Run:   mpirun -n 3 ./kmeans_mpi
#include "kmeans.hpp"

#include <mpi.h>

int main(int argc, char** argv) {
    using namespace kmeans;
    // example-begin start
    MPI_Init(&argc, &argv);
    int rank = 0, n = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    // example-end

    // example-begin distribute
    std::vector<double> points, centres(clusters * dimensions);
    if (rank == 0) points = read_points();
    long total = static_cast<long>(points.size() / dimensions);
    MPI_Bcast(&total, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    std::vector<int> lengths, counts, offsets, starts;  // of each rank: its points and their coordinates
    for (int r = 0, point = 0; r < n; point += lengths[static_cast<std::size_t>(r++)]) {
        lengths.push_back(static_cast<int>(total / n + (r < total % n)));
        starts.push_back(point);
        counts.push_back(lengths.back() * static_cast<int>(dimensions));
        offsets.push_back(point * static_cast<int>(dimensions));
    }
    const int here = lengths[static_cast<std::size_t>(rank)], coordinates = here * static_cast<int>(dimensions);
    std::vector<double> mine(static_cast<std::size_t>(coordinates));
    MPI_Scatterv(points.data(), counts.data(), offsets.data(), MPI_DOUBLE, mine.data(), coordinates, MPI_DOUBLE, 0,
        MPI_COMM_WORLD);
    if (rank == 0) std::copy_n(points.begin(), centres.size(), centres.begin());
    MPI_Bcast(centres.data(), static_cast<int>(centres.size()), MPI_DOUBLE, 0, MPI_COMM_WORLD);
    // example-end

    std::vector<int> labels(static_cast<std::size_t>(here));
    struct {
        double distance;
        int rank;
    } farthest{0, rank};
    // example-begin loop
    for (int step = 0; step < steps; ++step) {
        std::vector<double> sums = assign(mine, centres, labels, farthest.distance);
        MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        move_centres(sums, centres);
    }
    // example-end

    // example-begin collect
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &farthest, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD, &request);
    std::vector<int> all(rank == 0 ? static_cast<std::size_t>(total) : 0);
    MPI_Gatherv(labels.data(), here, MPI_INT, all.data(), lengths.data(), starts.data(), MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    // example-end
    if (rank == 0) print(centres, all, farthest.distance, farthest.rank);
    // example-begin end
    MPI_Finalize();
    // example-end
}
