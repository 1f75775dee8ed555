// Calls whose types are known at run time, with the reduce loops of all types and operators, compiled once for programs
// whose units define COLLS_SEPARATE (CMake: colls::colls). The calls themselves are in calls.cpp.
#ifndef COLLS_SEPARATE
#define COLLS_SEPARATE
#endif
#define COLLS_SEPARATE_SOURCE
#include <colls/dynamic/detail/definitions.hpp>
