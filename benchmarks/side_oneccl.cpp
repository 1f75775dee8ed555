// A peer: the collectives of oneCCL on the CPU. MPI only starts the ranks.
#include "measure.hpp"

#include <mpi.h>
#include <oneapi/ccl.hpp>

#include <exception>

namespace {

struct ccl_side {
    const ccl::communicator& comm;

    void run(bench::job what, std::span<float> in, std::span<float> out, std::uint32_t) const {
        using bench::job;
        constexpr auto type = ccl::datatype::float32;
        constexpr auto sum = ccl::reduction::sum;
        const auto ranks = static_cast<std::size_t>(comm.size());
        switch (what) {
            case job::all_reduce:
                ccl::allreduce(in.data(), out.data(), in.size(), type, sum, comm).wait();
                break;
            case job::all_reduce_in_place:
                ccl::allreduce(out.data(), out.data(), out.size(), type, sum, comm).wait();
                break;
            case job::broadcast:
                ccl::broadcast(out.data(), out.size(), type, 0, comm).wait();
                break;
            case job::all_gather:
                ccl::allgather(in.data(), out.data(), in.size(), type, comm).wait();
                break;
            case job::reduce_scatter:
                ccl::reduce_scatter(in.data(), out.data(), out.size(), type, sum, comm).wait();
                break;
            case job::all_to_all:
                ccl::alltoall(in.data(), out.data(), in.size() / ranks, type, comm).wait();
                break;
            default:
                break;
        }
    }
    std::string chosen(bench::job, std::size_t, std::uint32_t) const { return {}; }
};

/// The communicator of all ranks; rank 0's address reaches the others through MPI.
ccl::communicator connect(int ranks, int rank) {
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::kvs::address_type address{};
    if (rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0) store = ccl::create_kvs(address);
    return ccl::create_communicator(ranks, rank, store);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fputs("usage: side_oneccl CONTROL SIDE LARGEST  (started by a driver)\n", stderr);
        return 2;
    }
    MPI_Init(&argc, &argv);
    try {
        int rank = 0, ranks = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        ccl::init();
        const ccl::communicator comm = connect(ranks, rank);
        bench::shared_control shared(argv[1], false);
        const std::size_t count = std::strtoull(argv[3], nullptr, 10) / sizeof(float);
        const bench::buffer in(count), out(count);
        bench::serve(*shared, std::atoi(argv[2]), rank, in.first(count), out.first(count), ccl_side{comm});
    } catch (const std::exception& e) {
        std::fprintf(stderr, "side_oneccl: %s\n", e.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
}
