// The end, and errors.
#include "call.hpp"
#include "configuration.hpp"

#include <cstdio>

namespace colls_mpi {

int failed(function which, MPI_Comm comm, int code, const char* text) {
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "colls_mpi: %s on rank %d of MPI_COMM_WORLD: %s\n", name_of(which).c_str(), rank, text);
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

}  // namespace colls_mpi

extern "C" int MPI_Finalize() {
    using namespace colls_mpi;
    int initialised = 0, finalised = 0;
    PMPI_Initialized(&initialised);
    PMPI_Finalized(&finalised);
    if (initialised != 0 && finalised == 0) {
        int rank = 0, size = 1;
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        PMPI_Comm_size(MPI_COMM_WORLD, &size);
        end_groups();
        if (configured().report && rank == 0) print_report(rank, size);
    }
    return PMPI_Finalize();
}
