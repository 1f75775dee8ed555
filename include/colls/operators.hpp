// Reduction operators, and what the library wants to know of one.
//
// Any const-callable T(T, T) is an operator; it must be associative. It may say more of itself by members:
//   static constexpr bool commutative = true    operands may be swapped (else the ranks' order is kept)
//   leaf(x)                                     what becomes of a rank's own contribution before the first fold
//   finish(x, n)                                what becomes of the final value, n ranks
//   static constexpr bool pure = true           touches nothing but its operands, and gives the same on float in place
//                                               of bfloat16 and half if it takes float: allows the fastest loops
#pragma once

#include <colls/config.hpp>
#include <colls/types.hpp>

#include <concepts>
#include <type_traits>

namespace colls::inline v1 {

namespace detail {

/// Has real() and imag() and is two numbers: std::complex, without its header.
template <class T>
concept complex_like = requires(const T& x) {
    typename T::value_type;
    x.real();
    x.imag();
    requires std::is_arithmetic_v<typename T::value_type>;
    requires sizeof(T) == 2 * sizeof(typename T::value_type);
};
template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> || is_small_float<T> || complex_like<T>;

/// Integers are computed in an unsigned type of at least int's size: overflow wraps, and is not undefined.
template <class T>
struct modular {
    using type = T;
};
template <class T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
struct modular<T> {
    using type = std::conditional_t<(sizeof(T) < sizeof(int)), unsigned, std::make_unsigned_t<T>>;
};
template <class T>
using modular_t = typename modular<T>::type;

template <class T>
constexpr bool is_nan(const T& x) {
    if constexpr (std::is_floating_point_v<T> || is_small_float<T>)
        return x != x;
    else
        return false;
}

/// Does the text hold `name` as the template's name in namespace std (an inline namespace allowed between)?
constexpr bool names_std_template(const char* text, const char* name) {
    for (; *text != '\0'; ++text) {
        if (text[0] != '=' || text[1] != ' ') continue;
        const char* at = text + 2;
        for (const char* prefix = "std::"; *prefix != '\0'; ++prefix, ++at)
            if (*at != *prefix) return false;
        if (at[0] == '_' && at[1] == '_') {
            while (*at != ':' && *at != '\0') ++at;
            if (*at == ':') at += 2;
        }
        for (; *name != '\0'; ++name, ++at)
            if (*at != *name) return false;
        return *at == '<';
    }
    return false;
}
/// <functional> costs more than all of the core, and declaring std::plus ourselves is not allowed: know it by its name.
template <class Op>
constexpr bool is_std_functor(const char* name) {
    return names_std_template(__PRETTY_FUNCTION__, name);
}

template <class Op>
constexpr bool is_std_commutative() {
    if constexpr (std::is_class_v<Op>)
        return is_std_functor<Op>("plus") || is_std_functor<Op>("multiplies") || is_std_functor<Op>("bit_and") ||
               is_std_functor<Op>("bit_or") || is_std_functor<Op>("bit_xor");
    else
        return false;
}

template <class Op, class T>
constexpr bool commutes() {
    if constexpr (requires {
                      { Op::template commutative_on<T> } -> std::convertible_to<bool>;
                  })
        return Op::template commutative_on<T>;
    else if constexpr (requires {
                           { Op::commutative } -> std::convertible_to<bool>;
                       })
        return Op::commutative;
    else if constexpr (is_std_commutative<Op>())
        return std::is_void_v<T> || is_number<T> || !is_std_functor<Op>("multiplies");
    else
        return false;
}

template <class Op>
constexpr bool is_pure() {
    if constexpr (requires {
                      { Op::pure } -> std::convertible_to<bool>;
                  })
        return Op::pure;
    else
        return is_std_commutative<Op>();
}

}  // namespace detail

/// May operands of type T be swapped under Op? False unless the operator says so; true of std::plus, multiplies
/// and bit_*. A product is taken to commute for numbers only (matrices do not). T = void asks about numbers.
template <class Op, class T = void>
inline constexpr bool is_commutative = detail::commutes<std::remove_cvref_t<Op>, std::remove_cv_t<T>>();

/// Op can reduce values of type T.
template <class Op, class T>
concept operator_on = requires(const Op& op, const T& a, const T& b) {
    { op(a, b) } -> std::convertible_to<T>;
};

/// Marks a callable as commutative.
template <class F>
struct commutative_operator {
    static constexpr bool commutative = true;
    F function;  // not [[no_unique_address]]: nvcc 13 passes such a type to a kernel wrongly
    template <class T>
    constexpr auto operator()(const T& a, const T& b) const -> decltype(function(a, b)) {
        return function(a, b);
    }
};
template <class F>
constexpr commutative_operator<F> commutative(F f) {
    return {f};
}

// The library's operators. Being pure, they fold bfloat16 and half in float and round once a fold.

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
/// a * b. Integers wrap. Keeps the order of ranks where T is no number.
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
/// The lesser; NaN if either is NaN. Of zeros of unlike sign, or of equivalent values of a user's type, either one.
struct min_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a < b; }
    constexpr T operator()(const T& a, const T& b) const {
        return a < b || detail::is_nan(a) ? a : b;
    }
};
/// The greater; otherwise as min.
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
struct bit_and_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a & b; }
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(a & b);
    }
};
struct bit_or_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a | b; }
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(a | b);
    }
};
struct bit_xor_t {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a, const T& b) { a ^ b; }
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(a ^ b);
    }
};
/// Of two {value, index} (value_index, or any struct with these members) the one of lesser value, then of lower index.
/// A NaN counts as less than any number.
struct minloc_t {
    static constexpr bool commutative = true;
    template <class T>
        requires requires(const T& a, const T& b) {
            a.value < b.value;
            a.index < b.index;
        }
    constexpr T operator()(const T& a, const T& b) const {
        const bool a_nan = detail::is_nan(a.value), b_nan = detail::is_nan(b.value);
        const bool before = a_nan ? !b_nan : a.value < b.value, after = b_nan ? !a_nan : b.value < a.value;
        return before || (!after && a.index < b.index) ? a : b;
    }
};
/// Of two {value, index} the one of greater value, then of lower index. A NaN counts as greater than any number.
struct maxloc_t {
    static constexpr bool commutative = true;
    template <class T>
        requires requires(const T& a, const T& b) {
            a.value < b.value;
            a.index < b.index;
        }
    constexpr T operator()(const T& a, const T& b) const {
        const bool a_nan = detail::is_nan(a.value), b_nan = detail::is_nan(b.value);
        const bool before = a_nan ? !b_nan : b.value < a.value, after = b_nan ? !a_nan : a.value < b.value;
        return before || (!after && a.index < b.index) ? a : b;
    }
};
/// The sum of every rank's contribution times `factor`.
template <class X>
struct premul_sum_t : sum_t {
    X factor;
    constexpr explicit premul_sum_t(X x) : factor(x) {}
    template <class T>
    constexpr T leaf(const T& x) const {
        if constexpr (std::is_integral_v<T> && std::is_integral_v<X>)
            return prod_t{}(x, static_cast<T>(factor));
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

inline constexpr sum_t sum{};
inline constexpr prod_t prod{};
inline constexpr min_t min{};
inline constexpr max_t max{};
inline constexpr avg_t avg{};
inline constexpr bit_and_t bit_and{};
inline constexpr bit_or_t bit_or{};
inline constexpr bit_xor_t bit_xor{};
inline constexpr minloc_t minloc{};
inline constexpr maxloc_t maxloc{};
template <class X>
constexpr premul_sum_t<X> premul_sum(X factor) {
    return premul_sum_t<X>(factor);
}

}  // namespace colls::inline v1
