#include "report.hpp"

#include "configuration.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iterator>

namespace colls_mpi {

namespace {

constexpr const char* names[] = {"MPI_Barrier", "MPI_Bcast", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter", "MPI_Scatterv",
    "MPI_Allgather", "MPI_Allgatherv", "MPI_Alltoall", "MPI_Alltoallv", "MPI_Alltoallw", "MPI_Reduce", "MPI_Allreduce",
    "MPI_Reduce_scatter_block", "MPI_Reduce_scatter", "MPI_Scan", "MPI_Exscan", "MPI_Neighbor_allgather",
    "MPI_Neighbor_allgatherv", "MPI_Neighbor_alltoall", "MPI_Neighbor_alltoallv", "MPI_Neighbor_alltoallw",
    "MPI_Ibarrier", "MPI_Ibcast", "MPI_Igather", "MPI_Igatherv", "MPI_Iscatter", "MPI_Iscatterv", "MPI_Iallgather",
    "MPI_Iallgatherv", "MPI_Ialltoall", "MPI_Ialltoallv", "MPI_Ialltoallw", "MPI_Ireduce", "MPI_Iallreduce",
    "MPI_Ireduce_scatter_block", "MPI_Ireduce_scatter", "MPI_Iscan", "MPI_Iexscan", "MPI_Ineighbor_allgather",
    "MPI_Ineighbor_allgatherv", "MPI_Ineighbor_alltoall", "MPI_Ineighbor_alltoallv", "MPI_Ineighbor_alltoallw",
    "MPI_Barrier_init", "MPI_Bcast_init", "MPI_Gather_init", "MPI_Gatherv_init", "MPI_Scatter_init",
    "MPI_Scatterv_init", "MPI_Allgather_init", "MPI_Allgatherv_init", "MPI_Alltoall_init", "MPI_Alltoallv_init",
    "MPI_Alltoallw_init", "MPI_Reduce_init", "MPI_Allreduce_init", "MPI_Reduce_scatter_block_init",
    "MPI_Reduce_scatter_init", "MPI_Scan_init", "MPI_Exscan_init", "MPI_Neighbor_allgather_init",
    "MPI_Neighbor_allgatherv_init", "MPI_Neighbor_alltoall_init", "MPI_Neighbor_alltoallv_init",
    "MPI_Neighbor_alltoallw_init"};
constexpr std::size_t function_count = sizeof names / sizeof *names;
static_assert(function_count == static_cast<std::size_t>(function::neighbor_alltoallw_init) + 1);

struct figures {
    std::atomic<std::int64_t> calls = 0, nanoseconds = 0;

    double mean_us() const {
        const std::int64_t n = calls;
        return n == 0 ? 0 : static_cast<double>(nanoseconds) / static_cast<double>(n) / 1e3;
    }
};
struct {
    figures colls, mpi;
} all[2 * function_count];  // with counts of int, and of MPI_Count

std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

std::string name_of(function which) {
    const auto i = static_cast<std::size_t>(which);
    return i < function_count ? names[i] : std::string(names[i - function_count]) + "_c";
}

call_timer::call_timer() {
    if (configured().report) begin_ = now();
}
void call_timer::ended(function which, bool by_colls) const {
    if (begin_ == 0) return;
    auto& row = all[static_cast<std::size_t>(which)];
    figures& f = by_colls ? row.colls : row.mpi;
    f.calls.fetch_add(1, std::memory_order_relaxed);
    f.nanoseconds.fetch_add(now() - begin_, std::memory_order_relaxed);
}

void print_report(int rank, int size) {
    std::fprintf(stderr, "colls_mpi: the calls of rank %d of %d\n", rank, size);
    std::fprintf(stderr, "%-30s%12s%12s%12s%12s\n", "function", "colls", "mean us", "MPI", "mean us");
    for (std::size_t i = 0; i < std::size(all); ++i) {
        const figures &colls = all[i].colls, &mpi = all[i].mpi;
        if (colls.calls == 0 && mpi.calls == 0) continue;
        std::fprintf(stderr, "%-30s%12lld%12.2f%12lld%12.2f\n", name_of(static_cast<function>(i)).c_str(),
            static_cast<long long>(colls.calls), colls.mean_us(), static_cast<long long>(mpi.calls), mpi.mean_us());
    }
}

}  // namespace colls_mpi
