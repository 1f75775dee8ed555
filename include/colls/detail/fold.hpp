// The reduce loop: the only place where an operator meets an array.
#pragma once

#include <colls/config.hpp>
#include <colls/operators.hpp>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace colls::inline v1::detail {

struct operand {
    const void* data = nullptr;
    bool leaf = false;  // a rank's own contribution, not yet reduced: Op::leaf applies
};

/// What an executor knows of an operator on a type.
struct op_table {
    std::size_t element_size = 0;
    /// dst[i] = ((x[0][i] op x[1][i]) op x[2][i]) ..., k >= 1 operands, one pass over memory. dst may be the very
    /// pointer of operands; otherwise it must not overlap them. All aligned as the type is.
    void (*fold)(void* dst, const operand* x, int k, std::size_t count, const void* op) = nullptr;
    /// Applied once to the full fold of n ranks. Null where the operator has nothing to finish.
    void (*finish)(void* data, std::size_t count, int n, const void* op) = nullptr;
    bool commutative = false;
};

/// The type that a fold of T is done in: float for bfloat16 and half under an operator that allows it.
template <class T, class Op>
constexpr auto accumulator_of() {
    if constexpr (is_small_float<T> && requires { requires Op::widens; })
        return std::type_identity<float>{};
    else
        return std::type_identity<T>{};
}
template <class T, class Op>
using accumulator = typename decltype(accumulator_of<T, Op>())::type;

template <class Op, class A>
concept has_leaf = requires(const Op& op, const A& a) { { op.leaf(a) } -> std::convertible_to<A>; };
template <class Op, class T>
concept has_finish = requires(const Op& op, const T& x, int n) { { op.finish(x, n) } -> std::convertible_to<T>; };

/// A tile of partial folds on the stack. Nothing else points into it, so that loops that write it vectorise for any
/// operator, and dst is written only when all operands of the tile have been read.
template <class T, class Op>
struct tile_fold {
    using A = accumulator<T, Op>;
    static constexpr std::size_t bytes = 2048, length = sizeof(A) >= bytes ? 1 : bytes / sizeof(A);
    // A trip count that is a multiple of every vector's length: no epilogue, which g++ -O2 asks for.
    static constexpr std::size_t lanes = std::is_arithmetic_v<T> || is_small_float<T> ? 64 / sizeof(T) : 1;

    [[gnu::always_inline]] static A load(const operand& x, std::size_t i, const Op& op) {
        const A a = static_cast<A>(static_cast<const T*>(x.data)[i]);
        if constexpr (has_leaf<Op, A>) {
            const A scaled = static_cast<A>(op.leaf(a));
            return x.leaf ? scaled : a;
        } else {
            return a;
        }
    }
    [[gnu::always_inline]] static void put(A* to, const A& a) {
        if constexpr (std::is_copy_assignable_v<A>)
            *to = a;
        else
            std::memcpy(static_cast<void*>(to), static_cast<const void*>(&a), sizeof(A));
    }

    template <class F>
    [[gnu::always_inline]] static void each(A* tile, std::size_t n, F f) {
        const std::size_t whole = n & ~(lanes - 1);
        for (std::size_t i = 0; i < whole; ++i) put(tile + i, f(i));
        for (std::size_t i = whole; i < n; ++i) put(tile + i, f(i));
    }

    [[gnu::always_inline]] static void run(T* dst, const operand* x, int k, std::size_t count, const Op& op) {
        alignas(64) alignas(A) unsigned char memory[length * sizeof(A)];
        A* const tile = reinterpret_cast<A*>(memory);
        for (std::size_t at = 0; at < count; at += length) {
            const std::size_t n = count - at < length ? count - at : length;
            int j = 1;
            if (k == 1) {
                each(tile, n, [&, a = x[0]](std::size_t i) { return load(a, at + i, op); });
            } else {
                each(tile, n, [&, a = x[0], b = x[1]](std::size_t i) {
                    return static_cast<A>(op(load(a, at + i, op), load(b, at + i, op)));
                });
                j = 2;
            }
            for (; j < k; ++j)
                each(tile, n, [&, b = x[j]](std::size_t i) {
                    return static_cast<A>(op(tile[i], load(b, at + i, op)));
                });
            if constexpr (std::is_same_v<A, T>) {
                std::memcpy(static_cast<void*>(dst + at), memory, n * sizeof(T));
            } else {
                const std::size_t whole = n & ~(lanes - 1);
                for (std::size_t i = 0; i < whole; ++i) dst[at + i] = static_cast<T>(tile[i]);
                for (std::size_t i = whole; i < n; ++i) dst[at + i] = static_cast<T>(tile[i]);
            }
        }
    }
};

template <class T, class Op>
void fold_baseline(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    tile_fold<T, Op>::run(static_cast<T*>(dst), x, k, count, *static_cast<const Op*>(op));
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__)
template <class T, class Op>
[[gnu::target("avx2")]] void fold_wide(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    tile_fold<T, Op>::run(static_cast<T*>(dst), x, k, count, *static_cast<const Op*>(op));
}
template <class T, class Op>
void fold_entry(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    if (__builtin_cpu_supports("avx2"))
        fold_wide<T, Op>(dst, x, k, count, op);
    else
        fold_baseline<T, Op>(dst, x, k, count, op);
}
#else
template <class T, class Op>
void fold_entry(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    fold_baseline<T, Op>(dst, x, k, count, op);
}
#endif

template <class T, class Op>
void finish_entry(void* data, std::size_t count, int n, const void* op) {
    T* const x = static_cast<T*>(data);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(static_cast<const Op*>(op)->finish(x[i], n));
}

template <class T, class Op>
constexpr op_table make_op_table() {
    static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");
    static_assert(operator_on<Op, T>,
        "colls: this operator does not take this element type: it must be const-callable as T(T, T)");
    op_table t{sizeof(T), &fold_entry<T, Op>, nullptr, is_commutative<Op, T>};
    if constexpr (has_finish<Op, T>) t.finish = &finish_entry<T, Op>;
    return t;
}
template <class T, class Op>
inline constexpr op_table op_table_for = make_op_table<T, Op>();

}  // namespace colls::inline v1::detail
