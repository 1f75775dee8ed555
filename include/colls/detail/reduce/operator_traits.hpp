// What the library finds out about an operator: whether it commutes, whether it is pure, what it computes in.
// IWYU pragma: private, include <colls/operators.hpp>
#pragma once

#include <colls/detail/reduce/small_float.hpp>

#include <concepts>
#include <type_traits>

namespace colls::inline v1::detail {

/// Has real() and imag() and consists of two numbers: std::complex, without its header.
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

/// Op on whether values are other than 0. (By bits: && would be a branch.)
template <class Op>
struct of_truth {
    static constexpr bool commutative = true, pure = true;
    template <class T>
        requires requires(const T& a) { static_cast<T>(static_cast<bool>(a)); }
    constexpr T operator()(const T& a, const T& b) const {
        return static_cast<T>(Op{}(static_cast<bool>(a), static_cast<bool>(b)));
    }
};

/// What minloc (maxloc: greatest) takes of two {value, index}; a NaN comes before any number.
template <bool greatest>
struct extreme_with_index {
    static constexpr bool commutative = true;
    template <class T>
        requires requires(const T& a, const T& b) {
            a.value < b.value;
            a.index < b.index;
        }
    constexpr T operator()(const T& a, const T& b) const {
        const bool a_nan = is_nan(a.value), b_nan = is_nan(b.value), less = a.value < b.value, more = b.value < a.value;
        const bool before = a_nan ? !b_nan : greatest ? more : less, after = b_nan ? !a_nan : greatest ? less : more;
        return before || (!after && a.index < b.index) ? a : b;
    }
};

/// True where the text holds `name` as the template's name in namespace std (an inline namespace between is allowed).
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
/// True for std::name<...>, which is known by its spelling: <functional> costs more to compile than all of the core,
/// and std::plus must not be declared elsewhere.
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

/// Whether all contributions of T have to be at hand where Op folds them, by an op_table of its own.
template <class Op, class T>
constexpr bool folds_at_once() {
    if constexpr (requires { Op::template at_once_on<T>; })
        return Op::template at_once_on<T>;
    else
        return false;
}

/// What Op folds elements of type T in: see accumulator_of.
template <class T, class Op>
struct accumulator {
    using type = T;
};
template <class T, class Op>
    requires(is_pure<Op>() &&
             requires(const Op& op, const typename T::accumulator& a) {
                 { op(a, a) } -> std::convertible_to<typename T::accumulator>;
             })
struct accumulator<T, Op> {
    using type = typename T::accumulator;
};

}  // namespace colls::inline v1::detail
