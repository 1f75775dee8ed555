// The arithmetic of PTX instructions on values: no state, no memory.
//
// A register holds bits: bool, or an unsigned integer of its width. `get<T>` reads an operand as T, `put` writes a
// result of type T.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace emulated {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;
__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

// ---- small floats

enum class rounding { nearest, zero, down, up };

/// A binary floating-point format of at most 32 bits.
struct format {
    int exponent_bits, mantissa_bits;
    u32 largest;   ///< the largest finite value
    u32 infinity;  ///< its bits; what a value too large becomes
    u32 nan;
};
inline constexpr format binary16{5, 10, 0x7bff, 0x7c00, 0x7fff}, bfloat16{8, 7, 0x7f7f, 0x7f80, 0x7fff},
    binary32{8, 23, 0x7f7fffff, 0x7f800000, 0x7fffffff}, e4m3{4, 3, 0x7e, 0x7f, 0x7f}, e5m2{5, 2, 0x7b, 0x7c, 0x7f};

/// The bits of `x` in format `f`. `saturate`: a value too large, and infinity, becomes the largest finite one.
inline u32 encode(f64 x, const format& f, rounding mode = rounding::nearest, bool saturate = false) {
    if (x != x) return f.nan;
    const u64 bits = std::bit_cast<u64>(x);
    const bool negative = bits >> 63 != 0;
    const u32 sign = u32{negative} << (f.exponent_bits + f.mantissa_bits);
    if ((bits << 1) == 0) return sign;
    if (std::isinf(x)) return sign | (saturate ? f.largest : f.infinity);
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const int exponent =
        static_cast<int>(bits >> 52 & 0x7ff) - 1023;  // doubles that are not normal are 0 in all formats
    const u64 mantissa = (bits & 0xfffffffffffff) | u64{1} << 52;
    const int below = exponent < 1 - bias ? 1 - bias - exponent : 0;  // digits lost because the result is not normal
    const int drop = std::min(52 - f.mantissa_bits + below, 63);
    u64 kept = mantissa >> drop;
    const u64 rest = mantissa & ((u64{1} << drop) - 1), half = u64{1} << (drop - 1);
    switch (mode) {
        case rounding::nearest:
            kept += rest > half || (rest == half && (kept & 1) != 0);
            break;
        case rounding::zero:
            break;
        case rounding::down:
            kept += negative && rest != 0;
            break;
        case rounding::up:
            kept += !negative && rest != 0;
            break;
    }
    // The leading one of a normal number adds one to the exponent.
    const u64 biased = below > 0 ? kept : kept + (static_cast<u64>(exponent + bias - 1) << f.mantissa_bits);
    if (biased <= f.largest) return sign | static_cast<u32>(biased);
    const bool to_infinity = mode == rounding::nearest || mode == (negative ? rounding::down : rounding::up);
    return sign | (!saturate && to_infinity ? f.infinity : f.largest);
}

/// The value of `bits` in format `f`.
inline f64 decode(u32 bits, const format& f) {
    const u32 magnitude = bits & ((u32{1} << (f.exponent_bits + f.mantissa_bits)) - 1);
    const bool negative = (bits >> (f.exponent_bits + f.mantissa_bits) & 1) != 0;
    if (magnitude > f.largest)
        return magnitude == f.infinity && f.infinity != f.nan
                   ? (negative ? -1.0 : 1.0) * std::numeric_limits<f64>::infinity()
                   : std::numeric_limits<f64>::quiet_NaN();
    const int bias = (1 << (f.exponent_bits - 1)) - 1, exponent = static_cast<int>(magnitude >> f.mantissa_bits);
    const u32 fraction = magnitude & ((u32{1} << f.mantissa_bits) - 1);
    const f64 value = std::ldexp(static_cast<f64>(exponent == 0 ? fraction : fraction | u32{1} << f.mantissa_bits),
        std::max(exponent, 1) - bias - f.mantissa_bits);
    return negative ? -value : value;
}

struct f16 {
    u16 bits;
    static constexpr format in = binary16;
};
struct bf16 {
    u16 bits;
    static constexpr format in = bfloat16;
};
template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class T>
inline constexpr bool is_float = std::is_floating_point_v<T> || is_small_float<T>;

/// The value of a float of any type.
template <class T>
f64 value_of(T x) {
    if constexpr (std::is_same_v<T, bf16>)
        return std::bit_cast<f32>(u32{x.bits} << 16);
    else if constexpr (is_small_float<T>)
        return decode(x.bits, T::in);
    else
        return static_cast<f64>(x);
}
/// `x`, rounded to T.
template <class T>
T rounded(f64 x, rounding mode = rounding::nearest) {
    if constexpr (is_small_float<T>)
        return {static_cast<u16>(encode(x, T::in, mode))};
    else if constexpr (std::is_same_v<T, f32>)
        return mode == rounding::nearest || x != x ? static_cast<f32>(x)
                                                   : std::bit_cast<f32>(encode(x, binary32, mode));
    else
        return x;
}
/// A number that is not normal becomes zero: .ftz
inline f32 flushed(f32 x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
template <class T>
T saturated(T x) {
    const f64 v = value_of(x);
    return v != v || v <= 0 ? rounded<T>(0.0) : v >= 1 ? rounded<T>(1.0) : x;
}

// ---- operands and results

template <int bytes>
using bits_of = std::conditional_t<bytes == 1, u8,
    std::conditional_t<bytes == 2, u16,
        std::conditional_t<bytes == 4, u32, std::conditional_t<bytes == 8, u64, u128>>>>;

/// The low bits of a register, as a T.
template <class T, class R>
T get(R r) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<R, bool>)
        return static_cast<T>(r);
    else
        return std::bit_cast<T>(static_cast<bits_of<sizeof(T)>>(r));
}
/// Sets a register to a T: signed integers are extended by their sign, others by zeros.
template <class R, class T>
void put(R& r, T x) {
    if constexpr (std::is_same_v<R, bool> || std::is_same_v<T, bool>)
        r = static_cast<R>(x);
    else if constexpr (std::is_integral_v<T> || sizeof(T) == 16)
        r = static_cast<R>(x);
    else
        r = static_cast<R>(std::bit_cast<bits_of<sizeof(T)>>(x));
}

// ---- integers

template <class T>
using unsigned_of = std::make_unsigned_t<T>;
template <class T>
using wide_of = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, s32, u32>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
        std::conditional_t<std::is_signed_v<T>, s128, u128>>>;
template <class T>
inline constexpr int width = 8 * static_cast<int>(sizeof(T));

template <class T>
T mul_hi(T a, T b) {
    return static_cast<T>((static_cast<wide_of<T>>(a) * static_cast<wide_of<T>>(b)) >> width<T>);
}
template <class T>
wide_of<T> mul_wide(T a, T b) {
    return static_cast<wide_of<T>>(static_cast<wide_of<T>>(a) * static_cast<wide_of<T>>(b));
}
/// Division by zero gives all ones, and the smallest number by -1 itself, as GPUs do; PTX leaves both open.
template <class T>
T divide(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return static_cast<T>(0 - static_cast<unsigned_of<T>>(a));
    return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
    return static_cast<T>(a % b);
}
template <class T>
T shift_left(T a, u32 n) {
    return n >= width<T> ? T{0} : static_cast<T>(static_cast<unsigned_of<T>>(a) << n);
}
template <class T>
T shift_right(T a, u32 n) {
    if (n >= width<T>) return a < T{0} ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> n);
}
/// shf: 32 bits of the 64 bits hi:lo.
inline u32 funnel(bool left, bool wrap, u32 lo, u32 hi, u32 n) {
    n = wrap ? n & 31 : std::min(n, 32u);
    const u64 both = u64{hi} << 32 | lo;
    return left ? static_cast<u32>(both << n >> 32) : static_cast<u32>(both >> n);
}
/// The n lowest bits set; n may be at least the width.
template <class U>
U low_bits(u32 n) {
    return n >= width<U> ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << n) - 1);
}
template <class T>
T bit_field(T a, u32 position, u32 length) {
    using U = unsigned_of<T>;
    position &= 0xff, length &= 0xff;
    U field = shift_right<U>(static_cast<U>(a), position) & low_bits<U>(length);
    if constexpr (std::is_signed_v<T>) {
        if (length == 0) return 0;
        const u32 top = std::min<u32>(position + length - 1, width<T> - 1);
        if ((static_cast<U>(a) >> top & 1) != 0) field |= static_cast<U>(~low_bits<U>(length));
    }
    return static_cast<T>(field);
}
template <class U>
U insert_bits(U a, U into, u32 position, u32 length) {
    const U mask = shift_left<U>(low_bits<U>(length & 0xff), position & 0xff);
    return static_cast<U>((into & ~mask) | (shift_left<U>(a, position & 0xff) & mask));
}
/// prmt: each nibble of `selector` chooses one of the 8 bytes b:a, or, with its top bit, that byte's sign.
inline u32 permuted(u32 a, u32 b, u32 selector) {
    const u64 bytes = u64{b} << 32 | a;
    u32 result = 0;
    for (int i = 0; i < 4; ++i) {
        const u32 nibble = selector >> (4 * i) & 0xf;
        u32 byte = static_cast<u32>(bytes >> (8 * (nibble & 7))) & 0xff;
        if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
/// lop3: bit i of `table` is the result for the operand bits a, b, c = i in binary.
inline u32 logic(u32 a, u32 b, u32 c, u32 table) {
    u32 result = 0;
    for (u32 i = 0; i < 8; ++i)
        if ((table >> i & 1) != 0)
            result |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
    return result;
}
template <class U>
U reversed_bits(U a) {
    U result = 0;
    for (int i = 0; i < width<U>; ++i)
        if ((a >> i & 1) != 0) result |= static_cast<U>(U{1} << (width<U> - 1 - i));
    return result;
}
/// bfind: the position of the highest bit that is not the sign; ~0 if there is none.
template <class T>
u32 highest_bit(T a, bool as_shift) {
    auto bits = static_cast<unsigned_of<T>>(a);
    if (a < T{0}) bits = static_cast<unsigned_of<T>>(~bits);
    if (bits == 0) return ~0u;
    const u32 position = static_cast<u32>(width<T> - 1 - std::countl_zero(bits));
    return as_shift ? static_cast<u32>(width<T>) - 1 - position : position;
}

// ---- floats

/// a * b + c, rounded once, for formats of at most 11 digits: the product is exact in a double, and the sum is rounded
/// to odd.
template <class T>
T fused(T a, T b, T c) {
    if constexpr (is_small_float<T>) {
        const f64 x = value_of(a) * value_of(b), y = value_of(c), sum = x + y;
        if (!std::isfinite(sum)) return rounded<T>(sum);
        const f64 part = sum - x, error = (x - (sum - part)) + (y - part);
        if (error == 0 || (std::bit_cast<u64>(sum) & 1) != 0) return rounded<T>(sum);
        return rounded<T>(std::nextafter(sum, error > 0 ? HUGE_VAL : -HUGE_VAL));
    } else {
        return std::fma(a, b, c);
    }
}
/// The smaller (or larger) of two. Floats: -0 is less than +0; a NaN loses, unless `keep_nan`.
template <class T>
T extreme(T a, T b, bool larger, bool keep_nan = false) {
    if constexpr (is_float<T>) {
        const f64 x = value_of(a), y = value_of(b);
        if (x != x || y != y) {
            if (keep_nan || (x != x && y != y)) return rounded<T>(std::numeric_limits<f64>::quiet_NaN());
            return x != x ? b : a;
        }
        const bool a_less = x < y || (x == y && std::signbit(x) && !std::signbit(y));
        return a_less == larger ? b : a;
    } else {
        return larger ? std::max(a, b) : std::min(a, b);
    }
}

/// Comparisons by their names in PTX.
enum class comparison { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
template <class T>
bool compare(comparison how, T a, T b) {
    if constexpr (is_small_float<T>) {
        return compare(how, value_of(a), value_of(b));
    } else {
        const bool unordered = a != a || b != b;
        switch (how) {
            case comparison::eq:
                return a == b;
            case comparison::ne:
                return a != b && !unordered;
            case comparison::lt:
                return a < b;
            case comparison::le:
                return a <= b;
            case comparison::gt:
                return a > b;
            case comparison::ge:
                return a >= b;
            case comparison::equ:
                return unordered || a == b;
            case comparison::neu:
                return unordered || a != b;
            case comparison::ltu:
                return unordered || a < b;
            case comparison::leu:
                return unordered || a <= b;
            case comparison::gtu:
                return unordered || a > b;
            case comparison::geu:
                return unordered || a >= b;
            case comparison::num:
                return !unordered;
            case comparison::nan:
                return unordered;
        }
        return false;
    }
}

// ---- conversions

/// A whole number by `mode`.
inline f64 whole(f64 x, rounding mode) {
    switch (mode) {
        case rounding::nearest:
            return std::nearbyint(x);
        case rounding::zero:
            return std::trunc(x);
        case rounding::down:
            return std::floor(x);
        case rounding::up:
            return std::ceil(x);
    }
    return x;
}
/// A float to an integer: clamped; NaN gives 0, or for 64 bits the top bit.
template <class D, class F>
D to_integer(F from, rounding mode) {
    const f64 x = value_of(from);
    if (x != x) return sizeof(D) == 8 ? static_cast<D>(u64{1} << 63) : D{0};
    const f64 w = whole(x, mode), low = static_cast<f64>(std::numeric_limits<D>::min()),
              past = std::ldexp(1.0, std::numeric_limits<D>::digits);
    if (w < low) return std::numeric_limits<D>::min();
    return w >= past ? std::numeric_limits<D>::max() : static_cast<D>(w);
}
/// An integer to a float. 64-bit integers are rounded once: below float's digits, what is lost before shows as one odd
/// digit.
template <class D, class F>
D to_float(F from, rounding mode) {
    if constexpr (sizeof(F) == 8) {
        if constexpr (std::is_same_v<D, f64>) {
            if (mode == rounding::nearest) return static_cast<f64>(from);
        }
        const bool negative = from < F{0};
        u64 magnitude = negative ? 0 - static_cast<u64>(from) : static_cast<u64>(from);
        const int spare = std::max(0, 11 - std::countl_zero(magnitude | 1));
        const u64 lost = magnitude & ((u64{1} << spare) - 1);
        magnitude = magnitude >> spare << spare;
        f64 x = static_cast<f64>(magnitude);
        if constexpr (std::is_same_v<D, f64>) {
            const bool away = mode == (negative ? rounding::down : rounding::up);
            if (lost != 0 && away) x = std::nextafter(x, HUGE_VAL);
        } else if (lost != 0) {
            x = std::bit_cast<f64>(std::bit_cast<u64>(x) | 1);
        }
        return rounded<D>(negative ? -x : x, mode);
    } else {
        return rounded<D>(static_cast<f64>(from), mode);
    }
}
/// An integer to another; with `saturate` clamped to its range.
template <class D, class F>
D to_other_integer(F from, bool saturate) {
    if (!saturate) return static_cast<D>(from);
    const s128 x = static_cast<s128>(from), low = static_cast<s128>(std::numeric_limits<D>::min()),
               high = static_cast<s128>(std::numeric_limits<D>::max());
    return static_cast<D>(std::clamp(x, low, high));
}
/// Two values packed: `high` in the upper half.
inline u32 packed(u32 high, u32 low, int bits) { return high << bits | low; }
/// An fp8 value of `x`: .satfinite
inline u32 to_fp8(f64 x, const format& f) { return encode(x, f, rounding::nearest, true); }

}  // namespace emulated
