// Times collectives of MPI, in the way of the OSU benchmarks: run it with libcolls_mpi.so and without.
//
//     benchmark [SECONDS]    for each cell; default 0.05
//
// A row is a call, the bytes of its larger buffer, and the mean time of a call in microseconds on the slowest rank.
// With MPI 4 also of MPI_Barrier_init: of 100 requests that are kept, and of 100 that are freed at once. Rows that
// begin with `beside` are of rank 0, which works on the last rank's memory, or sends to it, while all others wait in
// MPI_Barrier.
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

void print_slowest(const char* name, int bytes, double own) {
    double slowest = 0;
    MPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) std::printf("%s %d %.2f\n", name, bytes, slowest);
}

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
    print_slowest(name, bytes, (MPI_Wtime() - begin) / calls * 1e6);
}

#if MPI_VERSION >= 4
void time_persistent() {
    std::vector<MPI_Request> requests(100);
    for (const bool kept : {true, false}) {
        const double begin = MPI_Wtime();
        for (MPI_Request& request : requests) {
            MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request);
            if (!kept) MPI_Request_free(&request);
        }
        const double each = (MPI_Wtime() - begin) / static_cast<double>(requests.size());
        if (kept)
            for (MPI_Request& request : requests) MPI_Request_free(&request);
        print_slowest(kept ? "barrier_init" : "barrier_init_and_free", 0, each * 1e6);
    }
}
#endif

/// Times operation(number) of rank 0 while the others wait.
template <class Operation>
void time_beside(const char* name, int bytes, int calls, const Operation& operation) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; rank == 0 && i < calls; ++i) operation(i);
    const double own = (MPI_Wtime() - begin) / calls * 1e6;
    MPI_Barrier(MPI_COMM_WORLD);
    print_slowest(name, bytes, rank == 0 ? own : 0);
}

void time_one_sided(int last) {
    MPI_Datatype every_other = MPI_DATATYPE_NULL;
    MPI_Type_vector(8, 1, 2, MPI_INT, &every_other);
    MPI_Type_commit(&every_other);
    std::vector<int> memory(64), in(8), out(8);
    MPI_Win w = MPI_WIN_NULL;
    MPI_Win_create(memory.data(), 64 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &w);
    const auto time_locked = [&](const char* name, int bytes, const auto& operation) {
        time_beside(name, bytes, 1000, [&](int) {
            MPI_Win_lock(MPI_LOCK_SHARED, last, 0, w);
            operation();
            MPI_Win_unlock(last, w);
        });
    };
    time_locked(
        "beside:fetch_and_op", 4, [&] { MPI_Fetch_and_op(in.data(), out.data(), MPI_INT, last, 0, MPI_SUM, w); });
    time_locked("beside:get_accumulate", 32, [&] {
        MPI_Get_accumulate(in.data(), 8, MPI_INT, out.data(), 8, MPI_INT, last, 0, 1, every_other, MPI_SUM, w);
    });
    time_locked(
        "beside:accumulate", 32, [&] { MPI_Accumulate(in.data(), 8, MPI_INT, last, 0, 1, every_other, MPI_SUM, w); });
    MPI_Win_free(&w);
    MPI_Type_free(&every_other);
}

// The receives are posted before the barrier.
void time_synchronous_sends(int last) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int calls = 20, bytes = 1 << 20;
    std::vector<char> data(bytes);
    std::vector<MPI_Request> receives(rank == last ? calls : 0);
    int tag = 0;
    for (MPI_Request& r : receives) MPI_Irecv(data.data(), bytes, MPI_BYTE, 0, tag++, MPI_COMM_WORLD, &r);
    time_beside(
        "beside:ssend", bytes, calls, [&](int i) { MPI_Ssend(data.data(), bytes, MPI_BYTE, last, i, MPI_COMM_WORLD); });
    MPI_Waitall(static_cast<int>(receives.size()), receives.data(), MPI_STATUSES_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc > 1) seconds = std::atof(argv[1]);
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    time("barrier", 0, [] { MPI_Barrier(MPI_COMM_WORLD); });
#if MPI_VERSION >= 4
    time_persistent();
#endif
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
    if (size > 1) {
        time_one_sided(size - 1);
        time_synchronous_sends(size - 1);
    }
    MPI_Finalize();
}
