// Reduction operators.
//
// Any const-callable T(T, T) is an operator; it must be associative. Members may declare more about it:
//   static constexpr bool commutative = true    operands may be swapped (else contributions are folded in rank order)
//   leaf(x)                                     applied by each rank to its own contribution before the first fold
//   finish(x, n)                                applied to the full fold of n ranks
//   static constexpr bool pure = true           reads and writes nothing but its operands; if it takes the accumulator
//                                               of an element type, it is computed in that: allows the fastest loops
// An element type T may name its accumulator, a type to which and from which it converts explicitly:
//   using accumulator = A                       a fold converts each operand to A, applies the operator to As, and
//                                               converts the result to T once. bfloat16 and half name float.
#pragma once

#include <colls/detail/reduce/operator_traits.hpp>
#include <colls/types.hpp>

#include <concepts>
#include <type_traits>

namespace colls::inline v1 {

/// True where operands of type T may be swapped under Op: the operator declares it, or is std::plus, std::multiplies or
/// one of std::bit_*. A product is taken to commute for numbers only (matrices do not). T = void asks about numbers.
template <class Op, class T = void>
inline constexpr bool is_commutative = detail::commutes<std::remove_cvref_t<Op>, std::remove_cv_t<T>>();

/// What Op folds elements of type T in: T::accumulator where T names one, and Op is pure and takes it; else T.
template <class T, class Op>
using accumulator_of = typename detail::accumulator<T, Op>::type;

/// Op can reduce values of type T, or of the accumulator in which it folds them.
template <class Op, class T>
concept operator_on = requires(const Op& op, const accumulator_of<T, Op>& a, const accumulator_of<T, Op>& b) {
    { op(a, b) } -> std::convertible_to<accumulator_of<T, Op>>;
};

/// A callable that is declared to commute: see commutative(f).
template <class F>
struct commutative_operator {
    static constexpr bool commutative = true;
    /// The callable.
    F function;  // not [[no_unique_address]]: nvcc 13 passes such a type to a kernel wrongly
    template <class T>
    constexpr auto operator()(const T& a, const T& b) const -> decltype(function(a, b)) {
        return function(a, b);
    }
};
/// The operator f, declared to commute: all_reduce(comm, x, colls::commutative([](A a, A b) { ... })).
template <class F>
constexpr commutative_operator<F> commutative(F f) {
    return {f};
}

// The library's operators. All but minloc and maxloc are pure: they fold in the element type's accumulator, bfloat16
// and half in float, and round once a fold.

/// a + b. Integers wrap.
struct sum_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a + b; }
    constexpr T operator()(const T& a, const T& b) const {
        using M = detail::modular_t<T>;
        return static_cast<T>(static_cast<M>(a) + static_cast<M>(b));
    }
};
/// a * b. Integers wrap. Commutes where T is a number; else contributions are folded in rank order.
struct prod_t {
    template <class T>
    static constexpr bool commutative_on = std::is_void_v<T> || detail::is_number<T>;
    static constexpr bool pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a* b; }
    constexpr T operator()(const T& a, const T& b) const {
        using M = detail::modular_t<T>;
        return static_cast<T>(static_cast<M>(a) * static_cast<M>(b));
    }
};
/// The lesser; NaN if either is NaN. Either one, if they are zeros of unlike sign or equivalent values of a user's
/// type.
struct min_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a < b; }
    constexpr T operator()(const T& a, const T& b) const {
        return a < b || detail::is_nan(a) ? a : b;
    }
};
/// The greater; otherwise as min_t.
struct max_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { b < a; }
    constexpr T operator()(const T& a, const T& b) const {
        return b < a || detail::is_nan(a) ? a : b;
    }
};
/// The sum, divided by the number of ranks at the end: integers towards zero (the sum may wrap before).
struct avg_t : sum_t {
    template <class T>
    constexpr T finish(const T& x, int n) const {
        if constexpr (std::is_unsigned_v<T>)
            return static_cast<T>(x / static_cast<detail::modular_t<T>>(n));
        else if constexpr (detail::is_small_float<T>)
            return T(float(x) / static_cast<float>(n));
        else if constexpr (detail::complex_like<T>)
            return x / static_cast<typename T::value_type>(n);
        else if constexpr (std::is_floating_point_v<T>)
            return x / static_cast<T>(n);
        else
            return static_cast<T>(x / n);
    }
};
/// a & b.
struct bit_and_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a & b; }
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(a & b);
    }
};
/// a | b.
struct bit_or_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a | b; }
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(a | b);
    }
};
/// a ^ b.
struct bit_xor_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a ^ b; }
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(a ^ b);
    }
};
/// 1 where both are other than 0, else 0. (Of one rank the contribution as it is.)
struct logical_and_t : detail::of_truth<bit_and_t> {};
/// 1 where one or both are other than 0, else 0; otherwise as logical_and_t.
struct logical_or_t : detail::of_truth<bit_or_t> {};
/// 1 where one is other than 0 and the other is 0, else 0: of n ranks, 1 where an odd number of contributions is other
/// than 0. Otherwise as logical_and_t.
struct logical_xor_t : detail::of_truth<bit_xor_t> {};
/// The one of lesser value, then of lower index, of two {value, index} (value_index, or any struct with these members).
/// A NaN counts as less than any number.
struct minloc_t : detail::extreme_with_index<false> {};
/// The one of greater value, then of lower index, of two {value, index}. A NaN counts as greater than any number.
struct maxloc_t : detail::extreme_with_index<true> {};
/// The sum of every rank's contribution times its own `factor`. A product is rounded to the element's type before it is
/// added, as NCCL's is.
template <class X>
struct premul_sum_t : sum_t {
    X factor;
    /// The sum of x times each contribution.
    constexpr explicit premul_sum_t(X x) : factor(x) {}
    template <class T>
    constexpr T leaf(const T& x) const {
        if constexpr (std::is_integral_v<T> && std::is_integral_v<X>)
            return prod_t{}(x, static_cast<T>(factor));
        else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<X>)
            return static_cast<T>(static_cast<X>(x) * factor);
        else if constexpr (std::is_floating_point_v<T>)
            return x * static_cast<T>(factor);
        else if constexpr (detail::is_small_float<T>)
            return T(float(x) * static_cast<float>(factor));
        else if constexpr (detail::complex_like<T> && !detail::complex_like<X>)
            return x * static_cast<typename T::value_type>(factor);
        else
            return static_cast<T>(x * factor);
    }
};

// What calls take: all_reduce(comm, x, colls::sum).
/// The sum.
inline constexpr sum_t sum{};
/// The product.
inline constexpr prod_t prod{};
/// The least value.
inline constexpr min_t min{};
/// The greatest value.
inline constexpr max_t max{};
/// The sum, divided by the number of ranks at the end.
inline constexpr avg_t avg{};
/// Logical and.
inline constexpr logical_and_t logical_and{};
/// Logical or.
inline constexpr logical_or_t logical_or{};
/// Logical exclusive or.
inline constexpr logical_xor_t logical_xor{};
/// Bitwise and.
inline constexpr bit_and_t bit_and{};
/// Bitwise or.
inline constexpr bit_or_t bit_or{};
/// Bitwise exclusive or.
inline constexpr bit_xor_t bit_xor{};
/// For value_index: the least value with its index; among equal values the lower index.
inline constexpr minloc_t minloc{};
/// For value_index: the greatest value with its index; among equal values the lower index.
inline constexpr maxloc_t maxloc{};
/// The sum of each contribution times the factor that its rank gives.
template <class X>
constexpr premul_sum_t<X> premul_sum(X factor) {
    return premul_sum_t<X>(factor);
}

}  // namespace colls::inline v1
