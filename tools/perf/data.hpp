// Data for the checks: contributions of which every order of folding gives the same exact result, computed here without
// the library's operators.
//
// Elements repeat with a period that is a prime, so that large buffers are filled and compared as fast as memory is
// copied, and blocks that end up in a wrong place differ. Where data are only moved, elements are arbitrary bits and
// do not repeat.
#pragma once

#include "calls.hpp"

#include <colls/types.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace perf {

inline constexpr std::size_t period = 4093;

inline std::uint64_t mixed(std::uint64_t seed, std::uint64_t rank, std::uint64_t i) {
    std::uint64_t x = seed * 0x9e3779b97f4a7c15u + rank * 0xd1b54a32d192ed03u + i * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

template <class T>
inline constexpr bool is_small = std::is_same_v<T, colls::half> || std::is_same_v<T, colls::bfloat16>;
template <class T>
inline constexpr bool is_signed = std::is_signed_v<T> || is_small<T>;

/// Maps x -> a x + b of the integers modulo 2^h, a in the upper h bits, b in the lower. Associative; it does not
/// commute.
struct compose_maps {
    static constexpr bool pure = true;
    template <class T>
    constexpr T operator()(const T& x, const T& y) const {
        constexpr int h = 4 * sizeof(T);
        constexpr std::uint64_t low = (std::uint64_t{1} << h) - 1;
        const std::uint64_t a = std::uint64_t{x} >> h, b = x & low, c = std::uint64_t{y} >> h, d = y & low;
        return static_cast<T>((a * c & low) << h | ((a * d + b) & low));
    }
};

/// Element i of what a rank contributes to a reduction: an integer that every type holds exactly. At most 16 of n ranks
/// contribute other than 0 to a sum, and 6 of them a factor 2 to a product: so all partial results are exact too, even
/// in int8 and in bfloat16, which holds integers up to 256.
template <class T>
std::int64_t contribution(reduction op, int rank, int n, std::size_t i, std::uint64_t seed) {
    const std::uint64_t h = mixed(seed, static_cast<std::uint64_t>(rank), i);
    const auto one_in = [&](int ranks) {
        return (static_cast<std::size_t>(rank) + i) % static_cast<std::size_t>((n + ranks - 1) / ranks) == 0;
    };
    switch (op) {
        case reduction::prod:
            return one_in(6) ? 2 : is_signed<T> && h % 2 == 1 ? -1 : 1;
        case reduction::min:
        case reduction::max:
            return static_cast<std::int64_t>(h % 241) - (is_signed<T> ? 120 : 0);
        default:
            return !one_in(16)    ? 0
                   : is_signed<T> ? static_cast<std::int64_t>(h % 15) - 7
                                  : static_cast<std::int64_t>(h % 8);
    }
}

template <class T>
T exact(std::int64_t x) {
    if constexpr (is_small<T>)
        return T(static_cast<float>(x));
    else
        return static_cast<T>(x);
}
template <class T>
T quotient(std::int64_t x, int n) {
    if constexpr (is_small<T>)
        return T(static_cast<float>(x) / static_cast<float>(n));
    else if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(x) / static_cast<T>(n);
    else
        return static_cast<T>(x / n);
}
/// A map whose factor is odd, so that no operand is lost.
template <class T>
T map_of(int rank, std::size_t i, std::uint64_t seed) {
    return static_cast<T>(mixed(seed, static_cast<std::uint64_t>(rank), i) | std::uint64_t{1} << 4 * sizeof(T));
}

template <class T>
T contributed(reduction op, int rank, int n, std::size_t i, std::uint64_t seed) {
    if constexpr (std::is_unsigned_v<T>)
        if (op == reduction::compose) return map_of<T>(rank, i, seed);
    return exact<T>(contribution<T>(op, rank, n, i, seed));
}
template <class T>
T folded(reduction op, int last, int n, std::size_t i, std::uint64_t seed) {
    if constexpr (std::is_unsigned_v<T>)
        if (op == reduction::compose) {
            T all = map_of<T>(0, i, seed);
            for (int r = 1; r < last; ++r) all = compose_maps{}(all, map_of<T>(r, i, seed));
            return all;
        }
    std::int64_t all = contribution<T>(op, 0, n, i, seed);
    for (int r = 1; r < last; ++r) {
        const std::int64_t x = contribution<T>(op, r, n, i, seed);
        all = op == reduction::prod  ? all * x
              : op == reduction::min ? std::min(all, x)
              : op == reduction::max ? std::max(all, x)
                                     : all + x;
    }
    return op == reduction::avg ? quotient<T>(all, n) : exact<T>(all);
}

/// Elements first ... first + count - 1 of a pattern that repeats: value(i) for i < period.
template <class T, class F>
void repeat(std::byte* to, std::size_t first, std::size_t count, F value) {
    std::vector<T> pattern(std::min(count, period));
    for (std::size_t k = 0; k < pattern.size(); ++k) pattern[k] = value((first + k) % period);
    for (std::size_t at = 0; at < count; at += pattern.size())
        std::memcpy(to + at * sizeof(T), pattern.data(), std::min(pattern.size(), count - at) * sizeof(T));
}

template <class T>
void contribute(
    std::byte* to, std::size_t first, std::size_t count, reduction op, int rank, int n, std::uint64_t seed) {
    if (op != reduction::none)
        return repeat<T>(to, first, count, [&](std::size_t i) { return contributed<T>(op, rank, n, i, seed); });
    for (std::size_t k = 0; k < count; ++k) {
        const std::uint64_t bits = mixed(seed, static_cast<std::uint64_t>(rank), first + k);
        std::memcpy(to + k * sizeof(T), &bits, sizeof(T));
    }
}
template <class T>
void fold(std::byte* to, std::size_t first, std::size_t count, reduction op, int last, int n, std::uint64_t seed) {
    repeat<T>(to, first, count, [&](std::size_t i) { return folded<T>(op, last, n, i, seed); });
}

}  // namespace perf
