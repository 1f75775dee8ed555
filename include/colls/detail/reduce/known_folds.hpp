// The usual element types and operators.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Their loops are compiled once, in src/folds.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/detail/reduce/fold.hpp>

// action(type, operator) for all of them.
#define COLLS_KNOWN_FOLDS_OF(action, T) action(T, sum_t) action(T, prod_t) action(T, min_t) action(T, max_t)
#define COLLS_KNOWN_FOLDS(action)      \
    COLLS_KNOWN_DIRECT_FOLDS(action)   \
    COLLS_KNOWN_FOLDS_OF(action, half) \
    COLLS_KNOWN_FOLDS_OF(action, bfloat16)
// Those that need no accumulator of another type.
#define COLLS_KNOWN_DIRECT_FOLDS(action)         \
    COLLS_KNOWN_FOLDS_OF(action, float)          \
    COLLS_KNOWN_FOLDS_OF(action, double)         \
    COLLS_KNOWN_FOLDS_OF(action, signed char)    \
    COLLS_KNOWN_FOLDS_OF(action, unsigned char)  \
    COLLS_KNOWN_FOLDS_OF(action, short)          \
    COLLS_KNOWN_FOLDS_OF(action, unsigned short) \
    COLLS_KNOWN_FOLDS_OF(action, int)            \
    COLLS_KNOWN_FOLDS_OF(action, unsigned)       \
    COLLS_KNOWN_FOLDS_OF(action, long)           \
    COLLS_KNOWN_FOLDS_OF(action, unsigned long)

#ifdef COLLS_SEPARATE
namespace colls::inline v1::detail {
#define COLLS_COMPILED_APART(T, Op) \
    extern template void fold_entry<T, Op>(void*, const operand*, int, std::size_t, const void*);
COLLS_KNOWN_FOLDS(COLLS_COMPILED_APART)
#undef COLLS_COMPILED_APART
#define COLLS_COMPILED_APART(T, Op) \
    extern template bool fold_twice_entry<T, Op>(void*, void*, past_caches, const operand*, std::size_t, const void*);
COLLS_KNOWN_DIRECT_FOLDS(COLLS_COMPILED_APART)
#undef COLLS_COMPILED_APART
}  // namespace colls::inline v1::detail
#endif
