// In an MPI program: the same calls over the user's own communicator, beside what the program says through MPI itself.
//     mpirun -n 4 mpi_all_reduce
#include <colls/colls.hpp>
#include <colls/transports/mpi.hpp>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    bool right = true;
    {  // before MPI_Finalize the communicator must be gone
        // example-begin communicator
        colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD);
        std::vector<double> histogram(1000, comm.rank() + 1.0);
        colls::all_reduce<colls::ring>(comm, histogram, colls::sum);
        // example-end

        // MPI itself must come to the same.
        std::vector<double> own(1000, comm.rank() + 1.0);
        MPI_Allreduce(MPI_IN_PLACE, own.data(), 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        right = own == histogram;

        // The ranks of one host among themselves.
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
