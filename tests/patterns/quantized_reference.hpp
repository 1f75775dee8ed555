// What 8-bit floats and quantised blocks are, written down a second time: in double, one value after the other.
#pragma once

#include <colls/patterns/quantized.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace support {

/// The value of a code, from the tables of OFP8.
template <class F>
double fp8_value(int code) {
    constexpr bool e4m3 = std::is_same_v<F, colls::fp8_e4m3>;
    constexpr int fraction = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    const int magnitude = code & 0x7f, exponent = magnitude >> fraction, rest = magnitude & ((1 << fraction) - 1);
    const double sign = code & 0x80 ? -1 : 1;
    if (e4m3 ? magnitude == 0x7f : magnitude > 0x7c) return std::numeric_limits<double>::quiet_NaN();
    if (!e4m3 && magnitude == 0x7c) return sign * std::numeric_limits<double>::infinity();
    const double significand = exponent == 0 ? rest : rest + (1 << fraction);
    return sign * std::ldexp(significand, std::max(exponent, 1) - bias - fraction);
}

/// The code nearest to a number, the even one of two; the largest beyond it.
template <class F>
unsigned char fp8_nearest(float x) {
    constexpr int largest = std::is_same_v<F, colls::fp8_e4m3> ? 0x7e : 0x7b;
    const double a = std::abs(double{x});
    int low = 0, high = largest;  // values rise with the code
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (fp8_value<F>(middle) <= a ? low : high) = middle;
    }
    const double below = a - fp8_value<F>(low), above = fp8_value<F>(high) - a;
    const int code = below < above || (below == above && low % 2 == 0) ? low : high;
    return static_cast<unsigned char>(code | (std::signbit(x) ? 0x80 : 0));
}

/// The block of these floats.
template <class Q>
Q reference_block(const float* x) {
    constexpr std::size_t size = sizeof(Q::codes) / sizeof(typename Q::code);
    Q q{};
    float most = 0;
    bool finite = true;
    for (std::size_t i = 0; i < size; ++i) {
        finite = finite && std::abs(x[i]) < 0x1p127f;
        most = std::max(most, std::abs(x[i]));
    }
    if (!finite) {
        q.scale = std::numeric_limits<float>::quiet_NaN();
        return q;
    }
    constexpr float least = std::numeric_limits<float>::min();
    if constexpr (std::is_same_v<typename Q::code, std::int8_t>) {
        volatile float exact = most / 127;
        float scale = exact;
        std::uint32_t bits;
        std::memcpy(&bits, &scale, 4);
        while (bits % 256 != 0) ++bits;  // 16 significant bits, rounded up
        std::memcpy(&scale, &bits, 4);
        q.scale = std::max(scale, least);
        for (std::size_t i = 0; i < size; ++i) {
            volatile float scaled = x[i] * (1 / q.scale);  // rounded by itself
            q.codes[i] = static_cast<std::int8_t>(std::nearbyint(scaled));
        }
    } else {
        const float end = std::is_same_v<typename Q::code, colls::fp8_e4m3> ? 448 : 57344;
        q.scale = least;
        while (most > end * q.scale) q.scale *= 2;
        for (std::size_t i = 0; i < size; ++i) q.codes[i].bits = fp8_nearest<typename Q::code>(x[i] / q.scale);
    }
    return q;
}

}  // namespace support
