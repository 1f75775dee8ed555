// A loop as compiled for the processor that runs it.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

/// Runs `loop`, a function that is always inlined, as compiled for AVX2 where the processor has it. (The folds, which
/// also need AVX-512 and an optimisation level of their own, and loops of special instructions choose for themselves:
/// fold.hpp, copy.hpp.)
template <auto loop>
struct for_processor;
template <class R, class... A, R (*loop)(A...)>
struct for_processor<loop> {
    static R baseline(A... a) { return loop(a...); }
#if defined(__x86_64__) && defined(__GNUC__)
    [[gnu::target("avx2")]] static R by_avx2(A... a) { return loop(a...); }
#endif
    static R run(A... a) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__)
        if (__builtin_cpu_supports("avx2")) return by_avx2(a...);
#endif
        return baseline(a...);
    }
};

}  // namespace colls::inline v1::detail
