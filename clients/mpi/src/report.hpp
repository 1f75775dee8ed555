// How many calls have gone through colls, how many to MPI, and how long they took.
#pragma once

#include <cstdint>
#include <string>

namespace colls_mpi {

/// The collectives that this library defines.
enum class function : unsigned char {
    barrier,
    bcast,
    gather,
    gatherv,
    scatter,
    scatterv,
    allgather,
    allgatherv,
    alltoall,
    alltoallv,
    alltoallw,
    reduce,
    allreduce,
    reduce_scatter_block,
    reduce_scatter,
    scan,
    exscan,
    neighbor_allgather,
    neighbor_allgatherv,
    neighbor_alltoall,
    neighbor_alltoallv,
    neighbor_alltoallw,
    ibarrier,
    ibcast,
    igather,
    igatherv,
    iscatter,
    iscatterv,
    iallgather,
    iallgatherv,
    ialltoall,
    ialltoallv,
    ialltoallw,
    ireduce,
    iallreduce,
    ireduce_scatter_block,
    ireduce_scatter,
    iscan,
    iexscan,
    ineighbor_allgather,
    ineighbor_allgatherv,
    ineighbor_alltoall,
    ineighbor_alltoallv,
    ineighbor_alltoallw,
    barrier_init,
    bcast_init,
    gather_init,
    gatherv_init,
    scatter_init,
    scatterv_init,
    allgather_init,
    allgatherv_init,
    alltoall_init,
    alltoallv_init,
    alltoallw_init,
    reduce_init,
    allreduce_init,
    reduce_scatter_block_init,
    reduce_scatter_init,
    scan_init,
    exscan_init,
    neighbor_allgather_init,
    neighbor_allgatherv_init,
    neighbor_alltoall_init,
    neighbor_alltoallv_init,
    neighbor_alltoallw_init
};
/// The same function with counts of MPI_Count.
constexpr function large(function which) {
    return static_cast<function>(
        static_cast<unsigned char>(which) + static_cast<unsigned char>(function::neighbor_alltoallw_init) + 1);
}
/// As MPI names it; the extension of Open MPI 4 says MPIX_ instead of MPI_.
std::string name_of(function which);

/// Times one call, from its construction to `ended`: of a non-blocking or persistent one only its start. Costs nothing
/// where no report is wanted.
class call_timer {
public:
    call_timer();
    /// `by_colls`: the call went through colls, else to MPI.
    void ended(function which, bool by_colls) const;

private:
    std::int64_t begin_ = 0;  // nanoseconds; 0: no report is wanted
};

/// Prints the table of this rank, of `size`, to stderr.
void print_report(int rank, int size);

}  // namespace colls_mpi
