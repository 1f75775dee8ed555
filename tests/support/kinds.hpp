// Kinds: element types with an operator, type-erased, for the serial reference. They do not use the library.
#pragma once

#include "elements.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace support {

/// How results of a kind are compared with the reference.
enum class judged : unsigned char {
    exactly,   ///< same bits as the fold in rank order; the values are such that any order gives these bits
    in_order,  ///< same bits; the operator does not commute, so an error of order shows
    bounded    ///< floating-point sums that depend on the order: within a bound of the exact sum, and reproducible
};

struct kind {
    const char* name;
    std::size_t size, align;
    judged how;
    /// Writes `count` elements of `rank`, the first at position `at` of the rank's data.
    void (*fill)(std::byte* to, std::size_t count, std::size_t at, int rank, random_source& random);
    /// left[i] = left[i] op right[i].
    void (*fold)(std::byte* left, const std::byte* right, std::size_t count);
    /// Applied to each contribution before the fold (premul_sum), and to the result after it (avg); or null.
    void (*before)(std::byte* values, std::size_t count);
    void (*after)(std::byte* values, std::size_t count, int contributions);
    /// bounded kinds: -1, or the first element of `got` too far from the sum of `parts`.
    std::ptrdiff_t (*far)(const std::byte* got, std::span<const std::byte* const> parts, std::size_t count);
};

namespace kinds {

template <class T>
T load(const std::byte* p, std::size_t i) {
    T value;
    std::memcpy(&value, p + i * sizeof(T), sizeof(T));
    return value;
}
template <class T>
void store(std::byte* p, std::size_t i, const T& value) {
    std::memcpy(p + i * sizeof(T), &value, sizeof(T));
}

// Each kind below is a struct with: name, type, how, make(rank, position, random), fold(a, b).

// Integers and floats of small integer values: sums are exact in any order up to 129 ranks, in bfloat16 too.
template <class T>
struct sum_of {
    using type = T;
    static constexpr judged how = judged::exactly;
    static T make(int, std::size_t, random_source& r) {
        if constexpr (sizeof(T) == 1)
            return static_cast<T>(r.one_in(3) ? 1 : 0);
        else if constexpr (std::is_signed_v<T> || std::is_floating_point_v<T>)
            return static_cast<T>(r.between(-1000, 1000));
        else
            return static_cast<T>(r.next());
    }
    static T fold(T a, T b) { return static_cast<T>(a + b); }
};
template <class T>
struct prod_of {
    using type = T;
    static constexpr judged how = judged::exactly;
    static T make(int rank, std::size_t position, random_source& r) {
        if constexpr (std::is_floating_point_v<T>) {
            // Powers of two, at most every fourth rank: exact in any order, and no overflow.
            const int bit = rank % 4 == static_cast<int>(position % 4) ? r.between(-1, 1) : 0;
            return static_cast<T>(std::ldexp(r.one_in(2) ? T(1) : T(-1), bit));
        } else {
            return static_cast<T>(r.next());
        }
    }
    static T fold(T a, T b) { return static_cast<T>(a * b); }
};
template <class T>
T anything(random_source& r) {
    if constexpr (std::is_floating_point_v<T>)
        return static_cast<T>(std::ldexp(r.unit() + T(0.5), r.between(-60, 60))) * (r.one_in(2) ? T(1) : T(-1));
    else
        return static_cast<T>(r.next());
}
template <class T>
struct min_of {
    using type = T;
    static constexpr judged how = judged::exactly;
    static T make(int, std::size_t, random_source& r) { return anything<T>(r); }
    static T fold(T a, T b) { return b < a ? b : a; }
};
template <class T>
struct max_of : min_of<T> {
    static T fold(T a, T b) { return a < b ? b : a; }
};
template <class T>
struct and_of {
    using type = T;
    static constexpr judged how = judged::exactly;
    static T make(int, std::size_t, random_source& r) {
        return static_cast<T>(r.next() | r.next() | r.next() | r.next());
    }
    static T fold(T a, T b) { return static_cast<T>(a & b); }
};
template <class T>
struct or_of : and_of<T> {
    static T make(int, std::size_t, random_source& r) {
        return static_cast<T>(r.next() & r.next() & r.next() & r.next());
    }
    static T fold(T a, T b) { return static_cast<T>(a | b); }
};
template <class T>
struct xor_of : and_of<T> {
    static T fold(T a, T b) { return static_cast<T>(a ^ b); }
};

/// Sums of floats of widely different magnitude: the result depends on the order.
template <class T>
struct wild_sum_of {
    using type = T;
    static constexpr judged how = judged::bounded;
    static constexpr int exponents = sizeof(T) == 8 ? 25 : 12;
    static T make(int, std::size_t, random_source& r) {
        return static_cast<T>(std::ldexp(r.unit() - 0.5, r.between(-exponents, exponents)));
    }
    static T fold(T a, T b) { return a + b; }
    static long double value(T x) { return x; }
    static constexpr long double epsilon = std::numeric_limits<T>::epsilon();
};

// avg: the sum divided by the number of ranks. All ranks hold the same values, so that the division is exact for every
// n.
template <class T>
struct avg_of {
    using type = T;
    static constexpr judged how = judged::exactly;
    static T make(int, std::size_t position, random_source&) { return static_cast<T>(position * 7 % 61); }
    static T fold(T a, T b) { return static_cast<T>(a + b); }
    static void after(T& x, int n) { x = static_cast<T>(x / static_cast<T>(n)); }
};
/// premul_sum(3): 3·x is summed.
template <class T>
struct premul_of : sum_of<T> {
    static constexpr int factor = 3;
    static void before(T& x) { x = static_cast<T>(x * T(factor)); }
};

// 16-bit floats, as bits. Whole numbers from -1 to 1: partial sums stay below 2^8, exact in both formats.
template <float (*from)(std::uint16_t), std::uint16_t (*to)(float)>
struct small_float {
    using type = std::uint16_t;
    static constexpr judged how = judged::exactly;
    static type make(int, std::size_t, random_source& r) { return to(static_cast<float>(r.between(-1, 1))); }
    // -1 + 1 is +0; no negative zero is ever made.
    static type fold(type a, type b) { return to(from(a) + from(b)); }
};
using bfloat16_sum_base = small_float<from_bfloat16_bits, to_bfloat16_bits>;
using half_sum_base = small_float<from_half_bits, to_half_bits>;
struct bfloat16_sum : bfloat16_sum_base {};
struct half_sum : half_sum_base {};
struct bfloat16_max : bfloat16_sum_base {
    static type make(int, std::size_t, random_source& r) { return to_bfloat16_bits(anything<float>(r)); }
    static type fold(type a, type b) { return from_bfloat16_bits(a) < from_bfloat16_bits(b) ? b : a; }
};
struct half_min : half_sum_base {
    static type make(int, std::size_t, random_source& r) {
        return to_half_bits(static_cast<float>(r.between(-2000, 2000)) / 64.0f);
    }
    static type fold(type a, type b) { return from_half_bits(b) < from_half_bits(a) ? b : a; }
};
struct wild_bfloat16_sum : bfloat16_sum_base {
    static constexpr judged how = judged::bounded;
    static type make(int, std::size_t, random_source& r) {
        return to_bfloat16_bits(static_cast<float>(std::ldexp(r.unit() - 0.5, r.between(-6, 6))));
    }
    static long double value(type x) { return from_bfloat16_bits(x); }
    static constexpr long double epsilon = 1.0L / 128;
};
struct wild_half_sum : half_sum_base {
    static constexpr judged how = judged::bounded;
    static type make(int, std::size_t, random_source& r) {
        return to_half_bits(static_cast<float>(std::ldexp(r.unit() - 0.5, r.between(-4, 4))));
    }
    static long double value(type x) { return from_half_bits(x); }
    static constexpr long double epsilon = 1.0L / 1024;
};

struct complex_sum {
    using type = std::complex<float>;
    static constexpr judged how = judged::exactly;
    static type make(int, std::size_t, random_source& r) {
        return {static_cast<float>(r.between(-1000, 1000)), static_cast<float>(r.between(-1000, 1000))};
    }
    static type fold(type a, type b) { return a + b; }
};

/// (value, position) with many ties: the smaller position wins.
template <class V, class I>
struct located {
    V value;
    I index;
};
template <class V, class I, bool Largest>
struct loc_of {
    using type = located<V, I>;
    static_assert(sizeof(type) == sizeof(V) + sizeof(I));
    static constexpr judged how = judged::exactly;
    static type make(int rank, std::size_t, random_source& r) {
        return {static_cast<V>(r.between(0, 2)), static_cast<I>(r.one_in(2) ? rank : 200 - rank)};
    }
    static type fold(const type& a, const type& b) {
        const bool better = Largest ? a.value < b.value : b.value < a.value;
        return better || (a.value == b.value && b.index < a.index) ? b : a;
    }
};
using minloc_double = loc_of<double, std::int64_t, false>;
using maxloc_float = loc_of<float, std::int32_t, true>;

// User types.
struct matrix_product {
    using type = matrix;
    static constexpr judged how = judged::in_order;
    static type make(int, std::size_t, random_source& r) {
        const std::uint64_t x = r.next(), y = r.next();
        return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(x >> 32), static_cast<std::uint32_t>(y),
            static_cast<std::uint32_t>(y >> 32)};
    }
    static type fold(const type& a, const type& b) { return multiply(a, b); }
};
struct affine_chain {
    using type = affine;
    static constexpr judged how = judged::in_order;
    static type make(int, std::size_t, random_source& r) { return {r.next() | 1, r.next()}; }
    static type fold(const type& a, const type& b) { return then(a, b); }
};
struct word_chain {
    using type = word;
    static constexpr judged how = judged::in_order;
    static type make(int rank, std::size_t position, random_source&) {
        type w{};
        w.size = 1;
        w.text[0] = static_cast<char>(' ' + (rank + static_cast<int>(position % 3)) % 95);
        return w;
    }
    static type fold(const type& a, const type& b) { return concatenate(a, b); }
};
struct interval_join {
    using type = interval;
    static constexpr judged how = judged::in_order;
    static type make(int rank, std::size_t position, random_source&) {
        return {static_cast<std::int16_t>(rank), static_cast<std::int16_t>(rank),
            static_cast<std::int16_t>(position & 0x7fff), 0};
    }
    static type fold(const type& a, const type& b) { return join(a, b); }
};
/// The left operand: the fold of all is the first rank's.
struct leftmost {
    using type = std::int32_t;
    static constexpr judged how = judged::in_order;
    static type make(int, std::size_t, random_source& r) { return static_cast<type>(r.next()); }
    static type fold(type a, type) { return a; }
};
struct rightmost : leftmost {
    static type fold(type, type b) { return b; }
};
struct rgb_lighten {
    using type = rgb;
    static constexpr judged how = judged::exactly;
    static type make(int, std::size_t, random_source& r) {
        const std::uint64_t x = r.next();
        return {static_cast<std::uint8_t>(x), static_cast<std::uint8_t>(x >> 8), static_cast<std::uint8_t>(x >> 16)};
    }
    static type fold(const type& a, const type& b) { return lighten(a, b); }
};
struct body_sum {
    using type = body;
    static constexpr judged how = judged::exactly;
    static type make(int rank, std::size_t, random_source& r) {
        const auto small = [&] { return static_cast<float>(r.between(-1000, 1000)); };
        const float x = small(), y = small(), z = small();
        return {{x, y, z}, rank};
    }
    static type fold(const type& a, const type& b) { return gather_mass(a, b); }
};

// ---- erasure ----

template <class K>
constexpr kind erased(const char* name) {
    using T = typename K::type;
    static_assert(
        std::is_trivially_copyable_v<T> && (std::has_unique_object_representations_v<T> || !std::is_class_v<T> ||
                                               std::is_same_v<T, std::complex<float>> || sizeof(T) % 4 == 0));
    kind k{};
    k.name = name;
    k.size = sizeof(T);
    k.align = alignof(T);
    k.how = K::how;
    k.fill = [](std::byte* to, std::size_t count, std::size_t at, int rank, random_source& random) {
        for (std::size_t i = 0; i < count; ++i) store<T>(to, i, K::make(rank, at + i, random));
    };
    k.fold = [](std::byte* left, const std::byte* right, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) store<T>(left, i, K::fold(load<T>(left, i), load<T>(right, i)));
    };
    if constexpr (requires(T& x) { K::before(x); })
        k.before = [](std::byte* values, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                T x = load<T>(values, i);
                K::before(x);
                store<T>(values, i, x);
            }
        };
    if constexpr (requires(T& x) { K::after(x, 1); })
        k.after = [](std::byte* values, std::size_t count, int contributions) {
            for (std::size_t i = 0; i < count; ++i) {
                T x = load<T>(values, i);
                K::after(x, contributions);
                store<T>(values, i, x);
            }
        };
    if constexpr (K::how == judged::bounded)
        k.far = [](const std::byte* got, std::span<const std::byte* const> parts, std::size_t count) -> std::ptrdiff_t {
            for (std::size_t i = 0; i < count; ++i) {
                long double sum = 0, sizes = 0;
                for (const std::byte* part : parts) {
                    const long double x = K::value(load<T>(part, i));
                    sum += x;
                    sizes += std::fabs(x);
                }
                const long double bound = K::epsilon * sizes * static_cast<long double>(parts.size());
                if (!(std::fabs(K::value(load<T>(got, i)) - sum) <= bound)) return static_cast<std::ptrdiff_t>(i);
            }
            return -1;
        };
    return k;
}

}  // namespace kinds
}  // namespace support
