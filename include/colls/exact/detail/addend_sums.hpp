// The fold of exact calls on numbers, which has all addends of an element at hand: what the integers of lanes.hpp would
// give, without writing them.
// IWYU pragma: private, include <colls/exact.hpp>
//
// A tile is summed by vectors, in the registers. Where the addends of each element are within some binades of its
// greatest, no rounding to units changes them, and their sum is rounded once: two are added as they are; small floats
// add up exactly in float, floats in double, and doubles in two. Else the greatest magnitude of each element gives its
// unit; each addend is rounded to units, and these are added as integers. If an element of the tile is special, or may
// have to do with subnormals, the tile is summed again, number by number. Where floats add up exactly, a compiler may
// regroup them; elsewhere fences keep it from that.
#pragma once

#include <colls/detail/reduce/fold.hpp>
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

namespace colls::inline v1 {
struct exact_t;
}

namespace colls::inline v1::detail {

/// So many addends the loops take.
inline constexpr int exact_few_ranks = 32;
/// Calls of more ranks by integers send fewer bytes to a root.
inline constexpr int exact_few_to_root = 4;

/// The integers of any element.
template <class T>
void sum_one_by_one(const operand* x, int ranks, std::size_t at, std::size_t count, T* to) {
    const auto addend = [=](int r, std::size_t i) {
        return lane_format<T>::bits_at(static_cast<const T*>(x[r].data) + i);
    };
    for (std::size_t i = at; i < at + count; ++i) {
        level_of<T> level = 0;
        for (int r = 0; r < ranks; ++r)
            if (const level_of<T> own = own_level<T>(addend(r, i)); own > level) level = own;
        std::int64_t first = 0, second = 0;
        for (int r = 0; r < ranks; ++r) {
            std::int64_t one = 0, two = 0;
            to_lanes<T>(addend(r, i), level, one, two);
            first += one;
            if constexpr (lane_format<T>::lanes == 2) second += two;
        }
        const bits_of_number<T> made = from_lanes<T>(level, first, second);
        std::memcpy(to + i, &made, sizeof made);
    }
}

template <class Vector>
[[gnu::always_inline]] inline bool has_bits(const Vector& v) {
    std::uint64_t words[4];
    static_assert(sizeof words == sizeof v);
    std::memcpy(words, &v, sizeof words);
    return (words[0] | words[1] | words[2] | words[3]) != 0;
}

/// A tile's addends. The key of a number is its magnitude's bits; of double the upper 32 of these, rounded up.
template <class T>
struct addend_bounds {
    using format = lane_format<T>;
    using key = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
    using keys = typename level_vector<key>::type;
    static constexpr std::size_t step = sizeof(keys) / sizeof(T);
    /// The greatest key, the least but zero less 1, and how far these are apart in an element.
    keys most, least, apart;

    [[gnu::always_inline]] void clear() {
        most = apart = keys{};
        least = ~most;
    }
    /// Takes `step` elements.
    [[gnu::always_inline]] void take(const T* const* rows, int ranks, std::size_t at) {
        keys high{}, low = ~high, x;
        for (int r = 0; r < ranks; ++r) {
            std::memcpy(&x, rows[r] + at, sizeof x);
            if constexpr (sizeof(T) == 8) {
                using words = std::uint64_t __attribute__((vector_size(32)));
                const words bits = (reinterpret_cast<words>(x) & ~std::uint64_t{0} >> 1) + 0xffffffff;
                x = reinterpret_cast<keys>(bits >> 32);
            } else {
                x &= static_cast<key>(-1) >> 1;
            }
            high = x > high ? x : high;
            x -= 1;
            low = x < low ? x : low;
        }
        most = high > most ? high : most;
        least = low < least ? low : least;
        high -= low;
        apart = high > apart ? high : apart;
    }
    /// Whether an element's addends may be more binades from each other, or it may have to be summed one by one.
    [[gnu::always_inline]] bool are_far(int binades) const {
        constexpr int digits = (format::digits - 1) % 32;
        constexpr bool is_half = std::is_same_v<T, half>;  // sums in float
        constexpr auto lowest = static_cast<key>((is_half ? 0 : format::lowest_level) << digits),
                       end = static_cast<key>((is_half ? format::special : format::special - 5) << digits);
        return has_bits((apart > static_cast<key>(binades << digits)) | (most >= end) | (least < lowest));
    }
};

/// Vectors of X, float or double.
template <class X>
struct addend_vectors {
    using format = lane_format<X>;
    using doubles = typename vectors_of<double>::four;
    using longs = typename vectors_of<double>::integers;
    using words = std::uint64_t __attribute__((vector_size(32)));  // integers that may wrap where a tile is bad
    using integers = typename vectors_of<X>::integers;
    using bits = std::uint32_t __attribute__((vector_size(32)));
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

    /// Sums `step` elements whose addends are near each other. `in_x`: sums in X are exact, or of two.
    template <bool in_x>
    [[gnu::always_inline]] static void sum_near(
        const X* const* rows, int ranks, std::size_t at, X* to, const regrouping_fence& fence) {
        if constexpr (in_x) {
            typename vectors_of<X>::whole sum, x;
            fence.clear<words>(sum);
            for (int r = 0; r < ranks; ++r) {
                std::memcpy(&x, rows[r] + at, sizeof x);
                sum += x;
            }
            std::memcpy(to, &sum, sizeof sum);
            return;
        }
        doubles sums[halves], rests[halves]{};
        for (doubles& zero : sums) fence.clear<words>(zero);
        for (int r = 0; r < ranks; ++r)
            for (std::size_t h = 0; h < halves; ++h) {
                doubles x;
                block_loops<X>::load(x, rows[r] + at + 4 * h);
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
        for (std::size_t h = 0; h < halves; ++h) put<false>(to + 4 * h, sums[h] + rests[h]);
    }
    /// The same of bfloat16s that float holds the sum of, twice as many.
    [[gnu::always_inline]] static void sum_near(
        const bfloat16* const* rows, int ranks, std::size_t at, bfloat16* to, const regrouping_fence& fence) {
        constexpr std::uint32_t upper = 0xffff0000;
        using vector = typename vectors_of<float>::whole;
        vector low, high;
        fence.clear<words>(low);
        fence.clear<words>(high);
        bits word;
        for (int r = 0; r < ranks; ++r) {
            std::memcpy(&word, rows[r] + at, sizeof word);
            low += reinterpret_cast<vector>(word << 16);
            high += reinterpret_cast<vector>(word & upper);
        }
        bits a = reinterpret_cast<bits>(low), b = reinterpret_cast<bits>(high);
        a += 0x7fff + (a >> 16 & 1);
        b += 0x7fff + (b >> 16 & 1);
        word = a >> 16 | (b & upper);
        std::memcpy(static_cast<void*>(to), &word, sizeof word);
    }

    /// Sums `step` elements. `bad`: some bit of it is set where an element must be summed one by one. `odd`: what float
    /// cannot hold sets its last bit: then rounding a second time is rounding once.
    template <bool odd>
    [[gnu::always_inline]] static void sum(
        const X* const* rows, int ranks, std::size_t at, X* to, integers& bad, const regrouping_fence& fence) {
        using integer = std::remove_reference_t<decltype(bad[0])>;
        constexpr auto magnitude = static_cast<integer>(~std::make_unsigned_t<integer>{} >> 1);
        integers most{};
        for (int r = 0; r < ranks; ++r) {
            integers bits;
            std::memcpy(&bits, rows[r] + at, sizeof bits);
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
            for (int r = 0; r < ranks; ++r) {
                doubles x;
                block_loops<X>::load(x, rows[r] + at + 4 * h);
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

/// A tile of small floats as floats: of bfloat16 the lower ones of the words, then the upper ones.
template <class T>
[[gnu::always_inline]] inline void widen_tile(float* to, const T* from) {
    if constexpr (std::is_same_v<T, half>) return widen_row(to, from, lane_tile);
    std::uint32_t words[lane_tile / 2];
    std::memcpy(words, from, sizeof words);
    for (std::size_t i = 0; i < lane_tile / 2; ++i) to[i] = T::format::low(words[i]);
    for (std::size_t i = 0; i < lane_tile / 2; ++i) to[lane_tile / 2 + i] = T::format::high(words[i]);
}
template <class T>
[[gnu::always_inline]] inline void narrow_tile(T* to, const float* from) {
    if constexpr (std::is_same_v<T, half>) return narrow_row(to, from, lane_tile);
    std::uint32_t words[lane_tile / 2];
    for (std::size_t i = 0; i < lane_tile / 2; ++i) words[i] = T::format::pack(from[i], from[lane_tile / 2 + i]);
    std::memcpy(static_cast<void*>(to), words, sizeof words);
}
template <class T>
[[gnu::always_inline]] inline void sums_loop(T* to, const operand* x, int ranks, std::size_t count) {
    constexpr bool is_small = is_small_float<T>;
    using X = std::conditional_t<is_small, float, T>;
    using vectors = addend_vectors<X>;
    using bounds = addend_bounds<T>;
    // Sums of small floats so near each other have no more digits than float.
    const int binades =
        is_small ? number_format<float>::digits - number_format<T>::digits - width_of(static_cast<unsigned>(ranks - 1))
                 : lane_format<T>::width * lane_format<T>::lanes - number_format<T>::digits;
    const regrouping_fence fence;
    const T* rows[exact_few_ranks];
    T padded[exact_few_ranks * lane_tile], made[lane_tile];
    const X* wide_rows[exact_few_ranks];
    X wide[is_small ? exact_few_ranks * lane_tile : 1], wide_sums[lane_tile];
    const auto widen = [&] {
        for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
            if constexpr (is_small)
                widen_tile(wide + r * lane_tile, rows[r]), wide_rows[r] = wide + r * lane_tile;
            else
                wide_rows[r] = rows[r];
        }
    };
    for (std::size_t at = 0; at < count; at += lane_tile) {
        const std::size_t n = count - at < lane_tile ? count - at : lane_tile;
        if (ranks > exact_few_ranks || n <= 4) {
            sum_one_by_one(x, ranks, at, n, to);
            continue;
        }
        for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
            rows[r] = static_cast<const T*>(x[r].data) + at;
            if (n == lane_tile) continue;
            T* const row = padded + r * lane_tile;
            std::memset(static_cast<void*>(row), 0, lane_tile * sizeof(T));
            std::memcpy(static_cast<void*>(row), rows[r], n * sizeof(T));
            rows[r] = row;
        }
        bounds of;
        of.clear();
        const auto sum_near = [&](auto in_x, int known) {
            for (std::size_t i = 0; i < lane_tile; i += bounds::step) of.take(rows, known, i);
            if constexpr (std::is_same_v<T, half>) {
                widen();
                for (std::size_t i = 0; i < lane_tile; i += vectors::step)
                    vectors::template sum_near<true>(wide_rows, known, i, wide_sums + i, fence);
                narrow_tile(made, wide_sums);
            } else if constexpr (is_small) {
                for (std::size_t i = 0; i < lane_tile; i += bounds::step)
                    vectors::sum_near(rows, known, i, made + i, fence);
            } else {
                for (std::size_t i = 0; i < lane_tile; i += vectors::step)
                    vectors::template sum_near<decltype(in_x)::value>(rows, known, i, made + i, fence);
            }
        };
        if (ranks == 2)
            sum_near(std::true_type{}, 2);
        else if (is_small || ranks == 1)
            sum_near(std::true_type{}, ranks);
        else
            sum_near(std::false_type{}, ranks);
        typename vectors::integers bad{};
        if (of.are_far(binades)) {
            widen();
            for (std::size_t i = 0; i < lane_tile; i += vectors::step)
                vectors::template sum<is_small>(wide_rows, ranks, i, wide_sums + i, bad, fence);
            if constexpr (is_small)
                narrow_tile(made, wide_sums);
            else
                std::memcpy(made, wide_sums, sizeof made);
        }
        if (has_bits(bad))
            sum_one_by_one(x, ranks, at, n, to);
        else
            std::memcpy(static_cast<void*>(to + at), made, n * sizeof(T));
    }
}

/// The sums of `count` elements, k addends each, as op_table::fold makes them.
template <class T>
void sum_addends(void* to, const operand* x, int k, std::size_t count, const void*) {
    const nearest_rounding mode;
    for_processor<&sums_loop<T>>::run(static_cast<T*>(to), x, k, count);
}
template <class T>
    requires is_exact_number<T>
inline constexpr op_table op_table_for<T, exact_t>{
    .element_size = sizeof(T), .fold = &sum_addends<T>, .commutative = true};

}  // namespace colls::inline v1::detail

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
