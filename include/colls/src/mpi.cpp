// Groups over MPI, compiled once for programs whose units define COLLS_SEPARATE
// (CMake: colls::mpi_separate). The engine of the calls is engine.cpp.
#ifndef COLLS_SEPARATE
#define COLLS_SEPARATE
#endif
#define COLLS_SEPARATE_SOURCE
#include <colls/detail/transport/mpi/group.hpp>
