// Groups of processes, on one host and on several, compiled once for programs whose units define COLLS_SEPARATE
// (CMake: colls::separate). The engine of the calls is engine.cpp.
#ifndef COLLS_SEPARATE
#define COLLS_SEPARATE
#endif
#define COLLS_SEPARATE_SOURCE
#include <colls/detail/execute/messaging_backend.hpp>
#include <colls/detail/transport/hosts/world.hpp>
