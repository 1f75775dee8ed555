// MPI's C interface alone: its C++ interface is gone from the standard and from newer libraries.
// IWYU pragma: private, include <colls/transports/mpi.hpp>
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
