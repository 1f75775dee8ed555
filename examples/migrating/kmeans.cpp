// k-means by the ranks of a program on colls. kmeans_mpi.cpp is the same program on MPI.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/migrating/kmeans.cpp -o kmeans
// Run:   mpirun -n 3 ./kmeans
#include "kmeans.hpp"

#include <colls/colls.hpp>
#include <colls/world.hpp>

#include <span>

int main() try {
    using namespace kmeans;
    // example-begin start
    colls::communicator comm = colls::world();
    const int rank = comm.rank(), n = comm.size();
    // example-end

    // example-begin distribute
    std::vector<double> points, centres(clusters * dimensions);
    if (rank == 0) points = read_points();
    std::size_t total = points.size() / dimensions;
    colls::broadcast(comm, std::span(&total, 1), 0);
    std::vector<std::size_t> lengths, counts;  // of each rank: its points and their coordinates
    for (const auto& block : colls::blocks_of(total, n)) {
        lengths.push_back(block.size);
        counts.push_back(block.size * dimensions);
    }
    std::vector<double> mine(counts[static_cast<std::size_t>(rank)]);
    colls::scatter_v(comm, points, mine, counts, 0);
    if (rank == 0) std::copy_n(points.begin(), centres.size(), centres.begin());
    colls::broadcast(comm, centres, 0);
    // example-end

    std::vector<int> labels(lengths[static_cast<std::size_t>(rank)]);
    colls::value_index<double, int> farthest[] = {{0, rank}};
    // example-begin loop
    for (int step = 0; step < steps; ++step) {
        std::vector<double> sums = assign(mine, centres, labels, farthest[0].value);
        colls::all_reduce(comm, sums, colls::sum);
        move_centres(sums, centres);
    }
    // example-end

    // example-begin collect
    auto done = colls::start::all_reduce(comm, farthest, colls::maxloc);
    std::vector<int> all(rank == 0 ? total : 0);
    colls::gather_v(comm, labels, all, lengths, 0);
    done.wait();
    // example-end
    if (rank == 0) print(centres, all, farthest[0].value, farthest[0].index);
    return 0;
} catch (const colls::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
