// Functions of MPI that take counts, each twice: with counts of int, and, where MPI has them (MPI 4), of MPI_Count,
// under a name that ends in _c. COLLS_MPI_FUNCTIONS is the header that defines them, by these macros:
//
//     MPI_NAME(Bcast)         MPI_Bcast or MPI_Bcast_c
//     PMPI_NAME(Bcast)        the same of MPI itself
//     MPI_INIT_NAME(Bcast)    the function that makes the persistent call, and PMPI_INIT_NAME(Bcast)
//     ROW(bcast)              the function's row of the report
//     COUNT, DISPLACEMENT     the types of counts, and of displacements that are int in the first form
#include "numbers.hpp"
#include "persistent.hpp"
#include "report.hpp"

extern "C" {

#define MPI_NAME(name) MPI_##name
#define PMPI_NAME(name) PMPI_##name
#define MPI_INIT_NAME(name) COLLS_MPI_PERSISTENT(name)
#define PMPI_INIT_NAME(name) COLLS_MPI_PERSISTENT_OF_MPI(name)
#define ROW(name) colls_mpi::function::name
#define COUNT int
#define DISPLACEMENT int
#include COLLS_MPI_FUNCTIONS
#undef MPI_NAME
#undef PMPI_NAME
#undef MPI_INIT_NAME
#undef PMPI_INIT_NAME
#undef ROW
#undef COUNT
#undef DISPLACEMENT

#if MPI_VERSION >= 4
#define MPI_NAME(name) MPI_##name##_c
#define PMPI_NAME(name) PMPI_##name##_c
#define MPI_INIT_NAME(name) MPI_##name##_init_c
#define PMPI_INIT_NAME(name) PMPI_##name##_init_c
#define ROW(name) colls_mpi::large(colls_mpi::function::name)
#define COUNT MPI_Count
#define DISPLACEMENT MPI_Aint
#include COLLS_MPI_FUNCTIONS
#undef MPI_NAME
#undef PMPI_NAME
#undef MPI_INIT_NAME
#undef PMPI_INIT_NAME
#undef ROW
#undef COUNT
#undef DISPLACEMENT
#endif

}  // extern "C"

#undef COLLS_MPI_FUNCTIONS
