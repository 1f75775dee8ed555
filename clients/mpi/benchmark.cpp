// Times collectives of MPI, in the way of the OSU benchmarks: run it with libcolls_mpi.so and without.
//
//     benchmark [SECONDS]    for each cell; default 0.05
//
// A row is a call, the bytes of its larger buffer, and the mean time of a call in microseconds on the slowest rank.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

double seconds = 0.05;

template <class Call>
void time(const char* name, int bytes, const Call& call) {
    // As many calls as rank 0 can make in the time, the same number on all ranks.
    int calls = 20;
    double begin = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call();
    const double each = (MPI_Wtime() - begin) / calls;
    calls = static_cast<int>(seconds / each) + 10;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call();
    const double own = (MPI_Wtime() - begin) / calls * 1e6;
    double slowest = 0;
    MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) std::printf("%s %d %.2f\n", name, bytes, slowest);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc > 1) seconds = std::atof(argv[1]);
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    time("barrier", 0, [] { MPI_Barrier(MPI_COMM_WORLD); });
    for (const int bytes : {8, 1024, 16384, 131072, 1048576}) {
        const int n = bytes / 8, each = n / size > 0 ? n / size : 1;
        std::vector<double> in(static_cast<std::size_t>(n + each * size)), out(in);
        time("allreduce", bytes, [&] { MPI_Allreduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); });
        time("bcast", bytes, [&] { MPI_Bcast(in.data(), n, MPI_DOUBLE, 0, MPI_COMM_WORLD); });
        time("allgather", each * size * 8,
            [&] { MPI_Allgather(in.data(), each, MPI_DOUBLE, out.data(), each, MPI_DOUBLE, MPI_COMM_WORLD); });
        time("alltoall", each * size * 8,
            [&] { MPI_Alltoall(in.data(), each, MPI_DOUBLE, out.data(), each, MPI_DOUBLE, MPI_COMM_WORLD); });
    }
    MPI_Finalize();
}
