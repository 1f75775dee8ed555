// The addends of one sum as integers, counted in a unit that the greatest exponent among them gives: how exact calls on
// buffers of numbers add them.
// IWYU pragma: private, include <colls/exact.hpp>
//
// An element's level is the greatest field of exponent among the ranks' addends: 0 where all of them are zero. Its unit
// is 2^-42 of the power of two that the level stands for; so an addend is a whole number of units below 2^43 after
// rounding, and 2^20 of them fit into an integer of 64 bits. A double has a second integer, which counts what the first
// leaves in 2^-43 of the unit. An infinity or a NaN makes the level 255 (or what the format has); the integer then
// counts these.
//
// No bit depends on whether the processor flushes subnormals: what may be subnormal, and what is special, is computed
// by integers, a tile at a time. The other tiles are loops in double, compiled for the baseline and for AVX2, which a
// caller runs while it rounds to nearest.
#pragma once

#include <colls/detail/support/for_processor.hpp>
#include <colls/exact/detail/floating_point.hpp>
#include <colls/exact/detail/number_format.hpp>
#include <colls/operators.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace colls::inline v1::detail {

/// The type of a level: it holds the field of exponents.
template <class T>
using level_of = std::conditional_t<sizeof(T) == 8, std::uint16_t, std::uint8_t>;

template <class T>
struct lane_format : number_format<T> {
    using number = number_format<T>;
    /// Integers for an element.
    static constexpr int lanes = sizeof(T) == 8 ? 2 : 1;
    /// Significant bits of each.
    static constexpr int width = 43;
    /// So many ranks fit.
    static constexpr int most_ranks = 1 << 20;
    /// The sums of this many ranks have fewer than 2^51 units: they convert to double by a sum.
    static constexpr int few_ranks = 1 << (51 - width);
    /// What a special addend counts as: NaN, +inf, -inf.
    static constexpr std::int64_t nan_counts = 1, plus_counts = std::int64_t{1} << 21,
                                  minus_counts = std::int64_t{1} << 42;
    /// Levels below, but 0, are slow: an addend or the sum that is subnormal may count.
    static constexpr int lowest_level = std::is_same_v<T, half> ? 1 : width * lanes + 3;

    /// Adding this rounds a double below 2^51 to an integer, which the bits then count.
    static constexpr double to_integer = 0x1.8p52;
    static constexpr std::uint64_t bits_of_double(double x) { return __builtin_bit_cast(std::uint64_t, x); }
    static constexpr double double_of(std::uint64_t bits) { return __builtin_bit_cast(double, bits); }
    /// x + to_integer as x.
    static constexpr std::int64_t counted(double x) {
        return static_cast<std::int64_t>(bits_of_double(x) - bits_of_double(to_integer));
    }
};

/// A number's own level.
template <class T>
constexpr level_of<T> own_level(bits_of_number<T> x) {
    using format = lane_format<T>;
    using bits = typename format::bits_type;
    const bits magnitude = static_cast<bits>(x << 1);
    const bits field = static_cast<bits>(magnitude >> format::digits);
    return static_cast<level_of<T>>(field | static_cast<bits>(field == 0 && magnitude != 0));
}

template <class T>
constexpr std::int64_t special_count(bits_of_number<T> x) {
    using format = lane_format<T>;
    const special_value s = special_of<T>(x);
    return s == not_a_number     ? format::nan_counts
           : s == plus_infinity  ? format::plus_counts
           : s == minus_infinity ? format::minus_counts
                                 : 0;
}

/// m / 2^down, to nearest, ties to even. m < 2^62.
constexpr std::int64_t shifted(std::int64_t m, int down) {
    if (down <= 0) return m << -down;
    if (down > 62) return 0;
    const std::int64_t odd = m >> down & 1;
    return (m + (std::int64_t{1} << (down - 1)) - 1 + odd) >> down;
}
/// The integers of any addend.
template <class T>
constexpr void to_lanes(bits_of_number<T> x, level_of<T> level, std::int64_t& first, std::int64_t& second) {
    using format = lane_format<T>;
    second = 0;
    if (level == format::special) {
        first = special_count<T>(x);
        return;
    }
    const int field = format::field(x) > 0 ? format::field(x) : 1,
              down = level - field + format::digits - format::width;
    const bool negative = format::negative(x);
    const auto m = static_cast<std::int64_t>(format::significand(x));
    first = shifted(m, down);
    if constexpr (format::lanes == 2) {
        const std::int64_t rest = down < 62 ? m - (first << down) : m;
        second = shifted(rest, down - format::width);
        if (negative) second = -second;
    }
    if (negative) first = -first;
}

/// The bits of the number that any sum stands for.
template <class T>
constexpr bits_of_number<T> from_lanes(level_of<T> level, std::int64_t first, std::int64_t second) {
    using format = lane_format<T>;
    if (level == format::special) {
        constexpr std::int64_t mask = format::plus_counts - 1;
        std::uint64_t special = finite;
        if ((first & mask) != 0) special |= not_a_number;
        if ((first >> 21 & mask) != 0) special |= plus_infinity;
        if (first >> 42 != 0) special |= minus_infinity;
        return bits_of_special<T>(special);
    }
    // first * 2^43 + second, as 128 bits.
    constexpr int up = format::lanes == 2 ? format::width : 0;
    std::uint64_t low = static_cast<std::uint64_t>(first) << up;
    std::uint64_t high = static_cast<std::uint64_t>(up > 0 ? first >> (64 - up) : first < 0 ? -1 : 0);
    if constexpr (format::lanes == 2) {
        low += static_cast<std::uint64_t>(second);
        high += static_cast<std::uint64_t>(second >> 63) + (low < static_cast<std::uint64_t>(second) ? 1 : 0);
    }
    const bool negative = high >> 63 != 0;
    if (negative) {
        low = 0 - low;
        high = ~high + (low == 0 ? 1 : 0);
    }
    const int exponent = (level > 1 ? level : 1) - format::bias - (format::width - 1) - up;
    if (high == 0) return nearest<T>(negative, low, false, exponent);
    const int left = 64 - width_of(high);  // above 0: `first` counts fewer than 2^63 units
    return nearest<T>(negative, high << left | low >> (64 - left), low << left != 0, exponent + 64 - left);
}

/// Elements that the loops take together.
inline constexpr std::size_t lane_tile = 64;

template <class T>
[[gnu::always_inline]] inline void levels_loop(const T* x, std::size_t count, level_of<T>* levels) {
    const std::size_t whole = count / lane_tile * lane_tile;
    for (std::size_t at = 0; at < whole; at += lane_tile) {
        level_of<T> made[lane_tile];
        for (std::size_t i = 0; i < lane_tile; ++i) made[i] = own_level<T>(lane_format<T>::bits_at(x + at + i));
        std::memcpy(levels + at, made, sizeof made);
    }
    for (std::size_t i = whole; i < count; ++i) levels[i] = own_level<T>(lane_format<T>::bits_at(x + i));
}
template <class T>
struct level_vector;
template <>
struct level_vector<std::uint8_t> {
    using type = std::uint8_t __attribute__((vector_size(32)));
};
template <>
struct level_vector<std::uint16_t> {
    using type = std::uint16_t __attribute__((vector_size(32)));
};
template <>
struct level_vector<std::uint32_t> {
    using type = std::uint32_t __attribute__((vector_size(32)));
};
/// Whether no element of a tile is special, or may have to do with subnormals.
template <class T>
[[gnu::always_inline]] inline bool is_plain(const level_of<T>* levels) {
    using format = lane_format<T>;
    using vector = typename level_vector<level_of<T>>::type;
    constexpr level_of<T> one = 1, low = format::lowest_level - 1, special = format::special;
    vector found{};
    for (std::size_t at = 0; at < lane_tile; at += sizeof(vector) / sizeof(level_of<T>)) {
        vector v;
        std::memcpy(&v, levels + at, sizeof v);
        found |= reinterpret_cast<vector>((v - one < low) | (v == special));
    }
    std::uint64_t words[4];
    std::memcpy(words, &found, sizeof words);
    return (words[0] | words[1] | words[2] | words[3]) == 0;
}
/// A power of two from the upper half of its bits.
constexpr double power_of(std::uint32_t upper) { return __builtin_bit_cast(double, std::uint64_t{upper} << 32); }

template <class T>
void to_lanes_one_by_one(
    const T* x, std::size_t count, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
    for (std::size_t i = 0; i < count; ++i) {
        std::int64_t one, two;
        to_lanes<T>(lane_format<T>::bits_at(x + i), levels[i], one, two);
        first[i] = one;
        if constexpr (lane_format<T>::lanes == 2) second[i] = two;
    }
}
/// Loops between arrays on the stack and out of them: copies of them would take longer than all else.
template <class T>
[[gnu::always_inline]] inline void to_lanes_tile(
    const T* x, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
    using format = lane_format<T>;
    if (is_plain<T>(levels)) {
        constexpr std::uint32_t top = 1023 + format::width - 1 + format::bias;
        constexpr double next = static_cast<double>(std::int64_t{1} << format::width);
        std::uint32_t upper[lane_tile];
        for (std::size_t i = 0; i < lane_tile; ++i) {
            const std::uint32_t field = top - levels[i];  // for level 0 of double too large, and of no matter
            upper[i] = (format::lanes == 1 || field < 2046 ? field : 2046u) << 20;
        }
        const regrouping_fence fence;
        const auto convert = [&](const auto* from) {
            for (std::size_t i = 0; i < lane_tile; ++i) {
                const double units = static_cast<double>(from[i]) * power_of(upper[i]);
                double whole = units + format::to_integer;
                fence.after<std::uint64_t>(whole);
                first[i] = format::counted(whole);
                if constexpr (format::lanes == 2) {
                    whole -= format::to_integer;
                    fence.after<std::uint64_t>(whole);
                    second[i] = format::counted((units - whole) * next + format::to_integer);
                }
            }
        };
        if constexpr (is_small_float<T>) {
            float in_float[lane_tile];
            for (std::size_t i = 0; i < lane_tile; ++i) in_float[i] = static_cast<float>(x[i]);
            convert(in_float);
        } else {
            convert(x);
        }
    } else {
        to_lanes_one_by_one(x, lane_tile, levels, first, second);
    }
}
template <class T>
[[gnu::always_inline]] inline void to_lanes_loop(
    const T* x, std::size_t count, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
    const std::size_t whole = count / lane_tile * lane_tile;
    const auto second_at = [=](std::size_t at) { return second == nullptr ? nullptr : second + at; };
    for (std::size_t at = 0; at < whole; at += lane_tile)
        to_lanes_tile<T>(x + at, levels + at, first + at, second_at(at));
    to_lanes_one_by_one(x + whole, count - whole, levels + whole, first + whole, second_at(whole));
}

template <class T>
[[gnu::always_inline]] inline void from_lanes_tile(
    const level_of<T>* levels, const std::int64_t* first, const std::int64_t* second, T* x) {
    using format = lane_format<T>;
    constexpr double next = 1 / static_cast<double>(std::int64_t{1} << format::width);
    constexpr auto base = static_cast<std::uint32_t>(1023 - format::bias - format::width + 1);
    std::uint32_t upper[lane_tile];
    for (std::size_t i = 0; i < lane_tile; ++i) {
        const std::uint32_t level = levels[i];  // 0 stands for zeros, whatever the scale
        upper[i] = ((format::lanes == 1 || level > format::width ? level : std::uint32_t{format::width}) + base) << 20;
    }
    // Both parts are exact, so their sum is rounded once.
    const regrouping_fence fence;
    const auto real = [&](std::int64_t integer) {
        double made =
            format::double_of(static_cast<std::uint64_t>(integer) + format::bits_of_double(format::to_integer));
        made -= format::to_integer;
        fence.after<std::uint64_t>(made);
        return made;
    };
    const auto units = [&](std::size_t i) {
        double sum = real(first[i]);
        if constexpr (format::lanes == 2) sum += real(second[i]) * next;
        return sum * power_of(upper[i]);
    };
    if constexpr (is_small_float<T>) {
        // Made odd at float's last bit: then rounding twice is rounding once.
        float in_float[lane_tile];
        for (std::size_t i = 0; i < lane_tile; ++i) {
            constexpr std::uint64_t low = 0x1fffffff;
            const std::uint64_t bits = format::bits_of_double(units(i));
            in_float[i] = static_cast<float>(format::double_of((bits | ((bits & low) + low)) & ~low));
        }
        for (std::size_t i = 0; i < lane_tile; ++i) x[i] = T(in_float[i]);
    } else {
        T made[lane_tile];
        for (std::size_t i = 0; i < lane_tile; ++i) made[i] = static_cast<T>(units(i));
        for (std::size_t i = 0; i < lane_tile; ++i) x[i] = made[i];
    }
}
template <class T>
[[gnu::always_inline]] inline void from_lanes_loop(const level_of<T>* levels, const std::int64_t* first,
    const std::int64_t* second, std::size_t count, int ranks, T* x) {
    using format = lane_format<T>;
    for (std::size_t at = 0; at < count; at += lane_tile) {
        const std::size_t n = count - at < lane_tile ? count - at : lane_tile;
        if (n == lane_tile && ranks < format::few_ranks && is_plain<T>(levels + at)) {
            from_lanes_tile<T>(levels + at, first + at, second == nullptr ? nullptr : second + at, x + at);
        } else {
            for (std::size_t i = at; i < at + n; ++i) {
                const bits_of_number<T> made = from_lanes<T>(levels[i], first[i], second == nullptr ? 0 : second[i]);
                std::memcpy(x + i, &made, sizeof made);
            }
        }
    }
}

/// The level of each number.
template <class T>
void find_levels(const T* x, std::size_t count, level_of<T>* levels) {
    for_processor<&levels_loop<T>>::run(x, count, levels);
}
/// The integers of each number. `second`: null for types of one.
template <class T>
void fill_lanes(const T* x, std::size_t count, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
    const nearest_rounding mode;
    for_processor<&to_lanes_loop<T>>::run(x, count, levels, first, second);
}
/// The numbers that sums of integers over `ranks` ranks stand for.
template <class T>
void round_lanes(const level_of<T>* levels, const std::int64_t* first, const std::int64_t* second, std::size_t count,
    int ranks, T* x) {
    const nearest_rounding mode;
    for_processor<&from_lanes_loop<T>>::run(levels, first, second, count, ranks, x);
}

}  // namespace colls::inline v1::detail
