// Sums blocks of an array without an error, at about the speed of memory.
// IWYU pragma: private, include <colls/exact.hpp>
//
// A block's greatest exponent gives a unit u so large that every lane's sum of multiples of u is exact in double. Each
// number is cut at u: hi = (x + 1.5 * 2^52 u) - 1.5 * 2^52 u is a multiple of u, and x - hi, which is exact too, is cut
// at the next unit. Numbers of similar size need one cut or two, others a few more (Demmel and Nguyen 2015 bin numbers
// so).
//
// Compiled for the baseline and for AVX2, as the reduce loops are; a caller runs it while it rounds to nearest. Blocks
// that hold subnormals, numbers near the end of double's range, infinities or NaNs are added number by number, by
// integers.
#pragma once

#include <colls/detail/support/for_processor.hpp>
#include <colls/exact/detail/floating_point.hpp>
#include <colls/exact/detail/number_format.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed among inlined functions alone
#endif

namespace colls::inline v1::detail {

/// units * 2^exponent.
struct scaled_integer {
    std::int64_t units;
    int exponent;
};

/// What became of a block: the integers that it sums to, or that it must be added number by number.
struct block_result {
    scaled_integer sums[2];
    int count = 0;
    /// The numbers, the greatest of exponent `top`, are spread too far for two cuts.
    bool is_spread = false;
    int top = 0;
    bool is_summed = false;
};

/// Vectors of four numbers, and of integers of 32 bytes. (g++ ignores the attribute on a type that depends on a
/// template's parameter, and makes slow code of vectors that no register holds.)
template <class X>
struct vectors_of;
template <>
struct vectors_of<float> {
    using four = float __attribute__((vector_size(16)));
    using integers = std::int32_t __attribute__((vector_size(32)));
};
template <>
struct vectors_of<double> {
    using four = double __attribute__((vector_size(32)));
    using integers = std::int64_t __attribute__((vector_size(32)));
};

/// Blocks of X, float or double.
template <class X>
struct block_loops {
    using format = number_format<X>;
    using integer = std::conditional_t<sizeof(X) == 8, std::int64_t, std::int32_t>;
    using four = typename vectors_of<X>::four;
    using integers = typename vectors_of<X>::integers;
    using doubles = typename vectors_of<double>::four;
    using words = std::uint64_t __attribute__((vector_size(32)));

    static constexpr std::size_t step = 16, length = sizeof(X) == 8 ? 1024 : 2048;
    /// log2 of the numbers that a lane sums.
    static constexpr int grows = sizeof(X) == 8 ? 6 : 7;
    static_assert(length / step == std::size_t{1} << grows);
    /// The unit is 2^(greatest exponent - below): 2^grows numbers below 2^(greatest exponent + 1) are 2^53 units.
    static constexpr int below = 52 - grows;
    /// What a cut leaves is at most half a unit: the next unit lies so far below.
    static constexpr int below_next = below + 1 + below;
    /// Where double itself could overflow, or lose what is subnormal: exponents of the greatest number.
    static constexpr int highest = 950, least = -900;

    // By reference: functions that pass vectors have another ABI on each processor, of which g++ warns.
    [[gnu::always_inline]] static void load(doubles& to, const X* x) {
        four v;
        std::memcpy(&v, x, sizeof v);
        to = __builtin_convertvector(v, doubles);
    }
    static int exponent_of(integer magnitude) {
        return static_cast<int>(magnitude >> (format::digits - 1)) - format::bias;
    }
    static double power(int exponent) {
        return __builtin_bit_cast(double, static_cast<std::uint64_t>(1023 + exponent) << 52);
    }
    /// Sixteen sums, each at most 2^53 units.
    static scaled_integer total(const double* lanes, int exponent) {
        const double scale = power(-exponent);
        std::int64_t units = 0;
        for (std::size_t l = 0; l < step; ++l) units += static_cast<std::int64_t>(lanes[l] * scale);
        return {units, exponent};
    }
    /// The multiple of the unit that is next to v, where cut is 1.5 * 2^52 units.
    [[gnu::always_inline]] static void round(doubles& to, const doubles& v, double cut, const regrouping_fence& fence) {
        to = v + cut;
        fence.after<words>(to);
        to -= cut;
        fence.after<words>(to);
    }
    /// Sixteen lanes.
    struct sums {
        doubles a, b, c, d;
        // No initialisers: nvcc would make device code of them, which has no vectors.
        [[gnu::always_inline]] void clear() { a = b = c = d = doubles{}; }
        [[gnu::always_inline]] scaled_integer total(int exponent) const {
            double lanes[step];
            std::memcpy(lanes, &a, sizeof a);
            std::memcpy(lanes + 4, &b, sizeof b);
            std::memcpy(lanes + 8, &c, sizeof c);
            std::memcpy(lanes + 12, &d, sizeof d);
            return block_loops::total(lanes, exponent);
        }
    };
    /// The greatest magnitude, and the least but zero less `without_sign`, of each lane.
    struct bounds {
        static constexpr integer without_sign = static_cast<integer>(~std::make_unsigned_t<integer>{} >> 1);
        integers most, low;
        [[gnu::always_inline]] void clear() { most = low = integers{}; }
        [[gnu::always_inline]] void take(const X* from) {
            integers x;
            std::memcpy(&x, from, sizeof x);
            const integers m = x & without_sign, l = m == 0 ? m : m - without_sign;
            most = m > most ? m : most;
            low = l < low ? l : low;
        }
        [[gnu::always_inline]] void join(const bounds& b) {
            most = b.most > most ? b.most : most;
            low = b.low < low ? b.low : low;
        }
    };

    /// `count`: a multiple of step, at most length.
    [[gnu::always_inline]] static void sum(const X* x, std::size_t count, block_result& made) {
        constexpr std::size_t held = sizeof(integers) / sizeof(integer);
        bounds one, two;
        one.clear();
        two.clear();
        for (std::size_t i = 0; i < count; i += 2 * held) {
            one.take(x + i);
            two.take(x + i + held);
        }
        one.join(two);
        integer most = 0, low = 0;
        for (std::size_t l = 0; l < held; ++l) {
            most = one.most[l] > most ? one.most[l] : most;
            low = one.low[l] < low ? one.low[l] : low;
        }
        made.is_summed = most == 0;
        if (most == 0) return;
        const int top = exponent_of(most), bottom = exponent_of(static_cast<integer>(low + bounds::without_sign));
        if (top > format::bias || bottom < 1 - format::bias) return;
        if (sizeof(X) == 8 && (top > highest || top < least)) return;
        const int last_bit = bottom - format::digits + 1;
        made.is_summed = last_bit >= top - below_next;
        made.is_spread = !made.is_summed;
        made.top = top;
        if (made.is_spread) return;
        if (last_bit >= top - below) {
            sums s;
            s.clear();
            const auto take = [](const X* from, doubles& sum) {
                doubles v;
                load(v, from);
                sum += v;
            };
            for (std::size_t i = 0; i < count; i += step) {
                take(x + i, s.a);
                take(x + i + 4, s.b);
                take(x + i + 8, s.c);
                take(x + i + 12, s.d);
            }
            made.sums[0] = s.total(top - below);
            made.count = 1;
            return;
        }
        const double cut = 1.5 * power(52 + top - below);
        sums s, rest;
        s.clear();
        rest.clear();
        const regrouping_fence fence;
        const auto take = [=](const X* from, doubles& sum, doubles& left) {
            doubles v, hi;
            load(v, from);
            round(hi, v, cut, fence);
            sum += hi;
            v -= hi;
            fence.after<words>(v);
            left += v;
        };
        for (std::size_t i = 0; i < count; i += step) {
            take(x + i, s.a, rest.a);
            take(x + i + 4, s.b, rest.b);
            take(x + i + 8, s.c, rest.c);
            take(x + i + 12, s.d, rest.d);
        }
        made.sums[0] = s.total(top - below);
        made.sums[1] = rest.total(top - below_next);
        made.count = 2;
    }

    /// Cuts `count` numbers, whose greatest exponent is `top`, at its unit; x keeps what is left. Returns the greatest
    /// magnitude of that, as bits.
    [[gnu::always_inline]] static std::int64_t cut_once(double* x, std::size_t count, int top, scaled_integer& made) {
        const double cut = 1.5 * power(52 + top - below);
        sums s;
        typename block_loops<double>::bounds rest;
        s.clear();
        rest.clear();
        const regrouping_fence fence;
        const auto take = [&](double* from, doubles& sum) {
            doubles v, hi;
            std::memcpy(&v, from, sizeof v);
            round(hi, v, cut, fence);
            const doubles left = v - hi;
            sum += hi;
            std::memcpy(from, &left, sizeof left);
            rest.take(from);
        };
        for (std::size_t i = 0; i < count; i += step) {
            take(x + i, s.a);
            take(x + i + 4, s.b);
            take(x + i + 8, s.c);
            take(x + i + 12, s.d);
        }
        made = s.total(top - below);
        std::int64_t most = 0;
        for (std::size_t l = 0; l < 4; ++l) most = rest.most[l] > most ? rest.most[l] : most;
        return most;
    }
};

/// Adds a block of float or double, of `count` numbers, a multiple of 16. add_number(&x) and add_integer(units,
/// exponent) add to the sum.
template <class X, class AddNumber, class AddInteger>
void add_block(const X* x, std::size_t count, AddNumber add_number, AddInteger add_integer) {
    using loops = block_loops<X>;
    block_result made;
    for_processor<&loops::sum>::run(x, count, made);
    for (int k = 0; k < made.count; ++k) add_integer(made.sums[k].units, made.sums[k].exponent);
    if (made.is_summed) return;
    if (!made.is_spread) {
        for (std::size_t i = 0; i < count; ++i) add_number(x + i);
        return;
    }
    alignas(64) double left[loops::length];
    for (std::size_t i = 0; i < count; ++i) left[i] = x[i];
    for (int top = made.top; top >= loops::least;) {
        const std::int64_t most = for_processor<&loops::cut_once>::run(left, count, top, made.sums[0]);
        add_integer(made.sums[0].units, made.sums[0].exponent);
        if (most == 0) return;
        top = block_loops<double>::exponent_of(most);
    }
    if constexpr (sizeof(X) == 8)
        for (std::size_t i = 0; i < count; ++i) add_number(left + i);
}

}  // namespace colls::inline v1::detail

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
