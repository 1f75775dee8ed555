// An MPI library's side of crowd.cpp and delayed.cpp. Arguments: later calls of each size, and the sizes in bytes.
#include "crowd_side.hpp"

#define OMPI_SKIP_MPICXX 1  // without the C++ interface, which MPI has removed, and which causes warnings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdlib>
#include <iterator>
#include <vector>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::vector<std::size_t> sizes(std::begin(bench::crowd_sizes), std::end(bench::crowd_sizes));
    if (argc > 2) sizes.clear();
    for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    bench::measure_crowd(
        rank, ranks, sizes, argc > 1 ? std::atoi(argv[1]) : 11,
        [](std::span<const double> in, std::span<double> out) {
            MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        },
        [] { MPI_Barrier(MPI_COMM_WORLD); });
    MPI_Finalize();
}
