// The usual element types and operators.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// For units that define COLLS_SEPARATE their loops are compiled once: in src/folds.cpp, or with COLLS_IMPLEMENTATION.
#pragma once

#include <colls/detail/reduce/fold.hpp>
#include <colls/types.hpp>

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

#if defined(COLLS_IMPLEMENTATION) || defined(COLLS_SEPARATE_FOLDS)
#define COLLS_COMPILED template
#elif defined(COLLS_SEPARATE)
#define COLLS_COMPILED extern template
#endif
#ifdef COLLS_COMPILED
namespace colls::inline v1::detail {
#define COLLS_COMPILE(T, Op) \
    COLLS_COMPILED void fold_entry<T, Op>(void*, const operand*, int, std::size_t, const void*);
COLLS_KNOWN_FOLDS(COLLS_COMPILE)
#undef COLLS_COMPILE
#define COLLS_COMPILE(T, Op) \
    COLLS_COMPILED bool fold_twice_entry<T, Op>(void*, void*, past_caches, const operand*, std::size_t, const void*);
COLLS_KNOWN_DIRECT_FOLDS(COLLS_COMPILE)
#undef COLLS_COMPILE
}  // namespace colls::inline v1::detail
#undef COLLS_COMPILED
#endif
