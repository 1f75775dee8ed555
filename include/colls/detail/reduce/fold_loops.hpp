// The reduce loops, each one pass over memory for two operands or more.
// IWYU pragma: private, include <colls/collectives.hpp>
//
//   direct_fold   pure operators on built-in numbers: up to four operands at a time, straight into dst
//   paired_fold   pure operators on bfloat16: two of them in a 32-bit word, folded in float, rounded once
//   tile_fold     everything else: partial folds in a tile on the stack, in the accumulator if the type has one
// fold.hpp compiles them for several processors and chooses one.
#pragma once

#include <colls/detail/support/copy.hpp>
#include <colls/operators.hpp>

#include <cstddef>
#include <cstring>
#include <type_traits>

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // not every operator vectorises
#endif

namespace colls::inline v1::detail {

struct operand {
    const void* data = nullptr;
};

/// True where T is folded by Op in T's accumulator, and rounded once.
template <class T, class Op>
inline constexpr bool accumulates = !std::is_same_v<accumulator_of<T, Op>, T>;
template <class T, class Op>
inline constexpr bool folds_in_float = is_small_float<T> && accumulates<T, Op>;

/// Calls f(0) ... f(n - 1), n a multiple of lanes, in any order: the caller promises that nothing which f(i) writes is
/// read by another f(j). g++ -O2 vectorises because the inner trip count is constant.
template <std::size_t lanes, class F>
[[gnu::always_inline]] inline void for_each_parallel(std::size_t n, F f) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety) interleave_count(2) unroll(disable)
    for (std::size_t i = 0; i < n / lanes * lanes; ++i) f(i);
#else
    for (std::size_t b = 0; b < n; b += lanes)
#pragma GCC ivdep
        for (std::size_t l = 0; l < lanes; ++l) f(b + l);
#endif
}
/// The same without the promise: the compiler vectorises only if it finds that no write overlaps a read.
template <std::size_t lanes, class F>
[[gnu::always_inline]] inline void for_each_checked(std::size_t n, F f) {
#if defined(__clang__)
#pragma clang loop interleave_count(2) unroll(disable)
    for (std::size_t i = 0; i < n / lanes * lanes; ++i) f(i);
#else
    for (std::size_t b = 0; b < n; b += lanes)
        for (std::size_t l = 0; l < lanes; ++l) f(b + l);
#endif
}

/// Folds element by element, in T or in float: the tails of the loops below. Always inlined: g++ turns a call at the
/// end of a function into a jump, which leaves the upper halves of the vector registers dirty and makes what follows
/// slow.
template <class A, class T, class Op>
[[gnu::always_inline]] inline void scalar_fold(
    T* dst, const operand* x, int k, std::size_t first, std::size_t count, const Op& op) {
    for (std::size_t i = first; i < count; ++i) {
        A a = static_cast<A>(static_cast<const T*>(x[0].data)[i]);
        for (int j = 1; j < k; ++j) a = static_cast<A>(op(a, static_cast<A>(static_cast<const T*>(x[j].data)[i])));
        dst[i] = static_cast<T>(a);
    }
}

inline constexpr std::size_t tile_bytes = 2048;

/// Folds at most four operands, of which out may be one.
template <class T, class Op>
struct direct_fold {
    static constexpr std::size_t lanes = 64 / sizeof(T);

    template <int m>
    [[gnu::always_inline]] static void loop(T* out, const operand* x, std::size_t n, const Op& op) {
        const operand a = x[0], b = x[m > 1 ? 1 : 0], c = x[m > 2 ? 2 : 0], d = x[m > 3 ? 3 : 0];
        for_each_parallel<lanes>(n, [=](std::size_t i) {
            const auto get = [&](const operand& o) { return static_cast<const T*>(o.data)[i]; };
            T v = get(a);
            if constexpr (m > 1) v = static_cast<T>(op(v, get(b)));
            if constexpr (m > 2) v = static_cast<T>(op(v, get(c)));
            if constexpr (m > 3) v = static_cast<T>(op(v, get(d)));
            out[i] = v;
        });
    }
    [[gnu::always_inline]] static T folded(const operand* x, std::size_t i, const Op& op) {
        const auto get = [&](const operand& o) { return static_cast<const T*>(o.data)[i]; };
        return static_cast<T>(op(get(x[0]), get(x[1])));
    }
    /// Two operands, of which out and also may be one each: the fold of elements `first` to `count` goes to both.
    [[gnu::always_inline]] static void run_twice(
        T* out, T* also, const operand* x, std::size_t first, std::size_t count, const Op& op) {
        for (std::size_t i = first; i < count; ++i) out[i] = also[i] = folded(x, i, op);
    }
    /// The same for the elements that are whole groups of lanes; returns the number of them.
    [[gnu::always_inline]] static std::size_t run_twice_by_lanes(
        T* out, T* also, const operand* x, std::size_t count, const Op op) {
        const operand both[] = {x[0], x[1]};
        const std::size_t whole = count & ~(lanes - 1);
        for_each_parallel<lanes>(whole, [=](std::size_t i) { out[i] = also[i] = folded(both, i, op); });
        return whole;
    }
    /// With a loop of its own for each number of operands up to `most`: each takes about 10 ms to compile.
    template <int most = 4>
    [[gnu::always_inline]] static void run(T* out, const operand* x, int m, std::size_t count, const Op op) {
        std::size_t whole = m > 1 && m <= most ? count & ~(lanes - 1) : 0;
        if (m == 2)
            loop<2>(out, x, whole, op);
        else if (most > 2 && m == 3)
            loop<most == 4 ? 3 : 2>(out, x, whole, op);
        else if (most > 2 && m == 4)
            loop<most == 4 ? 4 : 2>(out, x, whole, op);
        else
            whole = 0;
        scalar_fold<T>(out, x, m, whole, count, op);
    }
};

using fold_function = void (*)(void* dst, const operand* x, int k, std::size_t count, const void* op);

/// Folds any number of operands by a function that takes four: partial folds stay in a tile on the stack.
void fold_by_fours(
    fold_function four, std::size_t element, void* dst, const operand* x, int k, std::size_t count, const void* op);
#ifndef COLLS_SEPARATE
COLLS_INLINE void fold_by_fours(
    fold_function four, std::size_t element, void* dst, const operand* x, int k, std::size_t count, const void* op) {
    if (k <= 4) return four(dst, x, k, count, op);
    alignas(64) unsigned char tile[tile_bytes];
    const std::size_t length = tile_bytes / element;
    for (std::size_t at = 0; at < count; at += length) {
        const std::size_t n = count - at < length ? count - at : length, skip = at * element;
        operand group[4];
        int held = 0;  // group[0] is the tile
        for (int j = 0; j < k;) {
            int m = held;
            for (; m < 4 && j < k; ++m, ++j) group[m] = {static_cast<const char*>(x[j].data) + skip};
            four(j < k ? static_cast<void*>(tile) : static_cast<char*>(dst) + skip, group, m, n, op);
            group[0] = {tile};
            held = 1;
        }
    }
}
#endif

/// Folds two small floats in each 32-bit word. The tile keeps the lower ones of a block of words apart from the upper
/// ones, so that no vector is shuffled.
template <class T, class Op>
struct paired_fold {
    static constexpr std::size_t lanes = 16, length = tile_bytes / 2 / sizeof(float);  // in words

    struct pair {
        float low, high;
    };
    [[gnu::always_inline]] static pair get(const operand& o, std::size_t word) {
        unsigned w;
        std::memcpy(&w, static_cast<const char*>(o.data) + 4 * word, 4);
        return {T::format::low(w), T::format::high(w)};
    }
    [[gnu::always_inline]] static pair combine(pair a, pair b, const Op& op) {
        return {static_cast<float>(op(a.low, b.low)), static_cast<float>(op(a.high, b.high))};
    }
    [[gnu::always_inline]] static void put(T* dst, std::size_t word, pair a) {
        const unsigned w = T::format::pack(a.low, a.high);
        std::memcpy(reinterpret_cast<char*>(dst) + 4 * word, &w, 4);
    }

    [[gnu::always_inline]] static void run(T* dst, const operand* x, int k, std::size_t count, const Op op) {
        alignas(64) float low[length], high[length];
        const std::size_t whole = count & ~(2 * lanes - 1);
        const auto operand_at = [=](int q, std::size_t at) { return operand{static_cast<const T*>(x[q].data) + at}; };
        if (k == 2)
            for_each_parallel<lanes>(
                whole / 2, [=, a = x[0], b = x[1]](std::size_t i) { put(dst, i, combine(get(a, i), get(b, i), op)); });
        else if (k == 3)
            for_each_parallel<lanes>(whole / 2, [=, a = x[0], b = x[1], c = x[2]](std::size_t i) {
                put(dst, i, combine(combine(get(a, i), get(b, i), op), get(c, i), op));
            });
        else
            for (std::size_t at = 0; at < whole; at += 2 * length) {
                const std::size_t n = whole - at < 2 * length ? (whole - at) / 2 : length;
                for_each_parallel<lanes>(n, [&, a = operand_at(0, at)](std::size_t i) {
                    const pair p = get(a, i);
                    low[i] = p.low, high[i] = p.high;
                });
                for (int j = 1; j < k; ++j)
                    for_each_parallel<lanes>(n, [&, b = operand_at(j, at)](std::size_t i) {
                        const pair p = combine({low[i], high[i]}, get(b, i), op);
                        low[i] = p.low, high[i] = p.high;
                    });
                for_each_parallel<lanes>(n, [&](std::size_t i) { put(dst + at, i, {low[i], high[i]}); });
            }
        scalar_fold<float>(dst, x, k, whole, count, op);
    }
};

/// Folds anything in a tile, in the accumulator that the type names, if any, and rounds once. No pointer of the
/// operator can point into the tile: so the loops that write it vectorise.
template <class T, class Op>
struct tile_fold {
    using A = accumulator_of<T, Op>;
    static constexpr bool converts = accumulates<T, Op>;  // then the operator is pure
    static constexpr std::size_t length = sizeof(A) >= tile_bytes ? 1 : tile_bytes / sizeof(A);
    static constexpr std::size_t lanes = std::is_arithmetic_v<A> || is_small_float<A> ? 64 / sizeof(A) : 1;

    [[gnu::always_inline]] static decltype(auto) get(const operand& o, std::size_t i) {
        const T& x = static_cast<const T*>(o.data)[i];
        if constexpr (converts)
            return static_cast<A>(x);
        else
            return (x);
    }
    [[gnu::always_inline]] static void put(A* to, const A& a) {
        if constexpr (std::is_copy_assignable_v<A>)
            *to = a;
        else
            std::memcpy(static_cast<void*>(to), static_cast<const void*>(&a), sizeof(A));
    }
    template <class F>
    [[gnu::always_inline]] static void each(std::size_t n, F f) {
        if constexpr (converts)
            for_each_parallel<lanes>(n, f);
        else
            for_each_checked<lanes>(n, f);
    }
    [[gnu::always_inline]] static void run(T* dst, const operand* x, int k, std::size_t count, const Op& op) {
        alignas(64) alignas(A) unsigned char memory[length * sizeof(A)];
        A* const tile = reinterpret_cast<A*>(memory);
        for (std::size_t at = 0; at < count; at += length) {
            const std::size_t n = count - at < length ? count - at : length, whole = n & ~(lanes - 1);
            each(whole, [&, a = x[0], b = x[1]](
                            std::size_t i) { put(tile + i, static_cast<A>(op(get(a, at + i), get(b, at + i)))); });
            for (int j = 2; j < k; ++j)
                each(whole,
                    [&, b = x[j]](std::size_t i) { put(tile + i, static_cast<A>(op(tile[i], get(b, at + i)))); });
            if constexpr (converts)
                each(whole, [&](std::size_t i) { dst[at + i] = static_cast<T>(tile[i]); });
            else
                std::memcpy(static_cast<void*>(dst + at), memory, whole * sizeof(T));
            if constexpr (lanes > 1) scalar_fold<A>(dst, x, k, at + whole, at + n, op);
        }
    }
};

}  // namespace colls::inline v1::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
