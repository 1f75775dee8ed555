// Sums blocks of an array without an error, at about the speed of memory.
// IWYU pragma: private, include <colls/exact.hpp>
//
// A block's greatest exponent gives a unit u so large that every lane's sum of multiples of u is exact in double. Each
// number is cut at u: hi = (x + 1.5 * 2^52 u) - 1.5 * 2^52 u is a multiple of u, and x - hi, which is exact too, is cut
// at the next unit. Numbers of similar size need one cut or two, others a few more (Demmel and Nguyen 2015 bin numbers
// so): up to four in one pass.
//
// Compiled for the baseline and for AVX2, as the reduce loops are; a caller runs it while it rounds to nearest. Blocks
// that hold subnormal doubles, numbers near the end of double's range, infinities or NaNs are added number by number,
// by integers.
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

/// How a block is summed: by so many cuts, the first at the exponent `top`. 0: it is zeros; less: number by number.
struct block_cuts {
    int cuts = -1, top = 0;
};

/// Vectors of four numbers, and of numbers and integers of 32 bytes. (g++ ignores the attribute on a type that depends
/// on a template's parameter, and makes slow code of vectors that no register holds.)
template <class X>
struct vectors_of;
template <>
struct vectors_of<float> {
    using four = float __attribute__((vector_size(16)));
    using whole = float __attribute__((vector_size(32)));
    using integers = std::int32_t __attribute__((vector_size(32)));
};
template <>
struct vectors_of<double> {
    using four = double __attribute__((vector_size(32)));
    using whole = four;
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
    /// What a cut leaves is at most half a unit: so far from each other the exponents of two cuts lie.
    static constexpr int apart = below + 1;
    /// Made in one pass.
    static constexpr int most_cuts = 4;
    /// Where double itself could overflow, or lose what is subnormal: exponents of the greatest number.
    static constexpr int highest = 950, least = -800;
    static_assert(least - (most_cuts - 1) * apart - below > -1022);

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
    [[gnu::always_inline]] static void measure(const X* x, std::size_t count, block_cuts& made) {
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
        if (most == 0) made.cuts = 0;
        made.top = exponent_of(most);
        int bottom = exponent_of(static_cast<integer>(low + bounds::without_sign));
        if (sizeof(X) == 4 && bottom < 1 - format::bias) bottom = 1 - format::bias;  // a double that is not subnormal
        if (made.cuts == 0 || made.top > format::bias || bottom < 1 - format::bias) return;
        if (sizeof(X) == 8 && (made.top > highest || made.top < least)) return;
        const int under = made.top - below - (bottom - format::digits + 1);
        made.cuts = 1 + (under > 0 ? (under + apart - 1) / apart : 0);
    }

    /// Sums of what so many cuts cut off four vectors. `last`: of what is left, too, which is one of them.
    template <int cuts, bool last>
    struct cut_sums {
        sums own;
        cut_sums<cuts - 1, last> more;
        [[gnu::always_inline]] void clear() {
            own.clear();
            if constexpr (cuts > 1) more.clear();
        }
        [[gnu::always_inline]] static void take(
            doubles& sum, doubles& v, [[maybe_unused]] double unit, [[maybe_unused]] const regrouping_fence& fence) {
            if constexpr (cuts == 1 && last) {
                sum += v;
            } else {
                doubles hi;
                round(hi, v, unit, fence);
                sum += hi;
                v -= hi;
                fence.after<words>(v);
            }
        }
        [[gnu::always_inline]] void take(doubles (&v)[4], double unit, const regrouping_fence& fence) {
            take(own.a, v[0], unit, fence);
            take(own.b, v[1], unit, fence);
            take(own.c, v[2], unit, fence);
            take(own.d, v[3], unit, fence);
            if constexpr (cuts > 1) more.take(v, unit * power(-apart), fence);
        }
        [[gnu::always_inline]] void total(int top, scaled_integer* made) const {
            *made = own.total(top - below);
            if constexpr (cuts > 1) more.total(top - apart, made + 1);
        }
    };
    template <bool last>
    struct cut_sums<0, last> {};

    /// Cuts numbers, whose greatest exponent is `top`, at the units of as many exponents, `apart` from each other.
    /// Where there is no place for what is left, nothing is.
    template <class Y, int cuts, bool last>
    [[gnu::always_inline]] static void cut_by(
        const Y* x, std::size_t count, int top, double* left, scaled_integer* made) {
        cut_sums<cuts, last> s;
        s.clear();
        const double unit = 1.5 * power(52 + top - below);
        const regrouping_fence fence;
        for (std::size_t i = 0; i < count; i += step) {
            doubles v[4];
            block_loops<Y>::load(v[0], x + i);
            block_loops<Y>::load(v[1], x + i + 4);
            block_loops<Y>::load(v[2], x + i + 8);
            block_loops<Y>::load(v[3], x + i + 12);
            s.take(v, unit, fence);
            if constexpr (!last) std::memcpy(left + i, v, sizeof v);
        }
        s.total(top, made);
    }
    template <class Y>
    [[gnu::always_inline]] static void cut(
        const Y* x, std::size_t count, int top, int cuts, double* left, scaled_integer* made) {
        if (cuts == 1) return cut_by<Y, 1, true>(x, count, top, left, made);
        if (cuts == 2) return cut_by<Y, 2, true>(x, count, top, left, made);
        if (cuts == 3) return cut_by<Y, 3, true>(x, count, top, left, made);
        if (cuts == 4) return cut_by<Y, 4, true>(x, count, top, left, made);
        cut_by<Y, most_cuts, false>(x, count, top, left, made);
    }
};

/// Adds a block of float or double, of `count` numbers, a multiple of 16. add_number(&x) and add_integer(units,
/// exponent) add to the sum.
template <class X, class AddNumber, class AddInteger>
void add_block(const X* x, std::size_t count, AddNumber add_number, AddInteger add_integer) {
    using loops = block_loops<X>;
    block_cuts made;
    for_processor<&loops::measure>::run(x, count, made);
    int cuts = made.cuts, top = made.top;
    if (cuts == 0) return;
    for (std::size_t i = 0; cuts < 0 && i < count; ++i) add_number(x + i);
    alignas(64) double left[loops::length];
    scaled_integer sums[loops::most_cuts];
    const auto cut = [&]<class Y>(const Y* from) {
        for_processor<&loops::template cut<Y>>::run(from, count, top, cuts, left, sums);
        for (int c = 0; c < cuts && c < loops::most_cuts; ++c) add_integer(sums[c].units, sums[c].exponent);
        top -= loops::most_cuts * loops::apart;
        cuts -= loops::most_cuts;
    };
    if (cuts > 0) cut(x);
    while (cuts > 0 && top >= loops::least) {
        std::uint64_t most = 0;
        for (std::size_t i = 0; i < count; ++i)
            if (const auto m = __builtin_bit_cast(std::uint64_t, left[i]) << 1; m > most) most = m;
        if (most == 0) return;
        const int skipped =
            (top - block_loops<double>::exponent_of(static_cast<std::int64_t>(most >> 1))) / loops::apart;
        top -= skipped * loops::apart;
        cuts -= skipped;
        if (top >= loops::least) cut(left);
    }
    if constexpr (sizeof(X) == 8)
        for (std::size_t i = 0; cuts > 0 && i < count; ++i) add_number(left + i);
}

}  // namespace colls::inline v1::detail

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
