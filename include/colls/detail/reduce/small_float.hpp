// small_float<Format>: a number stored in 2 bytes and computed in float. bfloat16 and half are two of them.
// IWYU pragma: private, include <colls/types.hpp>
//
// Everything is constexpr integer code without branches, so that loops over arrays vectorise.
#pragma once

#include <colls/config.hpp>

#include <type_traits>

namespace colls::inline v1::detail {

/// float from double, inexact results made odd: rounding the result to 22 bits or fewer equals rounding x once.
constexpr float round_to_odd(double x) {
    float f = static_cast<float>(x);
    const double back = static_cast<double>(f);
    if (back == x || x != x) return f;
    auto bits = __builtin_bit_cast(unsigned, f);
    if ((back < 0 ? -back : back) > (x < 0 ? -x : x))
        --bits;  // rounded away from zero (perhaps to infinity): step back
    return __builtin_bit_cast(float, bits | 1u);
}

// A format packs and unpacks the two numbers of a 32-bit word, for the reduce loops too. All of it is 32-bit work
// without branches or shuffles, and compares as signed, which every vector unit can.

constexpr unsigned bits_of(float x) { return __builtin_bit_cast(unsigned, x); }
constexpr float float_of(unsigned bits) { return __builtin_bit_cast(float, bits); }
constexpr bool less(unsigned a, unsigned b) { return static_cast<int>(a) < static_cast<int>(b); }

struct bfloat16_format {
    static constexpr float low(unsigned word) { return float_of(word << 16); }
    static constexpr float high(unsigned word) { return float_of(word & 0xffff0000u); }
    static constexpr unsigned pack(float low, float high) { return rounded(low) >> 16 | (rounded(high) & 0xffff0000u); }

private:
    static constexpr unsigned rounded(float x) {
        const unsigned bits = bits_of(x), quiet = bits | 0x400000u, nearest = bits + 0x7fffu + (bits >> 16 & 1u);
        return x != x ? quiet : nearest;
    }
};

struct half_format {
    static constexpr float low(unsigned word) { return widened(word << 16); }
    static constexpr float high(unsigned word) { return widened(word & 0xffff0000u); }
    static constexpr unsigned pack(float low, float high) { return rounded(low) | rounded(high) << 16; }

private:
    static constexpr float widened(unsigned upper) {
        const unsigned magnitude = (upper & 0x7fff0000u) >> 3, sign = upper & 0x80000000u;
        const unsigned normal = magnitude + (112u << 23) + (less(magnitude, 0x0f800000u) ? 0u : 112u << 23);
        const unsigned subnormal = bits_of(float_of(magnitude + (113u << 23)) - 0x1p-14f);
        return float_of(sign | (less(magnitude, 0x00800000u) ? subnormal : normal));
    }
    static constexpr unsigned rounded(float x) {
        const unsigned bits = bits_of(x), sign = bits >> 16 & 0x8000u, a = bits & 0x7fffffffu;
        const unsigned special = less(0x7f800000u, a) ? 0x7e00u | (a >> 13 & 0x3ffu) : 0x7c00u;
        // Below 2^-14 the result is subnormal: adding 0.5 moves its last bit to that of the float, which rounds it.
        const unsigned small = bits_of(float_of(a) + 0.5f) - 0x3f000000u;
        const unsigned normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;
        const unsigned finite = less(a, 0x38800000u) ? small : normal;
        return sign | (less(a, 0x47800000u) ? finite : special);
    }
};

/// A number kept in 16 bits and computed in float.
template <class Format>
struct small_float {
    using format = Format;
    using accumulator = float;
    unsigned short bits;

    small_float() = default;
    constexpr explicit small_float(float x) : bits(static_cast<unsigned short>(Format::pack(x, 0.0f))) {}
    /// Rounds once. (Integers beyond 2^53 are rounded to double first.)
    template <class X>
        requires(std::is_arithmetic_v<X> && !std::is_same_v<X, float>)
    constexpr explicit small_float(X x) : small_float(round_to_odd(static_cast<double>(x))) {}

    static constexpr small_float from_bits(unsigned short b) {
        small_float x(0.0f);
        x.bits = b;
        return x;
    }
    constexpr operator float() const { return Format::low(bits); }

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
};

template <class T>
inline constexpr bool is_small_float = false;
template <class Format>
inline constexpr bool is_small_float<small_float<Format>> = true;

}  // namespace colls::inline v1::detail
