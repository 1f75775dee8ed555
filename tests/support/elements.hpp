// Element types and operators of the tests, written without the library.
#pragma once

#include "random.hpp"

#include <algorithm>
#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace support {

// ---- user types, without padding, so that equal values have equal bits ----

/// 2x2 matrices modulo 2^32 under multiplication: associative, not commutative.
struct matrix {
    std::uint32_t a, b, c, d;
};
inline matrix multiply(const matrix& x, const matrix& y) {
    return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
}

/// x -> scale·x + shift modulo 2^64. The operator composes: first the left map, then the right one.
struct affine {
    std::uint64_t scale, shift;
};
inline affine then(const affine& f, const affine& g) { return {f.scale * g.scale, f.shift * g.scale + g.shift}; }

/// A text of at most 131 characters under concatenation: the result spells the order of the operands. Larger than two
/// cache lines, and no power of two.
struct word {
    std::uint32_t size;
    char text[132];
};
inline word concatenate(const word& x, const word& y) {
    word z = x;
    // Correct operands never overflow the text; a text that is cut differs from every correct result.
    for (std::uint32_t i = 0; i < y.size && i < sizeof y.text && z.size < sizeof z.text; ++i)
        z.text[z.size++] = y.text[i];
    return z;
}

/// Consecutive ranks [first, last]. Joining two that are not adjacent marks the result as spoilt, and all joins with
/// it.
struct interval {
    std::int16_t first, last;
    std::int16_t position, spoilt;
};
inline interval join(const interval& x, const interval& y) {
    const bool fits = !x.spoilt && !y.spoilt && x.last + 1 == y.first && x.position == y.position;
    return {x.first, y.last, x.position, static_cast<std::int16_t>(fits ? 0 : 1)};
}

/// Three bytes: a size that divides no cache line or chunk.
struct rgb {
    std::uint8_t r, g, b;
};
inline rgb lighten(const rgb& x, const rgb& y) {
    return {std::max(x.r, y.r), static_cast<std::uint8_t>(x.g | y.g), static_cast<std::uint8_t>(x.b + y.b)};
}

struct body {
    float position[3];
    std::int32_t mass;
};
inline body gather_mass(const body& x, const body& y) {
    return {
        {x.position[0] + y.position[0], x.position[1] + y.position[1], x.position[2] + y.position[2]}, x.mass + y.mass};
}

// ---- 16-bit floats, converted bit by bit (round to nearest, ties to even) ----

inline float from_bfloat16_bits(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
inline std::uint16_t to_bfloat16_bits(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float from_half_bits(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent ? static_cast<float>(fraction + 1024) : static_cast<float>(fraction);
    for (int e = exponent ? exponent : 1; e < 25; ++e) value *= 0.5f;
    for (int e = 25; e < exponent; ++e) value *= 2;
    return bits & 0x8000 ? -value : value;
}
inline std::uint16_t to_half_bits(float x) {  // finite, within the normal range of half
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude < 0x38800000u) {  // subnormal or zero: a multiple of 2^-24
        float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
        const auto floor = static_cast<std::uint32_t>(scaled);
        scaled -= static_cast<float>(floor);
        return static_cast<std::uint16_t>(
            sign | (floor + (scaled > 0.5f || (scaled == 0.5f && (floor & 1)) ? 1u : 0u)));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23);
    return static_cast<std::uint16_t>(sign | rounded >> 13);
}

}  // namespace support
