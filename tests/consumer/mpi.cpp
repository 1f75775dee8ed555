// A user's MPI program, built and not run: launchers are tested elsewhere.
#include <colls/colls.hpp>
#include <colls/transports/mpi.hpp>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    {
        colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD);
        colls::barrier(comm);
    }
    return MPI_Finalize();
}
