// Two-byte floating-point types: bfloat16 (8 exponent bits, 7 of fraction) and half (IEEE 754 binary16, 5 and 10).
//
// Stored in 2 bytes, computed in float. Conversions from wider types round to nearest, ties to even, once; subnormals
// and infinities are kept, a NaN stays a NaN (quiet, its upper payload kept). Everything is constexpr integer code without
// branches, so that loops over arrays vectorise; std::complex and users' own structs need no header of ours.
#pragma once

#include <colls/config.hpp>

#include <type_traits>

namespace colls::inline v1 {

namespace detail {

/// float from double, inexact results made odd: rounding that once more, to 22 bits or fewer, equals rounding once.
constexpr float round_to_odd(double x) {
    float f = static_cast<float>(x);
    const double back = static_cast<double>(f);
    if (back == x || x != x) return f;
    auto bits = __builtin_bit_cast(unsigned, f);
    if ((back < 0 ? -back : back) > (x < 0 ? -x : x)) --bits;  // rounded away from zero (perhaps to infinity): step back
    return __builtin_bit_cast(float, bits | 1u);
}

struct bfloat16_format {
    static constexpr unsigned short encode(float x) {
        const auto bits = __builtin_bit_cast(unsigned, x);
        const unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        const unsigned quiet = bits >> 16 | 0x40u;
        return static_cast<unsigned short>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
    static constexpr float decode(unsigned short bits) {
        return __builtin_bit_cast(float, static_cast<unsigned>(bits) << 16);
    }
};

struct half_format {
    static constexpr unsigned short encode(float x) {
        const auto bits = __builtin_bit_cast(unsigned, x);
        const unsigned sign = bits >> 16 & 0x8000u, a = bits & 0x7fffffffu;
        const unsigned special = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x3ffu) : 0x7c00u;
        // Below 2^-14 the result is subnormal: adding 0.5 moves its last bit to that of the float, which rounds it.
        const float shifted = __builtin_bit_cast(float, a < 0x38800000u ? a : 0u) + 0.5f;
        const unsigned small = __builtin_bit_cast(unsigned, shifted) - 0x3f000000u;
        const unsigned normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;
        const unsigned finite = a < 0x38800000u ? small : normal;
        return static_cast<unsigned short>(sign | (a >= 0x47800000u ? special : finite));
    }
    static constexpr float decode(unsigned short bits) {
        const unsigned a = (bits & 0x7fffu) << 13, exponent = a & 0x0f800000u;
        const unsigned sign = (bits & 0x8000u) << 16;
        const unsigned normal = a + (112u << 23) + (exponent == 0x0f800000u ? 112u << 23 : 0u);
        const float subnormal = __builtin_bit_cast(float, a + (113u << 23)) - 0x1p-14f;
        return __builtin_bit_cast(float, sign | (exponent == 0 ? __builtin_bit_cast(unsigned, subnormal) : normal));
    }
};

/// A number kept in 16 bits and computed in float.
template <class Format>
struct small_float {
    unsigned short bits;

    small_float() = default;
    constexpr explicit small_float(float x) : bits(Format::encode(x)) {}
    /// Rounds once. (Integers beyond 2^53 are rounded to double first.)
    template <class X>
        requires(std::is_arithmetic_v<X> && !std::is_same_v<X, float>)
    constexpr explicit small_float(X x) : bits(Format::encode(round_to_odd(static_cast<double>(x)))) {}

    static constexpr small_float from_bits(unsigned short b) {
        small_float x(0.0f);
        x.bits = b;
        return x;
    }
    constexpr operator float() const { return Format::decode(bits); }

    friend constexpr small_float operator+(small_float a, small_float b) { return small_float(float(a) + float(b)); }
    friend constexpr small_float operator-(small_float a, small_float b) { return small_float(float(a) - float(b)); }
    friend constexpr small_float operator*(small_float a, small_float b) { return small_float(float(a) * float(b)); }
    friend constexpr small_float operator/(small_float a, small_float b) { return small_float(float(a) / float(b)); }
    constexpr small_float operator-() const { return from_bits(static_cast<unsigned short>(bits ^ 0x8000u)); }
    constexpr small_float operator+() const { return *this; }
    constexpr small_float& operator+=(small_float b) { return *this = *this + b; }
    constexpr small_float& operator-=(small_float b) { return *this = *this - b; }
    constexpr small_float& operator*=(small_float b) { return *this = *this * b; }
    constexpr small_float& operator/=(small_float b) { return *this = *this / b; }

    friend constexpr bool operator==(small_float a, small_float b) { return float(a) == float(b); }
    friend constexpr bool operator<(small_float a, small_float b) { return float(a) < float(b); }
    friend constexpr bool operator>(small_float a, small_float b) { return float(a) > float(b); }
    friend constexpr bool operator<=(small_float a, small_float b) { return float(a) <= float(b); }
    friend constexpr bool operator>=(small_float a, small_float b) { return float(a) >= float(b); }
};

template <class T>
inline constexpr bool is_small_float = false;
template <class Format>
inline constexpr bool is_small_float<small_float<Format>> = true;

}  // namespace detail

/// bfloat16: the upper half of a float. 2 bytes, trivially copyable; `.bits`, `from_bits(b)`, explicit from numbers,
/// implicit to float; arithmetic rounds after each operation (a reduction by a library operator rounds once a fold).
using bfloat16 = detail::small_float<detail::bfloat16_format>;
/// IEEE binary16, otherwise as bfloat16. Finite up to 65504.
using half = detail::small_float<detail::half_format>;

/// A value with its position, for minloc and maxloc.
template <class T, class I = int>
struct value_index {
    T value;
    I index;
    friend constexpr bool operator==(const value_index&, const value_index&) = default;
};

}  // namespace colls::inline v1
