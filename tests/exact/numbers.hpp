// Numbers of all kinds, and what their sums must be.
#pragma once

#include "exact/reference.hpp"
#include "support/random.hpp"

#include <colls/exact/detail/number_format.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

using namespace support;
using colls::bfloat16;
using colls::half;

namespace {

template <class T>
using bits_of = typename colls::detail::number_format<T>::bits_type;
template <class T>
bits_of<T> raw(T x) {
    return std::bit_cast<bits_of<T>>(x);
}
template <class T>
T from_raw(std::uint64_t bits) {
    return std::bit_cast<T>(static_cast<bits_of<T>>(bits));
}
template <class T>
double real(T x) {
    return static_cast<double>(x);
}
template <class T>
bool same_bytes(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}
/// The bits that an exact sum must have.
template <class T>
bits_of<T> expected(const reference::bit_sum& sum) {
    const double x = sum.rounded<T>();
    if (std::isnan(x))
        return sizeof(T) == 8            ? bits_of<T>(0x7ff8000000000000)
               : sizeof(T) == 4          ? bits_of<T>(0x7fc00000)
               : std::is_same_v<T, half> ? bits_of<T>(0x7e00)
                                         : bits_of<T>(0x7fc0);
    return raw(static_cast<T>(x));
}
template <class T>
reference::bit_sum summed(std::span<const T> x) {
    reference::bit_sum sum;
    for (const T v : x) sum.add(real(v));
    return sum;
}

/// Numbers of one kind.
enum sample { any_bits, finite_bits, alike, cancelling, subnormal, greatest, ties, zeros, specials, samples };
template <class T>
T number(sample k, random_source& random, T before) {
    using format = colls::detail::number_format<T>;
    const std::uint64_t bits = random.next();
    const auto with_field = [&](std::uint64_t field) {
        const std::uint64_t kept = bits & ~(std::uint64_t{format::special} << (format::digits - 1));
        return from_raw<T>(kept | field << (format::digits - 1));
    };
    const auto special = static_cast<std::uint64_t>(format::special);
    switch (k) {
        case any_bits:
            return from_raw<T>(bits);
        case finite_bits:
            return with_field(random.below(special));
        case alike:
            return with_field(special / 2 - random.below(8));
        case cancelling:
            return random.one_in(2) ? -before : with_field(random.below(special));
        case subnormal:
            return with_field(random.below(3));
        case greatest:
            return with_field(special - 1 - random.below(2));
        case ties: {  // a few numbers a power of two each, about half a unit in the last place apart
            const int step = format::digits - 1 + random.between(0, 2);
            const std::uint64_t field =
                random.one_in(2) ? special / 2 : special / 2 - static_cast<std::uint64_t>(step) % (special / 2);
            return from_raw<T>((bits & 1) << (8 * sizeof(T) - 1) | field << (format::digits - 1));
        }
        case zeros:
            return from_raw<T>((bits & 1) << (8 * sizeof(T) - 1));
        default:
            return random.one_in(4) ? with_field(special) : with_field(special / 2);
    }
}
template <class T>
std::vector<T> numbers(sample k, std::size_t count, random_source& random) {
    std::vector<T> x(count);
    T before = from_raw<T>(0);
    for (T& v : x) v = before = number(k, random, before);
    return x;
}

/// What a call on buffers must give, computed by long double and big integers.
template <class T>
bits_of<T> by_formula(const std::vector<T>& addends) {
    using of = reference::traits<T>;
    reference::bit_sum sum;
    int top = of::least + of::digits - 1;
    bool special = false;
    for (const T v : addends) {
        if (!std::isfinite(real(v)))
            special = true;
        else if (real(v) != 0)
            top = std::max(top, std::ilogb(real(v)));
    }
    for (const T v : addends) {
        if (special) {
            sum.add(std::isfinite(real(v)) ? 0 : real(v));
            continue;
        }
        const long double units = std::ldexp(static_cast<long double>(real(v)), 42 - top);
        const long double first = std::nearbyint(units);
        sum.add_scaled(static_cast<std::int64_t>(first), top - 42);
        if (sizeof(T) == 8)
            sum.add_scaled(static_cast<std::int64_t>(std::nearbyint(std::ldexp(units - first, 43))), top - 85);
    }
    return expected<T>(sum);
}
}  // namespace
