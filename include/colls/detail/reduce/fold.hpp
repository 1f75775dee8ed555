// op_table: the folds of an operator on an element type, their types erased, as executors call them.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// On x86-64 each loop is compiled for the baseline and for AVX2; that of bfloat16, whose conversions limit it, also for
// AVX-512. Half is converted to rows of float. On AArch64 every processor has NEON, so the baseline is that.
//
// All loops give the same bits for an element, wherever it lies: no product is fused with a sum, unless one expression
// of the operator has both, the compiler is clang, and its target has fused multiply-add. What an operator does to each
// contribution (leaf) its rank does before the call: own_contribution.
#pragma once

#include <colls/detail/reduce/fold_loops.hpp>
#include <colls/detail/support/element.hpp>
#include <colls/detail/support/for_processor.hpp>
#include <colls/operators.hpp>
#include <colls/types.hpp>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"  // not every operator vectorises
#endif

namespace colls::inline v1::detail {

// Rows of half to rows of float and back: by F16C where the processor has it (eight numbers an instruction), else by
// the integer code of small_float.hpp. Both give the same bits (but for the quiet bit of a NaN).
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

/// Which of the two places of a fold is stored to past the caches. `alone`: there is one place, and it is.
enum class past_caches : unsigned char { none, second, both, alone };

/// An operator on an element type.
struct op_table {
    std::size_t element_size = 0;
    /// dst[i] = ((x[0][i] op x[1][i]) op x[2][i]) ..., k >= 1 operands, in one pass over memory. dst may be the pointer
    /// of some operands; otherwise it must not overlap them. All are aligned as the type requires.
    void (*fold)(void* dst, const operand* x, int k, std::size_t count, const void* op) = nullptr;
    /// The fold of two operands into two places, in one pass over memory; past the caches as `past` says, which a fence
    /// must follow. Each place may be an operand; otherwise the four must not overlap, except for `alone`, where `also`
    /// is `dst`. Null, or false: there is no such loop, or not for these places.
    bool (*fold_twice)(
        void* dst, void* also, past_caches past, const operand* x, std::size_t count, const void* op) = nullptr;
    /// Applied once to the full fold of n ranks. Null where the operator has no last step.
    void (*finish)(void* data, std::size_t count, int n, const void* op) = nullptr;
    bool commutative = false;
    /// to[i] is what the operator makes of a rank's own contribution from[i]. `to` may be `from`. Null: it takes it as
    /// it is.
    void (*leaf)(void* to, const void* from, std::size_t count, const void* op) = nullptr;
};

template <class Op, class A>
concept has_leaf = requires(const Op& op, const A& a) {
    { op.leaf(a) } -> std::convertible_to<A>;
};
template <class Op, class T>
concept has_finish = requires(const Op& op, const T& x, int n) {
    { op.finish(x, n) } -> std::convertible_to<T>;
};

template <class T, class Op>
constexpr auto choose_fold() {
    if constexpr (folds_in_float<T, Op>)
        return std::type_identity<paired_fold<T, Op>>{};
    else if constexpr (std::is_arithmetic_v<T> && is_pure<Op>())
        return std::type_identity<direct_fold<T, Op>>{};
    else
        return std::type_identity<tile_fold<T, Op>>{};
}
template <class T, class Op>
using fold_loop = typename decltype(choose_fold<T, Op>())::type;

// At -O3 g++ 12 unrolls the loops before it finds that they vectorise, and folds in place take 1.4 times as long. It
// also fuses products with sums across calls, in some loops and not in others.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#pragma GCC push_options
#pragma GCC optimize("O2", "fp-contract=off")
#endif
/// `loop`, which is always inlined, as compiled for some processors.
template <auto loop>
struct compiled_for;
template <class R, class... A, R (*loop)(A...)>
struct compiled_for<loop> {
    static R baseline(A... a) { return loop(a...); }
#if defined(__x86_64__) && defined(__GNUC__)
    [[gnu::target("avx2")]] static R avx2(A... a) { return loop(a...); }
#if defined(__clang__)
    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]]
#else
    [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#endif
    static R avx512(A... a) {
        return loop(a...);
    }
#endif
};
template <class T, class Op>
[[gnu::always_inline]] inline void fold_any(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    fold_loop<T, Op>::run(static_cast<T*>(dst), x, k, count, *static_cast<const Op*>(op));
}
template <class T, class Op>
void fold_baseline(void* dst, const operand* x, int k, std::size_t count, const void* op) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__)
    // For processors from before 2013: a loop of its own for two operands, which most folds have.
    if constexpr (std::is_same_v<fold_loop<T, Op>, direct_fold<T, Op>>)
        return direct_fold<T, Op>::template run<2>(static_cast<T*>(dst), x, k, count, *static_cast<const Op*>(op));
    else
#endif
        fold_any<T, Op>(dst, x, k, count, op);
}
template <class T, class Op>
[[gnu::always_inline]] inline void fold_twice(
    void* dst, void* also, const operand* x, std::size_t count, const void* op) {
    using loops = direct_fold<T, Op>;
    T *const out = static_cast<T*>(dst), *const second = static_cast<T*>(also);
    const Op by = *static_cast<const Op*>(op);
    loops::run_twice(out, second, x, loops::run_twice_by_lanes(out, second, x, count, by), count, by);
}
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
// How a line is stored past the caches, and by AVX-512 into them, too. Those for x86-64 are inlined where their target
// is: in the functions below, not in the loop that these inline.
#if defined(__x86_64__)
struct lines_avx512 {
    [[gnu::target("avx512f")]] static void copy(void* to, const void* from) { move_line_avx512<false>(to, from); }
    [[gnu::target("avx512f")]] static void stream(void* to, const void* from) { move_line_avx512<true>(to, from); }
};
struct lines_avx2 {
    [[gnu::target("avx2")]] static void stream(void* to, const void* from) { stream_line_avx2(to, from); }
};
#else
struct lines_neon {
    [[gnu::always_inline]] static void stream(void* to, const void* from) { stream_line_neon(to, from); }
};
#endif
/// Stores whole lines of `also` at once, into the caches or past them: by AVX-512 in one instruction, since between
/// several others come, and the line is written in parts. Where both places are stored to past the caches, their lines
/// begin at the same elements.
template <past_caches past, class Lines, class T, class Op>
[[gnu::always_inline]] inline void fold_twice_by_lines(
    void* dst, void* also, const operand* operands, std::size_t count, const void* op) {
    using loops = direct_fold<T, Op>;
    constexpr std::size_t in_line = 64 / sizeof(T);
    T *const out = static_cast<T*>(dst), *const second = static_cast<T*>(also);
    const Op by = *static_cast<const Op*>(op);
    const operand x[] = {operands[0], operands[1]};
    const std::size_t to_line = (64 - reinterpret_cast<std::uintptr_t>(also) % 64) % 64 / sizeof(T);
    std::size_t i = to_line < count ? to_line : count;
    loops::run_twice(out, second, x, 0, i, by);
    // In place the peer's lines are read and then stored to: fetched for reading, each would be asked for twice, unless
    // the processor guesses what follows.
    constexpr std::size_t ahead = 16 * in_line;
    const bool overwrites = past == past_caches::none && (x[0].data == also || x[1].data == also);
    for (std::size_t k = i; overwrites && k < i + ahead && k < count; k += in_line) prefetch_to_store(second + k);
    for (; i + in_line <= count; i += in_line) {
        if (overwrites && i + ahead < count) prefetch_to_store(second + i + ahead);
        alignas(64) T made[in_line];
        for (std::size_t l = 0; l < in_line; ++l) made[l] = loops::folded(x, i + l, by);
        if constexpr (past == past_caches::both)
            Lines::stream(out + i, made);
        else if constexpr (past != past_caches::alone)
            std::memcpy(out + i, made, 64);
        if constexpr (past != past_caches::none)
            Lines::stream(second + i, made);
        else
            Lines::copy(second + i, made);
    }
    loops::run_twice(out, second, x, i, count, by);
}
#endif

#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#pragma GCC pop_options
#endif

template <class T, class Op>
void fold_entry(void* dst, const operand* x, int k, std::size_t count, const void* op);

/// False where there is no such loop for this processor, or where lines of the places begin at different elements.
template <class T, class Op>
bool fold_twice_entry(void* dst, void* also, past_caches past, const operand* x, std::size_t count, const void* op) {
    const bool plain = past == past_caches::none;
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__aarch64__))
    // The compilers contract no product and sum of these, whatever the processor has.
    constexpr bool same_bits = std::is_same_v<Op, sum_t> || std::is_same_v<Op, prod_t> || std::is_same_v<Op, min_t> ||
                               std::is_same_v<Op, max_t>;
    if constexpr (same_bits) {
        const auto lines = reinterpret_cast<std::uintptr_t>(dst) - reinterpret_cast<std::uintptr_t>(also);
        if (past == past_caches::both && lines % 64 != 0) return false;
        if (reinterpret_cast<std::uintptr_t>(also) % alignof(T) != 0) return false;
#if defined(__x86_64__)
        const bool is_512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"),
                   has_lines = is_512 || __builtin_cpu_supports("avx2");
        if (is_512 && plain)
            return compiled_for<&fold_twice_by_lines<past_caches::none, lines_avx512, T, Op>>::avx512(
                       dst, also, x, count, op),
                   true;
#else
        constexpr bool has_lines = true;
#endif
        const auto by = [&](auto how) {
            constexpr past_caches known = decltype(how)::value;
            if (!has_lines || !streams || past != known) return false;
#if defined(__x86_64__)
            if (!is_512)
                compiled_for<&fold_twice_by_lines<known, lines_avx2, T, Op>>::avx2(dst, also, x, count, op);
            else
                compiled_for<&fold_twice_by_lines<known, lines_avx512, T, Op>>::avx512(dst, also, x, count, op);
#else
            compiled_for<&fold_twice_by_lines<known, lines_neon, T, Op>>::baseline(dst, also, x, count, op);
#endif
            return true;
        };
        if (!plain && (by(std::integral_constant<past_caches, past_caches::second>{}) ||
                          by(std::integral_constant<past_caches, past_caches::both>{}) ||
                          by(std::integral_constant<past_caches, past_caches::alone>{})))
            return true;
    }
    if (!plain) return false;
#if defined(__x86_64__) && !defined(__AVX2__)
    if (__builtin_cpu_supports("avx2")) return compiled_for<&fold_twice<T, Op>>::avx2(dst, also, x, count, op), true;
#endif
#endif
    if (plain) compiled_for<&fold_twice<T, Op>>::baseline(dst, also, x, count, op);
    return plain;
}

template <class Op>
void half_fold(half* dst, const operand* x, int k, std::size_t count, const void* op) {
    constexpr std::size_t length = tile_bytes / sizeof(float);
    alignas(64) float rows[4][length];
    for (std::size_t at = 0; at < count; at += length) {
        const std::size_t n = count - at < length ? count - at : length;
        operand group[4];
        int held = 0;  // rows[0] holds a partial fold
        for (int j = 0; j < k;) {
            int m = held;
            for (; m < 4 && j < k; ++m, ++j) {
                widen_row(rows[m], static_cast<const half*>(x[j].data) + at, n);
                group[m] = {rows[m]};
            }
            fold_entry<float, Op>(rows[0], group, m, n, op);
            group[0] = {rows[0]};
            held = 1;
        }
        narrow_row(dst + at, rows[0], n);
    }
}

template <class T, class Op>
void fold_entry(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    if (k == 1) {
        if (dst != x[0].data && count != 0) std::memcpy(dst, x[0].data, count * sizeof(T));
        return;
    }
    if constexpr (std::is_same_v<T, half> && folds_in_float<T, Op>) {
        half_fold<Op>(static_cast<half*>(dst), x, k, count, op);
    } else {
        fold_function for_this = &fold_baseline<T, Op>;  // the variant for this processor
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX512F__)
#if !defined(__AVX2__)
        if (__builtin_cpu_supports("avx2")) for_this = &compiled_for<&fold_any<T, Op>>::avx2;
#endif
        // AVX-512 has fused multiply-add, which clang uses where an operator has a product and a sum.
#if defined(__clang__)
        constexpr bool same_bits = std::is_same_v<Op, sum_t> || std::is_same_v<Op, prod_t> ||
                                   std::is_same_v<Op, min_t> || std::is_same_v<Op, max_t>;
#else
        constexpr bool same_bits = true;
#endif
        if constexpr (folds_in_float<T, Op> && same_bits)
            if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
                for_this = &compiled_for<&fold_any<T, Op>>::avx512;
#endif
        if constexpr (std::is_same_v<fold_loop<T, Op>, direct_fold<T, Op>>)
            fold_by_fours(for_this, sizeof(T), dst, x, k, count, op);
        else
            for_this(dst, x, k, count, op);
    }
}

template <class T, class Op>
[[gnu::always_inline]] inline void finish_loop(T* x, std::size_t count, int n, const Op op) {
    constexpr std::size_t lanes = std::is_floating_point_v<T> && is_pure<Op>() ? 16 : 1;
    const std::size_t whole = count & ~(lanes - 1);
    if constexpr (lanes > 1)
        for_each_parallel<lanes>(whole, [=](std::size_t i) { x[i] = static_cast<T>(op.finish(x[i], n)); });
    for (std::size_t i = lanes > 1 ? whole : 0; i < count; ++i) x[i] = static_cast<T>(op.finish(x[i], n));
}
template <class T, class Op>
void finish_entry(void* data, std::size_t count, int n, const void* op) {
    using loop = for_processor<&finish_loop<T, Op>>;
    const Op& by = *static_cast<const Op*>(op);
    if constexpr (std::is_floating_point_v<T> && is_pure<Op>())
        loop::run(static_cast<T*>(data), count, n, by);
    else
        loop::baseline(static_cast<T*>(data), count, n, by);
}

template <class T, class Op>
void leaf_entry(void* to, const void* from, std::size_t count, const void* op) {
    const Op by = *static_cast<const Op*>(op);
    const auto change = [=](std::size_t i) {
        const T made = static_cast<T>(by.leaf(static_cast<accumulator_of<T, Op>>(static_cast<const T*>(from)[i])));
        std::memcpy(static_cast<T*>(to) + i, &made, sizeof made);
    };
    constexpr std::size_t lanes = std::is_arithmetic_v<T> && is_pure<Op>() ? 16 : 1;
    const std::size_t whole = count & ~(lanes - 1);
    if constexpr (lanes > 1) for_each_parallel<lanes>(whole, change);
    for (std::size_t i = lanes > 1 ? whole : 0; i < count; ++i) change(i);
}

/// The operator by which Op folds: one whose loops others have, too.
template <class Op>
struct folded_by {
    using type = Op;
};
template <>
struct folded_by<avg_t> {
    using type = sum_t;
};
template <class X>
struct folded_by<premul_sum_t<X>> {
    using type = sum_t;
};

template <class T, class Op>
constexpr op_table make_op_table() {
    static_assert(copies_as_bytes<T>(), "colls: elements must be trivially copyable");
    static_assert(operator_on<Op, T>,
        "colls: this operator does not take this element type: it must be const-callable as T(T, T)");
    using F = typename folded_by<Op>::type;
    op_table t{.element_size = sizeof(T), .fold = &fold_entry<T, F>, .commutative = is_commutative<Op, T>};
    if constexpr (std::is_same_v<fold_loop<T, F>, direct_fold<T, F>>) t.fold_twice = &fold_twice_entry<T, F>;
    if constexpr (has_finish<Op, T>) t.finish = &finish_entry<T, Op>;
    if constexpr (has_leaf<Op, accumulator_of<T, Op>>) t.leaf = &leaf_entry<T, Op>;
    return t;
}
template <class T, class Op>
inline constexpr op_table op_table_for = make_op_table<T, Op>();

}  // namespace colls::inline v1::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
