// Stands for a library of MPI for Fortran, whose name it has: it calls MPI by PMPI_Barrier.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

extern "C" int (*called_for_fortran())(MPI_Comm) { return &PMPI_Barrier; }
