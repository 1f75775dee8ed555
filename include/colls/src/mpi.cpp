// Groups over MPI, compiled once for programs whose units define COLLS_SEPARATE
// (CMake: colls::mpi). The calls themselves are in calls.cpp.
#ifndef COLLS_SEPARATE
#define COLLS_SEPARATE
#endif
#define COLLS_SEPARATE_SOURCE
#include <colls/mpi/detail/run.hpp>
