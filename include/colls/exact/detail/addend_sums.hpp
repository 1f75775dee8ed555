// Sums of elements of which all addends are at hand: what the integers of lanes.hpp would give, without writing them.
// IWYU pragma: private, include <colls/exact.hpp>
//
// A tile is summed by vectors, in the registers. Where the addends of each element are within some binades of its
// greatest, no rounding to units changes them, and a double, or two, holds their sum. Else the greatest magnitude of
// each element gives its unit; each addend is rounded to units, and these are added as integers. If an element of the
// tile is special, or may have to do with subnormals, the tile is summed again, number by number. Where floats add up
// exactly, in double, a compiler may regroup them; elsewhere fences keep it from that.
#pragma once

#include <colls/detail/support/for_processor.hpp>
#include <colls/exact/detail/block_sums.hpp>
#include <colls/exact/detail/lanes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed among inlined functions alone
#endif

namespace colls::inline v1::detail {

/// So many ranks at most send each other their addends, and each sums a block's itself: as many bytes as a plain
/// all_reduce moves, and fewer passes over memory.
inline constexpr int exact_few_ranks = 32;

/// x[r * stride + i] is rank r's addend of element i.
template <class T>
struct addends_of {
    const T* x;
    std::size_t stride;
    int ranks;
    const T* of(int r) const { return x + static_cast<std::size_t>(r) * stride; }
};

/// The integers of any element.
template <class T>
void sum_one_by_one(const addends_of<T>& all, std::size_t at, std::size_t count, T* to) {
    for (std::size_t i = at; i < at + count; ++i) {
        level_of<T> level = 0;
        for (int r = 0; r < all.ranks; ++r)
            if (const level_of<T> own = own_level<T>(lane_format<T>::bits_at(all.of(r) + i)); own > level) level = own;
        std::int64_t first = 0, second = 0;
        for (int r = 0; r < all.ranks; ++r) {
            std::int64_t one = 0, two = 0;
            to_lanes<T>(lane_format<T>::bits_at(all.of(r) + i), level, one, two);
            first += one;
            if constexpr (lane_format<T>::lanes == 2) second += two;
        }
        const bits_of_number<T> made = from_lanes<T>(level, first, second);
        std::memcpy(to + i, &made, sizeof made);
    }
}

/// Vectors of X, float or double.
template <class X>
struct addend_vectors {
    using format = lane_format<X>;
    using doubles = typename vectors_of<double>::four;
    using longs = typename vectors_of<double>::integers;
    using words = std::uint64_t __attribute__((vector_size(32)));  // integers that may wrap where a tile is bad
    using integers = typename vectors_of<X>::integers;
    static constexpr std::size_t step = sizeof(integers) / sizeof(X), halves = step / 4;

    [[gnu::always_inline]] static void widen(longs& to, const integers& x, std::size_t half) {
        if constexpr (sizeof(X) == 8) {
            to = x;
        } else {
            using four = std::int32_t __attribute__((vector_size(16)));
            four v;
            std::memcpy(&v, reinterpret_cast<const char*>(&x) + half * sizeof v, sizeof v);
            to = __builtin_convertvector(v, longs);
        }
    }

    /// Sums `step` elements whose addends are near each other. `far`: some bit of it is set where they are not, or
    /// where an element must be summed one by one; the sums are to be made again then. `odd`: as below.
    template <bool odd>
    [[gnu::always_inline]] static void sum_near(
        const addends_of<X>& all, std::size_t at, X* to, integers& far, const regrouping_fence& fence) {
        using integer = std::remove_reference_t<decltype(far[0])>;
        constexpr auto magnitude = static_cast<integer>(~std::make_unsigned_t<integer>{} >> 1);
        // The last bit of an addend is not below the unit of the greatest.
        constexpr integer binades = format::width * format::lanes - format::digits;
        constexpr integer highest = format::special - 6;  // sums of 32 are in range
        integers most{}, least = integers{} + magnitude;
        doubles sums[halves], rests[halves]{};
        for (doubles& zero : sums) fence.clear<words>(zero);
        for (int r = 0; r < all.ranks; ++r) {
            integers bits;
            std::memcpy(&bits, all.of(r) + at, sizeof bits);
            bits &= magnitude;
            most = bits > most ? bits : most;
            bits = bits == 0 ? integers{} + magnitude : bits;
            least = bits < least ? bits : least;
            for (std::size_t h = 0; h < halves; ++h) {
                doubles x;
                block_loops<X>::load(x, all.of(r) + at + 4 * h);
                if constexpr (sizeof(X) == 8) {
                    // Knuth's sum and its error. The errors of 32 numbers so near each other add up exactly.
                    doubles sum = sums[h] + x;
                    fence.after<words>(sum);
                    doubles part = sum - sums[h];
                    fence.after<words>(part);
                    doubles other = sum - part;
                    fence.after<words>(other);
                    doubles rest = sums[h] - other, more = x - part;
                    fence.after<words>(rest);
                    fence.after<words>(more);
                    rests[h] += rest + more;
                    sums[h] = sum;
                } else {
                    sums[h] += x;
                }
            }
        }
        const integers level = most >> (format::digits - 1), lowest = least >> (format::digits - 1);
        far |= (level - lowest > binades) | ((most != 0) & ((level < format::lowest_level) | (level > highest)));
        for (std::size_t h = 0; h < halves; ++h) put<odd>(to + 4 * h, sums[h] + rests[h]);
    }

    /// Sums `step` elements. `bad`: some bit of it is set where an element must be summed one by one. `odd`: what float
    /// cannot hold sets its last bit: then rounding a second time is rounding once.
    template <bool odd>
    [[gnu::always_inline]] static void sum(
        const addends_of<X>& all, std::size_t at, X* to, integers& bad, const regrouping_fence& fence) {
        using integer = std::remove_reference_t<decltype(bad[0])>;
        constexpr auto magnitude = static_cast<integer>(~std::make_unsigned_t<integer>{} >> 1);
        integers most{};
        for (int r = 0; r < all.ranks; ++r) {
            integers bits;
            std::memcpy(&bits, all.of(r) + at, sizeof bits);
            bits &= magnitude;
            most = bits > most ? bits : most;
        }
        const integers level = most >> (format::digits - 1);
        bad |= (most != 0) & ((level < format::lowest_level) | (level == format::special));
        for (std::size_t h = 0; h < halves; ++h) {
            longs levels;
            widen(levels, level, h);
            constexpr std::int64_t top = 1023 + format::width - 1 + format::bias,
                                   base = 1023 - format::bias - format::width + 1;
            // For zeros, whose level is 0, any finite `up` will do; `down` must not be negative.
            longs least = levels;
            if constexpr (format::lanes == 2) least = levels > format::width ? levels : longs{} + format::width;
            const words up = reinterpret_cast<words>(top - levels) << 52, down = reinterpret_cast<words>(least + base)
                                                                                 << 52;
            doubles scale, back;
            std::memcpy(&scale, &up, sizeof scale);
            std::memcpy(&back, &down, sizeof back);
            words first{}, second{};
            for (int r = 0; r < all.ranks; ++r) {
                doubles x;
                block_loops<X>::load(x, all.of(r) + at + 4 * h);
                add(x * scale, first, second, fence);
            }
            doubles made;
            real(made, first, fence);
            if constexpr (format::lanes == 2) {
                doubles rest;
                real(rest, second, fence);
                made += rest * (1 / next);
            }
            made *= back;
            put<odd>(to + 4 * h, made);
        }
    }

private:
    template <bool odd>
    [[gnu::always_inline]] static void put(X* to, const doubles& exact) {
        if constexpr (sizeof(X) == 8) {
            std::memcpy(to, &exact, sizeof exact);
        } else {
            doubles made = exact;
            if constexpr (odd) {
                constexpr std::uint64_t low = 0x1fffffff;
                words bits;
                std::memcpy(&bits, &made, sizeof bits);
                bits = (bits | ((bits & low) + low)) & ~low;
                std::memcpy(&made, &bits, sizeof made);
            }
            const auto narrow = __builtin_convertvector(made, typename vectors_of<float>::four);
            std::memcpy(to, &narrow, sizeof narrow);
        }
    }
    static constexpr double next = static_cast<double>(std::int64_t{1} << format::width);

    [[gnu::always_inline]] static void whole(words& to, const doubles& units, const regrouping_fence& fence) {
        doubles shifted = units + format::to_integer;
        fence.after<words>(shifted);
        std::memcpy(&to, &shifted, sizeof to);
        to -= format::bits_of_double(format::to_integer);
    }
    [[gnu::always_inline]] static void real(doubles& to, const words& x, const regrouping_fence& fence) {
        const words shifted = x + format::bits_of_double(format::to_integer);
        std::memcpy(&to, &shifted, sizeof to);
        to -= format::to_integer;
        fence.after<words>(to);
    }
    [[gnu::always_inline]] static void add(
        const doubles& units, words& first, words& second, const regrouping_fence& fence) {
        words one;
        whole(one, units, fence);
        first += one;
        if constexpr (format::lanes == 2) {
            doubles done;
            real(done, one, fence);
            words two;
            whole(two, (units - done) * next, fence);
            second += two;
        }
    }
};

template <class Vector>
[[gnu::always_inline]] inline bool has_bits(const Vector& v) {
    std::uint64_t words[4];
    static_assert(sizeof words == sizeof v);
    std::memcpy(words, &v, sizeof words);
    return (words[0] | words[1] | words[2] | words[3]) != 0;
}

template <class T>
[[gnu::always_inline]] inline void sums_loop(const addends_of<T>& all, std::size_t count, T* to) {
    using X = std::conditional_t<sizeof(T) == 8, double, float>;
    using vectors = addend_vectors<X>;
    constexpr bool is_small = is_small_float<T>;
    const regrouping_fence fence;
    std::size_t at = 0;
    if (all.ranks <= exact_few_ranks)
        for (; at + lane_tile <= count; at += lane_tile) {
            X made[lane_tile], widened[is_small ? exact_few_ranks * lane_tile : 1];
            addends_of<X> tile{widened, lane_tile, all.ranks};
            if constexpr (is_small) {
                for (int r = 0; r < all.ranks; ++r) {
                    const T* const from = all.of(r) + at;
                    X* const to_float = widened + static_cast<std::size_t>(r) * lane_tile;
                    for (std::size_t i = 0; i < lane_tile; ++i) to_float[i] = static_cast<X>(from[i]);
                }
            } else {
                tile = {all.x + at, all.stride, all.ranks};
            }
            typename vectors::integers far{}, bad{};
            for (std::size_t i = 0; i < lane_tile; i += vectors::step)
                vectors::template sum_near<is_small>(tile, i, made + i, far, fence);
            if (has_bits(far))
                for (std::size_t i = 0; i < lane_tile; i += vectors::step)
                    vectors::template sum<is_small>(tile, i, made + i, bad, fence);
            if (has_bits(bad))
                sum_one_by_one(all, at, lane_tile, to);
            else
                for (std::size_t i = 0; i < lane_tile; ++i) to[at + i] = T(made[i]);
        }
    sum_one_by_one(all, at, count - at, to);
}

/// The sums of `count` elements. `to` may be the first rank's addends.
template <class T>
void sum_addends(const addends_of<T>& all, std::size_t count, T* to) {
    const nearest_rounding mode;
    for_processor<&sums_loop<T>>::run(all, count, to);
}

}  // namespace colls::inline v1::detail

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
