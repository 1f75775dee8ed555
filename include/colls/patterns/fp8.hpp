// fp8_e4m3 and fp8_e5m2: the two 8-bit floating point formats of the OCP specification OFP8 (revision 1.0, 2023).
//
//               exponent  fraction  bias  largest  least normal  least    infinity  NaN
//   fp8_e4m3    4 bits    3 bits     7      448    2^-6          2^-9     none      S.1111.111
//   fp8_e5m2    5 bits    2 bits    15    57344    2^-14         2^-16    S.11111.00  the codes above it
//
// A conversion from float rounds to nearest, ties to even, once, and saturates: what lies beyond the largest number
// becomes that number, infinities too (the specification's saturating mode). A NaN stays a NaN (code 0x7f).
// As the element of a call such a number has float as its accumulator: a fold rounds once. Gradients also need a
// scale: see quantized.hpp.
#pragma once

#include <colls/operators.hpp>

namespace colls::inline v1 {

/// The constants of an 8-bit format, and its conversions: 32-bit integer code without branches, so that loops over
/// arrays vectorise.
template <int fraction_bits, int exponent_bias, unsigned largest_code, unsigned infinity_code>
struct fp8_format {
    static constexpr int fraction = fraction_bits;  ///< bits of the fraction
    static constexpr int bias = exponent_bias;      ///< of the exponent
    /// The code of the largest number. What lies above it is infinity_code, if the format has one, or a NaN.
    static constexpr unsigned largest = largest_code;

    /// The number that a code stands for.
    [[gnu::always_inline]] static constexpr float decoded(unsigned char code) {
        const unsigned magnitude = code & 0x7fu;
        const unsigned special = sign_of(code) | chosen(magnitude == infinity_code, 0x7f800000u, 0x7fc00000u);
        return detail::float_of(
            chosen(detail::less(largest, magnitude), special, detail::bits_of(decoded_finite(code))));
    }
    /// The value of a code that is a number.
    [[gnu::always_inline]] static constexpr float decoded_finite(unsigned char code) {
        const unsigned aligned = (code & 0x7fu) << (23 - fraction);
        const unsigned normal = aligned + (unsigned{127 - bias} << 23);
        const unsigned subnormal = detail::bits_of(
            detail::float_of(aligned + (unsigned{128 - bias} << 23)) - detail::float_of(unsigned{128 - bias} << 23));
        return detail::float_of(sign_of(code) | chosen(detail::less(aligned, 1u << 23), subnormal, normal));
    }

    /// The code of the nearest number, ties to even; the largest where x is larger.
    [[gnu::always_inline]] static constexpr unsigned char encoded(float x) {
        const unsigned a = detail::bits_of(x) & 0x7fffffffu, finite = rounded(a);
        return with_sign_of(
            x, chosen(detail::less(0x7f800000u, a), 0x7fu, chosen(detail::less(finite, largest), finite, largest)));
    }
    /// The code of a number that is not beyond the largest.
    [[gnu::always_inline]] static constexpr unsigned char encoded_finite(float x) {
        return with_sign_of(x, rounded(detail::bits_of(x) & 0x7fffffffu));
    }

private:
    [[gnu::always_inline]] static constexpr unsigned sign_of(unsigned char code) { return (code & 0x80u) << 24; }
    [[gnu::always_inline]] static constexpr unsigned char with_sign_of(float x, unsigned code) {
        return static_cast<unsigned char>((detail::bits_of(x) >> 24 & 0x80u) | code);
    }
    /// The code of a magnitude, not saturated.
    [[gnu::always_inline]] static constexpr unsigned rounded(unsigned a) {
        // Below the least normal number: the sum's last bit is that of the least number, which rounds it.
        constexpr unsigned unit = unsigned{127 + 24 - bias - fraction} << 23;
        const unsigned small = detail::bits_of(detail::float_of(a) + detail::float_of(unit)) - unit;
        const unsigned normal =
            (a - (unsigned{127 - bias} << 23) + (1u << (22 - fraction)) - 1 + (a >> (23 - fraction) & 1u)) >>
            (23 - fraction);
        return chosen(detail::less(a, unsigned{128 - bias} << 23), small, normal);
    }
    /// By bits: compilers turn a conditional into a branch around the sum of floats, and do not vectorise it.
    [[gnu::always_inline]] static constexpr unsigned chosen(bool first, unsigned a, unsigned b) {
        const unsigned mask = 0u - static_cast<unsigned>(first);
        return (a & mask) | (b & ~mask);
    }
};

/// A number of 8 bits, computed in float: explicit from float, implicit to it.
template <class Format>
struct fp8 {
    using format = Format;      ///< its fp8_format
    using accumulator = float;  ///< what it is folded in
    unsigned char bits;         ///< its code

    fp8() = default;
    /// Rounds to the nearest.
    [[gnu::always_inline]] constexpr explicit fp8(float x) : bits(Format::encoded(x)) {}
    /// The number whose code is b.
    static constexpr fp8 from_bits(unsigned char b) {
        fp8 x(0.0f);
        x.bits = b;
        return x;
    }
    /// Its value, exactly.
    [[gnu::always_inline]] constexpr operator float() const { return Format::decoded(bits); }
};

/// Four bits of exponent, three of fraction: up to 448, no infinity.
using fp8_e4m3 = fp8<fp8_format<3, 7, 0x7e, 0x80>>;
/// Five bits of exponent, two of fraction: up to 57344, and infinity.
using fp8_e5m2 = fp8<fp8_format<2, 15, 0x7b, 0x7c>>;

}  // namespace colls::inline v1
