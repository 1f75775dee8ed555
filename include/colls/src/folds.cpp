// The reduce loops of the usual element types and operators, compiled once for programs whose units define
// COLLS_SEPARATE (CMake: colls::separate).
#ifndef COLLS_SEPARATE
#define COLLS_SEPARATE
#endif
#define COLLS_SEPARATE_SOURCE
#include <colls/detail/reduce/known_folds.hpp>
#include <colls/types.hpp>

namespace colls::inline v1::detail {
#define COLLS_COMPILE(T, Op) template void fold_entry<T, Op>(void*, const operand*, int, std::size_t, const void*);
COLLS_KNOWN_FOLDS(COLLS_COMPILE)
#undef COLLS_COMPILE
#define COLLS_COMPILE(T, Op) \
    template bool fold_twice_entry<T, Op>(void*, void*, past_caches, const operand*, std::size_t, const void*);
COLLS_KNOWN_DIRECT_FOLDS(COLLS_COMPILE)
#undef COLLS_COMPILE
}  // namespace colls::inline v1::detail
