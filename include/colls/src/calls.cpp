// What is behind the calls, and groups of threads, compiled once for programs whose units define COLLS_SEPARATE (CMake:
// colls::colls).
#undef COLLS_SEPARATE
#define COLLS_SEPARATE_SOURCE
#include <colls/colls.hpp>
#include <colls/redistribute.hpp>
#include <colls/transports/threads.hpp>
