// A peer: the collectives of the MPI library that it is linked against.
#include "measure.hpp"

#define OMPI_SKIP_MPICXX 1  // without the C++ interface, which MPI has removed, and which causes warnings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <exception>
#include <vector>

namespace {

struct mpi_side {
    int rank, ranks;

    /// variant 1: reduce_scatter by MPI_Reduce_scatter, which some libraries do faster.
    void run(bench::job what, std::span<float> in, std::span<float> out, std::uint32_t variant) const {
        using bench::job;
        const bool by_output =
            what == job::reduce_scatter || what == job::broadcast || what == job::all_reduce_in_place;
        const int count = static_cast<int>(by_output ? out.size() : in.size());
        switch (what) {
            case job::all_reduce:
                MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                break;
            case job::all_reduce_in_place:
                MPI_Allreduce(MPI_IN_PLACE, out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                break;
            case job::broadcast:
                MPI_Bcast(out.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
                break;
            case job::all_gather:
                MPI_Allgather(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
                break;
            case job::reduce_scatter:
                if (variant == 0)
                    MPI_Reduce_scatter_block(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                else
                    MPI_Reduce_scatter(in.data(), out.data(),
                        std::vector<int>(static_cast<std::size_t>(ranks), count).data(), MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD);
                break;
            case job::all_to_all:
                MPI_Alltoall(in.data(), count / ranks, MPI_FLOAT, out.data(), count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
                break;
            default:
                break;
        }
    }
    std::string chosen(bench::job, std::size_t, std::uint32_t) const { return {}; }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fputs("usage: side_mpi CONTROL SIDE LARGEST  (started by compare)\n", stderr);
        return 2;
    }
    MPI_Init(&argc, &argv);
    int status = 0;
    try {
        mpi_side side{};
        MPI_Comm_rank(MPI_COMM_WORLD, &side.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &side.ranks);
        bench::shared_control shared(argv[1], false);
        const std::size_t count = std::strtoull(argv[3], nullptr, 10) / sizeof(float);
        const bench::buffer in(count), out(count);
        bench::serve(*shared, std::atoi(argv[2]), side.rank, in.first(count), out.first(count), side);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "side_mpi: %s\n", e.what());
        status = 1;
        MPI_Abort(MPI_COMM_WORLD, status);
    }
    MPI_Finalize();
    return status;
}
