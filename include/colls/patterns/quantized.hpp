// quantized<Code, B>: B floats as one scale and B codes of 8 bits, an element type for every call.
//
//     std::vector<colls::quantized<std::int8_t>> blocks(1000);        // 128,000 floats in 132,000 bytes
//     colls::all_reduce<colls::direct>(comm, blocks, colls::sum);     // folded in float, rounded once
//
// A block's accumulator is a float_block, so sum, avg and premul_sum fold any number of blocks in float and quantise
// the result once (operators.hpp). How often a value is quantised on its way through a schedule follows from the
// schedule: see requantisations in compressed.hpp.
//
// The scale is chosen by the largest magnitude m of the block, the same on every machine:
//   int8       m / 127, rounded up to 16 significant bits: codes use the whole range from -127 to 127, where a power of
//              two would lose up to one of the eight bits; and code times scale is exact, so that a compiler that fuses
//              it with a sum changes no bit.
//   fp8        the least power of two by which m is at most the format's largest number. A code has its own exponent,
//              so no precision is lost, and to scale is exact: quantising what was quantised before changes no value.
// The error of a value is at most worst_error times m; for int8 that is half a scale.
//
// Zeros stay zeros. A scale is at least 2^-126, the least normal float, so blocks whose m is smaller than that times
// the largest code lose their lower bits, and arithmetic that flushes subnormals gives the same bits. A block that
// holds a NaN, an infinity or a magnitude of 2^127 or more becomes NaN as a whole, and so does every sum with it: a
// trainer that looks for overflow in the result sees it on every rank.
#pragma once

#include <colls/operators.hpp>
#include <colls/patterns/fp8.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace colls::inline v1 {

/// B floats: what quantized<Code, B> is folded in.
template <int B>
struct float_block {
    alignas(64) float values[std::size_t{B}];  ///< the floats

    [[gnu::always_inline]] friend float_block operator+(const float_block& a, const float_block& b) {
        float_block c;
        for (int i = 0; i < B; ++i) c.values[i] = a.values[i] + b.values[i];
        return c;
    }
    [[gnu::always_inline]] friend float_block operator*(const float_block& a, float factor) {
        float_block b;
        for (int i = 0; i < B; ++i) b.values[i] = a.values[i] * factor;
#if defined(__GNUC__)
        asm("" : "+m"(b.values));  // keeps the products from being fused with the sum that follows
#endif
        return b;
    }
};

/// B floats in B codes with a common scale: value i is codes[i] * scale.
///
///   Code  std::int8_t, fp8_e4m3 or fp8_e5m2
///   B     a multiple of 16. The larger, the fewer bytes of scales, and the more values lose by one that is large: 128
///         costs 3 % and is usual.
template <class Code, int B = 128>
struct quantized {
    static_assert(std::is_same_v<Code, std::int8_t> || std::is_same_v<Code, fp8_e4m3> || std::is_same_v<Code, fp8_e5m2>,
        "colls: codes of a quantized block are std::int8_t, fp8_e4m3 or fp8_e5m2");
    static_assert(B > 0 && B % 16 == 0, "colls: a quantized block has a multiple of 16 values");
    using code = Code;                   ///< of a value
    using accumulator = float_block<B>;  ///< what it is folded in

    float scale;                 ///< by which codes are multiplied
    Code codes[std::size_t{B}];  ///< one a value

    quantized() = default;

    /// Rounds each value to the nearest multiple of a scale that the largest determines.
    [[gnu::always_inline]] explicit quantized(const float_block<B>& x) {
        int most = 0;  // as bits: magnitudes compare as integers
        for (int i = 0; i < B; ++i) {
            const int a = static_cast<int>(detail::bits_of(x.values[i]) & 0x7fffffffu);
            most = a > most ? a : most;
        }
        const bool finite = most < 0x7f000000;
        scale = scale_for(static_cast<unsigned>(most));
        const float inverse = 1.0f / scale;
        // Zero where the block is not finite. The mask also keeps the product from being fused with the sum in coded.
        const unsigned mask = finite ? ~0u : 0u;
        for (int i = 0; i < B; ++i) codes[i] = coded(detail::float_of(detail::bits_of(x.values[i] * inverse) & mask));
        if (!finite) scale = detail::float_of(0x7fc00000u);
    }

    /// The values that it stands for.
    [[gnu::always_inline]] explicit operator float_block<B>() const {
        float_block<B> x;
        for (int i = 0; i < B; ++i) x.values[i] = value(codes[i]) * scale;
        return x;
    }

    /// Divides every value, by way of the scale: the last step of avg, which quantises nothing.
    [[gnu::always_inline]] friend quantized operator/(quantized x, int n) {
        x.scale /= static_cast<float>(n);
        return x;
    }

    /// The largest error of a value, as a part of the block's largest magnitude.
    static constexpr float worst_error = [] {
        if constexpr (std::is_same_v<Code, std::int8_t>)
            return 0.5f / 127.0f * (1 + 0x1p-15f);
        else
            return 1.0f / static_cast<float>(2 << Code::format::fraction);  // half of the last place
    }();

private:
    /// For a block whose largest magnitude has these bits.
    [[gnu::always_inline]] static float scale_for(unsigned most) {
        if constexpr (std::is_same_v<Code, std::int8_t>) {
            const unsigned bits = (detail::bits_of(detail::float_of(most) / 127.0f) + 0xffu) & ~0xffu;
            return detail::float_of(detail::less(bits, 1u << 23) ? 1u << 23 : bits);
        } else {
            // Both formats end at 1.75 * 2^e: a fraction beyond that takes the next power of two.
            constexpr int e = static_cast<int>(Code::format::largest >> Code::format::fraction) - Code::format::bias;
            const int power = static_cast<int>((most + 0x1fffffu) >> 23) - e;
            return detail::float_of(static_cast<unsigned>(power < 1 ? 1 : power) << 23);
        }
    }
    /// The code of a scaled value.
    [[gnu::always_inline]] static Code coded(float x) {
        if constexpr (std::is_same_v<Code, std::int8_t>) {
            // Its last bit is worth 1, which rounds to nearest, ties to even; the code is its lowest byte.
            const float rounded = x + 0x1.8p23f;
            return static_cast<Code>(static_cast<int>(detail::bits_of(rounded) & 0xffu));
        } else {
            Code c;
            c.bits = Code::format::encoded_finite(x);
            return c;
        }
    }
    /// Without its scale. No code of a block is an infinity or a NaN.
    [[gnu::always_inline]] static float value(Code c) {
        if constexpr (std::is_same_v<Code, std::int8_t>)
            return static_cast<float>(c);
        else
            return Code::format::decoded_finite(c.bits);
    }
};

}  // namespace colls::inline v1
