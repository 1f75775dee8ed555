// The reduce loops of the usual element types and operators, compiled once for programs whose units define
// COLLS_SEPARATE (CMake: colls::colls).
#ifndef COLLS_SEPARATE
#define COLLS_SEPARATE
#endif
#define COLLS_SEPARATE_SOURCE
#define COLLS_SEPARATE_FOLDS
#include <colls/detail/reduce/known_folds.hpp>
