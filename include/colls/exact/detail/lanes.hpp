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
// All loops are double arithmetic on normal numbers, and so do not depend on whether subnormals are flushed. They are
// compiled for the baseline and for AVX2.
#pragma once

#include <colls/exact/detail/number_format.hpp>
#include <colls/operators.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace colls::inline v1::detail {

/// Of the field of exponents.
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
    /// The sums of so many ranks have fewer than 2^51 units: they convert to double by a sum.
    static constexpr int few_ranks = 1 << (51 - width);
    /// Of a special addend: NaN, +inf, -inf.
    static constexpr std::int64_t nan_counts = 1, plus_counts = std::int64_t{1} << 21,
                                  minus_counts = std::int64_t{1} << 42;
    /// Below this level the sum may be subnormal in T, or its parts in double.
    static constexpr int lowest_level = std::is_same_v<T, half> ? 1 : 42 * lanes + 2;

    /// Adding this rounds a double below 2^51 to an integer, which the bits then count.
    static constexpr double to_integer = 0x1.8p52;
    static constexpr std::uint64_t bits_of_double(double x) { return __builtin_bit_cast(std::uint64_t, x); }
    static constexpr double double_of(std::uint64_t bits) { return __builtin_bit_cast(double, bits); }
    static constexpr std::int64_t integer(double x) {
        return static_cast<std::int64_t>(bits_of_double(x + to_integer) - bits_of_double(to_integer));
    }
    static constexpr double real(std::int64_t x) {
        return double_of(static_cast<std::uint64_t>(x) + bits_of_double(to_integer)) - to_integer;
    }
};

/// A number's own level.
template <class T>
constexpr level_of<T> own_level(T x) {
    using format = lane_format<T>;
    using bits = typename format::bits_type;
    const bits magnitude = static_cast<bits>(format::bits(x) << 1), field = static_cast<bits>(magnitude >> format::digits);
    return static_cast<level_of<T>>(field | static_cast<bits>(field == 0 && magnitude != 0));
}

template <class T>
constexpr std::int64_t special_count(T x) {
    using format = lane_format<T>;
    const special_value s = special_of(x);
    return s == not_a_number     ? format::nan_counts
           : s == plus_infinity  ? format::plus_counts
           : s == minus_infinity ? format::minus_counts
                                 : 0;
}

/// The integers of an addend, where no addend of the element is special.
template <class T>
[[gnu::always_inline]] constexpr void to_lanes(T x, level_of<T> level, std::int64_t& first, std::int64_t& second) {
    using format = lane_format<T>;
    constexpr std::uint64_t one = std::uint64_t{1023} << 52;
    const std::uint64_t b = format::bits(x), field = b >> (format::digits - 1) & format::special;
    const bool subnormal = field == 0;
    const std::uint64_t apart = level - (subnormal ? 1 : field);  // 2^64 - 1 where all are zero
    const std::uint64_t down = apart < 200 ? apart : 200;         // that far below, nothing is left
    const double significand = format::double_of((b & format::fraction) << (53 - format::digits) | one) -
                               format::double_of(subnormal ? one : 0);
    const double sign_less = significand * format::double_of((1023 + format::width - 1 - down) << 52);
    const double units =
        format::double_of(format::bits_of_double(sign_less) | b >> (8 * sizeof(T) - 1) << 63);
    first = format::integer(units);
    if constexpr (format::lanes == 2)
        second = format::integer((units - format::real(first)) * format::double_of((1023ull + format::width) << 52));
}

/// A sum of fewer than few_ranks addends that is neither special nor near the subnormals.
template <class T>
[[gnu::always_inline]] constexpr T from_lanes(level_of<T> level, std::int64_t first, std::int64_t second) {
    using format = lane_format<T>;
    constexpr std::uint64_t scale = 1023 - format::bias - format::width + 1;
    // Both parts are exact, so the sum is rounded once.
    double units = format::real(first);
    if constexpr (format::lanes == 2)
        units += format::real(second) * format::double_of((1023ull - format::width) << 52);
    const double x = units * format::double_of((scale + level) << 52);
    if constexpr (!is_small_float<T>) {
        return static_cast<T>(x);
    } else {
        // Made odd at float's last bit: then rounding twice is rounding once.
        const std::uint64_t b = format::bits_of_double(x), low = b & 0x1fffffff;
        return T(static_cast<float>(format::double_of((b ^ low) | (low != 0 ? 0x20000000u : 0u))));
    }
}
/// Any sum.
template <class T>
constexpr T from_lanes_slowly(level_of<T> level, std::int64_t first, std::int64_t second) {
    using format = lane_format<T>;
    if (level == format::special) {
        constexpr std::int64_t mask = format::plus_counts - 1;
        std::uint64_t special = finite;
        if ((first & mask) != 0) special |= not_a_number;
        if ((first >> 21 & mask) != 0) special |= plus_infinity;
        if (first >> 42 != 0) special |= minus_infinity;
        return value_of_special<T>(special);
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
    const int left = 64 - width_of(high);
    const std::uint64_t head = left == 0 ? high : high << left | low >> (64 - left);
    return nearest<T>(negative, head, low << left != 0, exponent + 64 - left);
}

/// Elements that the loops take together.
inline constexpr std::size_t lane_tile = 64;

template <class T>
[[gnu::always_inline]] inline void levels_loop(const T* x, std::size_t count, level_of<T>* levels) {
    const std::size_t whole = count / lane_tile * lane_tile;
    for (std::size_t at = 0; at < whole; at += lane_tile) {
        level_of<T> made[lane_tile];
        for (std::size_t i = 0; i < lane_tile; ++i) made[i] = own_level(x[at + i]);
        std::memcpy(levels + at, made, sizeof made);
    }
    for (std::size_t i = whole; i < count; ++i) levels[i] = own_level(x[i]);
}
template <class T>
[[gnu::always_inline]] inline void to_lanes_tile(
    const T* x, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
    using format = lane_format<T>;
    std::int64_t one[lane_tile], two[lane_tile];
    bool special = false;
    for (std::size_t i = 0; i < lane_tile; ++i) special |= levels[i] == format::special;
    for (std::size_t i = 0; i < lane_tile; ++i) to_lanes(x[i], levels[i], one[i], two[i]);
    for (std::size_t i = 0; special && i < lane_tile; ++i)
        if (levels[i] == format::special) {
            one[i] = special_count(x[i]);
            two[i] = 0;
        }
    std::memcpy(first, one, sizeof one);
    if constexpr (format::lanes == 2) std::memcpy(second, two, sizeof two);
}
template <class T>
[[gnu::always_inline]] inline void to_lanes_loop(
    const T* x, std::size_t count, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
    const std::size_t whole = count / lane_tile * lane_tile, rest = count - whole;
    for (std::size_t at = 0; at < whole; at += lane_tile)
        to_lanes_tile<T>(x + at, levels + at, first + at, second == nullptr ? nullptr : second + at);
    if (rest == 0) return;
    T padded[lane_tile] = {};
    level_of<T> padded_levels[lane_tile] = {};
    std::int64_t one[lane_tile], two[lane_tile];
    std::memcpy(static_cast<void*>(padded), x + whole, rest * sizeof(T));
    std::memcpy(padded_levels, levels + whole, rest * sizeof(level_of<T>));
    to_lanes_tile<T>(padded, padded_levels, one, two);
    std::memcpy(first + whole, one, rest * sizeof *one);
    if (second != nullptr) std::memcpy(second + whole, two, rest * sizeof *two);
}
template <class T>
[[gnu::always_inline]] inline void from_lanes_loop(const level_of<T>* levels, const std::int64_t* first,
    const std::int64_t* second, std::size_t count, int ranks, T* x) {
    using format = lane_format<T>;
    for (std::size_t at = 0; at < count; at += lane_tile) {
        const std::size_t n = count - at < lane_tile ? count - at : lane_tile;
        level_of<T> level[lane_tile] = {};
        std::int64_t one[lane_tile] = {}, two[lane_tile] = {};
        T made[lane_tile];
        std::memcpy(level, levels + at, n * sizeof *level);
        std::memcpy(one, first + at, n * sizeof *one);
        if (format::lanes == 2) std::memcpy(two, second + at, n * sizeof *two);
        bool slow = ranks >= format::few_ranks;
        for (std::size_t i = 0; i < lane_tile; ++i)
            slow |= (level[i] != 0 && level[i] < format::lowest_level) || level[i] == format::special;
        if (slow)
            for (std::size_t i = 0; i < n; ++i) made[i] = from_lanes_slowly<T>(level[i], one[i], two[i]);
        else
            for (std::size_t i = 0; i < lane_tile; ++i) made[i] = from_lanes<T>(level[i], one[i], two[i]);
        std::memcpy(static_cast<void*>(x + at), made, n * sizeof(T));
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
template <class T>
[[gnu::target("avx2")]] void find_levels_avx2(const T* x, std::size_t count, level_of<T>* levels) {
    levels_loop(x, count, levels);
}
template <class T>
[[gnu::target("avx2")]] void fill_lanes_avx2(
    const T* x, std::size_t count, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
    to_lanes_loop(x, count, levels, first, second);
}
template <class T>
[[gnu::target("avx2")]] void round_lanes_avx2(const level_of<T>* levels, const std::int64_t* first,
    const std::int64_t* second, std::size_t count, int ranks, T* x) {
    from_lanes_loop(levels, first, second, count, ranks, x);
}
#endif

/// The level of each number.
template <class T>
void find_levels(const T* x, std::size_t count, level_of<T>* levels) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) return find_levels_avx2(x, count, levels);
#endif
    levels_loop(x, count, levels);
}
/// The integers of each number. `second`: null for types of one.
template <class T>
void fill_lanes(
    const T* x, std::size_t count, const level_of<T>* levels, std::int64_t* first, std::int64_t* second) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) return fill_lanes_avx2(x, count, levels, first, second);
#endif
    to_lanes_loop(x, count, levels, first, second);
}
/// The numbers that sums of integers over `ranks` ranks stand for.
template <class T>
void round_lanes(const level_of<T>* levels, const std::int64_t* first, const std::int64_t* second, std::size_t count,
    int ranks, T* x) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) return round_lanes_avx2(levels, first, second, count, ranks, x);
#endif
    from_lanes_loop(levels, first, second, count, ranks, x);
}

}  // namespace colls::inline v1::detail
