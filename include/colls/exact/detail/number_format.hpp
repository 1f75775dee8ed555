// What exact sums know of a number format: its fields, and rounding to it. All of it is integer code on a number's
// bits, so that no mode of the processor (flushing of subnormals, the rounding mode) and no option of a compiler
// changes one. (Under -ffinite-math-only clang makes anything of a NaN or an infinity that a function takes or
// returns.)
// IWYU pragma: private, include <colls/exact.hpp>
#pragma once

#include <colls/types.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace colls::inline v1::detail {

template <class T>
inline constexpr bool is_exact_number = std::is_same_v<T, float> || std::is_same_v<T, double> || is_small_float<T>;

/// The fields of T. A finite number is m * 2^(max(field, 1) - 1 + lowest), m < 2^digits.
template <class T>
struct number_format {
    using bits_type = std::conditional_t<sizeof(T) == 8, std::uint64_t,
        std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
    /// The digits of m, with the leading bit that is not stored.
    static constexpr int digits = sizeof(T) == 8 ? 53 : sizeof(T) == 4 ? 24 : std::is_same_v<T, half> ? 11 : 8;
    static constexpr int exponent_bits = static_cast<int>(8 * sizeof(T)) - digits;
    /// The field of infinities and NaNs.
    static constexpr int special = (1 << exponent_bits) - 1;
    static constexpr int bias = special / 2;
    /// The exponent of the least subnormal.
    static constexpr int lowest = 2 - bias - digits;
    static constexpr bits_type fraction = static_cast<bits_type>((std::uint64_t{1} << (digits - 1)) - 1);

    static constexpr bits_type bits(T x) { return __builtin_bit_cast(bits_type, x); }
    static bits_type bits_at(const T* x) {
        bits_type b;
        std::memcpy(&b, x, sizeof b);
        return b;
    }
    static constexpr T number(std::uint64_t bits) { return __builtin_bit_cast(T, static_cast<bits_type>(bits)); }
    static constexpr int field(bits_type b) { return static_cast<int>(b >> (digits - 1)) & special; }
    static constexpr bool negative(bits_type b) { return (b >> (8 * sizeof(T) - 1) & 1) != 0; }
    /// m.
    static constexpr std::uint64_t significand(bits_type b) {
        return (b & fraction) | (field(b) != 0 ? std::uint64_t{1} << (digits - 1) : 0);
    }
    static constexpr bits_type infinity_bits(bool negative) {
        return static_cast<bits_type>(
            std::uint64_t{special} << (digits - 1) | std::uint64_t{negative} << (8 * sizeof(T) - 1));
    }
    /// The one NaN that an exact sum gives: quiet, positive, without payload.
    static constexpr bits_type nan_bits() {
        return static_cast<bits_type>((std::uint64_t{special} << 1 | 1) << (digits - 2));
    }
};

/// What an addend or a sum is beside a number. The union of two is what their sum is: +inf and -inf make NaN.
enum special_value : std::uint64_t { finite = 0, plus_infinity = 1, minus_infinity = 2, not_a_number = 3 };

template <class T>
using bits_of_number = typename number_format<T>::bits_type;

template <class T>
constexpr special_value special_of(bits_of_number<T> b) {
    using format = number_format<T>;
    if (format::field(b) != format::special) return finite;
    return (b & format::fraction) != 0 ? not_a_number : format::negative(b) ? minus_infinity : plus_infinity;
}
template <class T>
constexpr bits_of_number<T> bits_of_special(std::uint64_t special) {
    using format = number_format<T>;
    return special == not_a_number ? format::nan_bits() : format::infinity_bits(special == minus_infinity);
}

/// The number of bits up to the highest that is set.
constexpr int width_of(std::uint64_t x) {
    int width = 0;
    for (int step = 32; step > 0; step /= 2)
        if (x >> step != 0) {
            x >>= step;
            width += step;
        }
    return width + static_cast<int>(x);
}

/// The bits of the T nearest to m * 2^exponent, ties to even; +0 for 0. `more`: the number is a little greater, by less
/// than 2^exponent; then m has its highest bit set.
template <class T>
constexpr bits_of_number<T> nearest(bool negative, std::uint64_t m, bool more, int exponent) {
    using format = number_format<T>;
    if (m == 0) return 0;
    const int top = exponent + width_of(m) - 1;
    const int of_last = top - format::digits + 1 < format::lowest ? format::lowest : top - format::digits + 1;
    const int dropped = of_last - exponent;
    std::uint64_t kept = 0;
    if (dropped <= 0) {
        kept = m << -dropped;
    } else if (dropped <= 64) {
        kept = dropped < 64 ? m >> dropped : 0;
        const std::uint64_t rest = dropped < 64 ? m - (kept << dropped) : m, middle = std::uint64_t{1} << (dropped - 1);
        kept += rest > middle || (rest == middle && (more || (kept & 1) != 0));
    }
    // The leading bit of a normal number adds 1 to the field, and so does a carry out of the rounding.
    const std::uint64_t steps = static_cast<std::uint64_t>(of_last - format::lowest);
    const std::uint64_t infinite = std::uint64_t{format::special} << (format::digits - 1);
    if (steps >= static_cast<std::uint64_t>(format::special)) return format::infinity_bits(negative);
    std::uint64_t bits = (steps << (format::digits - 1)) + kept;
    if (bits > infinite) bits = infinite;
    return static_cast<bits_of_number<T>>(bits | std::uint64_t{negative} << (8 * sizeof(T) - 1));
}

}  // namespace colls::inline v1::detail
