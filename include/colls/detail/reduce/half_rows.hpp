// Converts rows of half to rows of float and back, for the reduce loops.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// By F16C where the processor has it (eight numbers an instruction), else by the integer code of small_float.hpp. Both
// give the same bits (but for the quiet bit of a NaN).
#pragma once

#include <colls/config.hpp>
#include <colls/types.hpp>

#include <cstddef>

namespace colls::inline v1::detail {

[[gnu::always_inline]] inline void widen_row_portable(float* to, const half* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
[[gnu::always_inline]] inline void narrow_row_portable(half* to, const float* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = half(from[i]);
}

#if defined(__x86_64__) && defined(__GNUC__)
using eight_halves = short __attribute__((vector_size(16)));
using eight_floats = float __attribute__((vector_size(32)));

[[gnu::target("avx,f16c")]] inline void widen_row_f16c(float* to, const half* from, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        eight_halves h;
        __builtin_memcpy(&h, from + i, sizeof h);
        const eight_floats f = __builtin_ia32_vcvtph2ps256(h);
        __builtin_memcpy(to + i, &f, sizeof f);
    }
    widen_row_portable(to + i, from + i, count - i);
}
[[gnu::target("avx,f16c")]] inline void narrow_row_f16c(half* to, const float* from, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        eight_floats f;
        __builtin_memcpy(&f, from + i, sizeof f);
        const auto h = __builtin_ia32_vcvtps2ph256(f, 0);  // 0: to nearest, ties to even
        __builtin_memcpy(static_cast<void*>(to + i), &h, sizeof h);
    }
    narrow_row_portable(to + i, from + i, count - i);
}
inline bool has_f16c() {
#if defined(__clang__) && __clang_major__ < 19  // clang 16 does not know the name; what has AVX2 has this, too
    return __builtin_cpu_supports("avx2");
#else
    return __builtin_cpu_supports("f16c");
#endif
}
#endif

inline void widen_row(float* to, const half* from, std::size_t count) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (has_f16c()) return widen_row_f16c(to, from, count);
#endif
    widen_row_portable(to, from, count);
}
inline void narrow_row(half* to, const float* from, std::size_t count) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (has_f16c()) return narrow_row_f16c(to, from, count);
#endif
    narrow_row_portable(to, from, count);
}

}  // namespace colls::inline v1::detail
