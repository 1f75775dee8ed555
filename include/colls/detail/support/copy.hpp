// Copies with plain and with non-temporal stores.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Non-temporal stores are the fastest way into another rank's memory: the line is not fetched first, and does not stay
// in this core's cache, from which the other core would have to fetch it. On x86-64 only a store fence orders them. On
// AArch64 they are a hint to the processor, in the order of plain stores.
#pragma once

#include <colls/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace colls::inline v1::detail {

/// True where non-temporal stores are used. Not under the sanitizers, which do not see them.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__GNUC__) || \
    !(defined(__x86_64__) || defined(__aarch64__))
inline constexpr bool streams = false;
#elif defined(__clang__)
inline constexpr bool streams = !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer);
#else
inline constexpr bool streams = true;
#endif

#if defined(__aarch64__) && defined(__GNUC__)
/// Pairs of vectors of 16 bytes, each stored by one instruction, for which g++ has no builtin.
[[gnu::always_inline]] inline void stream_line_neon(void* dst, const void* src) {
    using V = long long __attribute__((vector_size(16)));
    V v[4];
    std::memcpy(v, src, 64);
    asm volatile("stnp %q1, %q2, [%0]\n\tstnp %q3, %q4, [%0, #32]"
        :
        : "r"(dst), "w"(v[0]), "w"(v[1]), "w"(v[2]), "w"(v[3])
        : "memory");
}
#endif
#if defined(__x86_64__) && defined(__GNUC__)
// Written with the compilers' vector types: <immintrin.h> takes ten times as long to compile as the rest of this
// header.
template <bool streamed>
void move_lines_sse2(char* dst, const char* src, std::size_t lines) {
    using V = long long __attribute__((vector_size(16)));
    for (; lines != 0; --lines, dst += 64, src += 64) {
        V v[4];
        std::memcpy(v, src, 64);
        for (int q = 0; q < 4; ++q) {
            V* const to = reinterpret_cast<V*>(dst) + q;
            if constexpr (!streamed)
                *to = v[q];
            else
#if defined(__clang__)
                __builtin_nontemporal_store(v[q], to);
#else
                __builtin_ia32_movntdq(to, v[q]);
#endif
        }
    }
}
// Always inlined: g++ inlines no other function into one of another optimisation level, as the folds are.
template <bool streamed>
[[gnu::always_inline, gnu::target("avx512f")]] inline void move_line_avx512(void* dst, const void* src) {
    using V = long long __attribute__((vector_size(64)));
    V v;
    std::memcpy(&v, src, 64);
    if constexpr (!streamed)
        *static_cast<V*>(dst) = v;
    else
#if defined(__clang__)
        __builtin_nontemporal_store(v, static_cast<V*>(dst));
#else
        __builtin_ia32_movntdq512(static_cast<V*>(dst), v);
#endif
}
[[gnu::always_inline, gnu::target("avx2")]] inline void stream_line_avx2(void* dst, const void* src) {
    using V = long long __attribute__((vector_size(32)));
    V v[2];
    std::memcpy(v, src, 64);
    for (int h = 0; h < 2; ++h)
#if defined(__clang__)
        __builtin_nontemporal_store(v[h], static_cast<V*>(dst) + h);
#else
        __builtin_ia32_movntdq256(static_cast<V*>(dst) + h, v[h]);
#endif
}
template <bool streamed>
[[gnu::target("avx512f")]] void move_lines_avx512(char* dst, const char* src, std::size_t lines) {
    for (; lines != 0; --lines, dst += 64, src += 64) move_line_avx512<streamed>(dst, src);
}
#endif

/// Fetches a line for a store that follows soon: no other core has it then. (Processors without the instruction skip
/// it. __builtin_prefetch has it only with an option of the compiler.)
inline void prefetch_to_store(const void* p) {
#if defined(__x86_64__) && defined(__GNUC__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#elif defined(__GNUC__)
    __builtin_prefetch(p, 1);
#endif
}

/// Does memcpy, which takes `rep movsb` for such sizes, take up to 16 times as long on AMD Zen 3 and 4 (glibc bug
/// 30994)? There the destination lies less than a line behind the source, counted within their pages.
inline bool is_slow_for_memcpy(const void* dst, const void* src, std::size_t size) {
    const std::uintptr_t behind = reinterpret_cast<std::uintptr_t>(dst) - reinterpret_cast<std::uintptr_t>(src);
    return size >= (std::size_t{2} << 10) && size < (std::size_t{8} << 20) && (behind - 1) % 4096 < 63;
}
/// Copies the whole lines of `dst` by `lines(dst, src, how many)`, and what is before and behind them by memcpy.
template <class Lines>
void copy_by_lines(void* dst, const void* src, std::size_t size, Lines lines) {
    char* const d = static_cast<char*>(dst);
    const char* const s = static_cast<const char*>(src);
    const std::size_t to_line = (64 - reinterpret_cast<std::uintptr_t>(d) % 64) % 64;
    const std::size_t whole = (size - to_line) / 64, behind = to_line + 64 * whole;
    std::memcpy(d, s, to_line);
    lines(d + to_line, s + to_line, whole);
    std::memcpy(d + behind, s + behind, size - behind);
}
/// Copies with plain stores.
inline void copy_bytes(void* dst, const void* src, std::size_t size) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (streams && is_slow_for_memcpy(dst, src, size))
        return copy_by_lines(dst, src, size, [](char* d, const char* s, std::size_t lines) {
            __builtin_cpu_supports("avx512f") ? move_lines_avx512<false>(d, s, lines)
                                              : move_lines_sse2<false>(d, s, lines);
        });
#endif
    if (size != 0) std::memcpy(dst, src, size);
}

/// stream_bytes without its fence. After the last of several pieces, call fence_stream().
inline void stream_bytes_unfenced(void* dst, const void* src, std::size_t size) {
    if (!streams || size < 64 + (64 - reinterpret_cast<std::uintptr_t>(dst) % 64) % 64)
        return copy_bytes(dst, src, size);
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
    copy_by_lines(dst, src, size, [](char* d, const char* s, std::size_t lines) {
#if defined(__aarch64__)
        for (; lines != 0; --lines, d += 64, s += 64) stream_line_neon(d, s);
#else
        __builtin_cpu_supports("avx512f") ? move_lines_avx512<true>(d, s, lines) : move_lines_sse2<true>(d, s, lines);
#endif
    });
#endif
}
inline void fence_stream() {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_sfence();
#elif defined(__aarch64__) && defined(__GNUC__)
    asm volatile("dmb ishst" ::: "memory");
#endif
}

/// Copies with non-temporal stores, whole 64-byte lines of dst at a time, and the partial lines at its ends with plain
/// ones. A store that follows the call (of a flag, even relaxed) is seen after the bytes. A plain copy on other
/// processors than x86-64 and AArch64.
inline void stream_bytes(void* dst, const void* src, std::size_t size) {
    stream_bytes_unfenced(dst, src, size);
    fence_stream();
}

}  // namespace colls::inline v1::detail
