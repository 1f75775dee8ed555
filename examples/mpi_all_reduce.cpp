// The calls in an MPI program: over the program's own MPI communicator, beside its own MPI calls.
//
// Build: mpicxx -std=c++20 -O2 -pthread -Iinclude examples/mpi_all_reduce.cpp -o mpi_all_reduce
// Run:   mpirun -n 4 ./mpi_all_reduce
#include <colls/colls.hpp>
#include <colls/transports/mpi.hpp>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    bool right = true;
    {  // the communicator must be destroyed before MPI_Finalize
        // example-begin communicator
        colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD);
        std::vector<double> histogram(1000, comm.rank() + 1.0);
        colls::all_reduce<colls::ring>(comm, histogram, colls::sum);
        // example-end

        // MPI's own all-reduce must give the same result.
        std::vector<double> own(1000, comm.rank() + 1.0);
        MPI_Allreduce(MPI_IN_PLACE, own.data(), 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        right = own == histogram;

        // A communicator of the ranks of one host.
        MPI_Comm host;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
        colls::communicator here = colls::mpi::communicator_of(host);
        MPI_Comm_free(&host);
        int ranks[1] = {1};
        colls::all_reduce(here, ranks, colls::sum);
        right = right && ranks[0] == here.size();
        if (comm.rank() == 0)
            std::printf(
                "%d ranks, %d of them on this host: the sums %s\n", comm.size(), ranks[0], right ? "agree" : "differ");
    }
    MPI_Finalize();
    return right ? 0 : 1;
}
