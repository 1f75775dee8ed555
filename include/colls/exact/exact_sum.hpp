// exact_sum<T>: a sum without rounding, an element type for every call; and its operator, colls::exact.
//
//     std::vector<colls::exact_sum<float>> sums(4);
//     for (...) sums[k].add(values);                      // any number of floats, in any order
//     colls::all_reduce(comm, sums, colls::exact);        // by any schedule
//     const float x = sums[0].value();                    // rounded once
//
// It is an integer that counts the least subnormals of T (Kulisch 1971): as wide as all of T's range and 64 bits more,
// so nothing overflows before 2^63 addends. Integers add exactly: the bytes of a sum depend on nothing but the multiset
// of the addends.
#pragma once

#include <colls/exact/detail/addend_sums.hpp>
#include <colls/exact/detail/block_sums.hpp>
#include <colls/exact/detail/number_format.hpp>
#include <colls/operators.hpp>
#include <colls/types.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace colls::inline v1 {

/// The exact sum of up to 2^63 numbers of type float, double, bfloat16 or half.
///
/// Trivially copyable, of 56, 280, 56 and 24 bytes without padding. Equal sums have equal bytes. All zero bytes are the
/// sum of nothing. A NaN among the addends, or infinities of both signs, make the sum NaN; infinities of one sign make
/// it that infinity.
///
/// Everything but add() of arrays is constexpr integer code.
template <class T>
class exact_sum {
    static_assert(detail::is_exact_number<T>, "colls: exact_sum takes float, double, colls::bfloat16 or colls::half");
    using format = detail::number_format<T>;

public:
    /// What it sums.
    using number = T;

    /// The sum of nothing.
    constexpr exact_sum() = default;
    /// The sum of one number.
    constexpr explicit exact_sum(T x) { *this += x; }

    /// Adds a number.
    constexpr exact_sum& operator+=(T x) {
        add_number<T>(format::bits(x), false);
        return *this;
    }
    /// Adds its negative.
    constexpr exact_sum& operator-=(T x) {
        add_number<T>(format::bits(x), true);
        return *this;
    }
    /// Adds the addends of another sum.
    constexpr exact_sum& operator+=(const exact_sum& other) {
        special_ |= other.special_;
        const std::uint64_t mask = special_ == detail::finite ? ~std::uint64_t{0} : 0;
        std::uint64_t carry = 0;
        for (std::size_t w = 0; w < words; ++w) {
            const std::uint64_t a = words_[w] + other.words_[w], b = a + carry;
            carry = static_cast<std::uint64_t>(a < words_[w]) | static_cast<std::uint64_t>(b < a);
            words_[w] = b & mask;
        }
        return *this;
    }
    /// Adds the negatives of the addends of another sum.
    constexpr exact_sum& operator-=(const exact_sum& other) { return *this += -other; }
    /// The sum of the negatives.
    constexpr exact_sum operator-() const {
        exact_sum negated;
        negated.special_ = (special_ & 1) << 1 | special_ >> 1;
        negate(words_, negated.words_);
        return negated;
    }
    /// The sum of both's addends.
    friend constexpr exact_sum operator+(exact_sum a, const exact_sum& b) { return a += b; }
    /// The sum of a's addends and the negatives of b's.
    friend constexpr exact_sum operator-(exact_sum a, const exact_sum& b) { return a -= b; }
    /// Whether the sums are the same number. NaN is equal to itself here, as its bytes are.
    friend constexpr bool operator==(const exact_sum&, const exact_sum&) = default;

    /// Adds an array, at about the speed of memory where numbers that lie close to each other are of similar size.
    exact_sum& add(std::span<const T> x) {
        if constexpr (detail::is_small_float<T>)
            add_tiles<float>(x.size(), [&](std::size_t i) { return static_cast<float>(x[i]); });
        else
            add_array(x.data(), x.size());
        return *this;
    }
    /// Adds get(0) to get(count - 1), which are T, in blocks, as add() does an array.
    template <class Get>
    exact_sum& add_each(std::size_t count, Get get) {
        using X = std::conditional_t<detail::is_small_float<T>, float, T>;
        add_tiles<X>(count, [&](std::size_t i) { return static_cast<X>(static_cast<T>(get(i))); });
        return *this;
    }
    /// Adds a * b without rounding. Of exact_sum<double>: the product of two floats, bfloat16s or halfs is a double.
    constexpr exact_sum& add_product(float a, float b)
        requires std::is_same_v<T, double>
    {
        using of = detail::number_format<float>;
        const auto x = of::bits(a), y = of::bits(b);
        const std::uint64_t m = of::significand(x) * of::significand(y);
        const bool negative = of::negative(x ^ y);
        if (of::field(x) != of::special && of::field(y) != of::special) {
            add_scaled(static_cast<std::int64_t>(m), exponent_of<float>(x) + exponent_of<float>(y), negative);
            return *this;
        }
        const bool is_nan = m == 0 || detail::special_of<float>(x) == detail::not_a_number ||
                            detail::special_of<float>(y) == detail::not_a_number;
        return *this += of_special(is_nan     ? detail::not_a_number
                                   : negative ? detail::minus_infinity
                                              : detail::plus_infinity);
    }
    /// Adds the products of two arrays of one length: an exact dot product.
    exact_sum& add_products(std::span<const float> a, std::span<const float> b)
        requires std::is_same_v<T, double>
    {
        const detail::nearest_rounding mode;
        return add_each(a.size(), [&](std::size_t i) { return static_cast<double>(a[i]) * b[i]; });
    }

    /// The nearest T, ties to even: infinity where the sum is beyond T's range, +0 where it is zero.
    constexpr T value() const { return format::number(bits_of_value()); }
    /// value().
    constexpr explicit operator T() const { return value(); }

private:
    static constexpr std::size_t words = (format::special - 2 + format::digits + 64 + 63) / 64;

    constexpr typename format::bits_type bits_of_value() const {
        if (special_ != detail::finite) return detail::bits_of_special<T>(special_);
        const bool negative = words_[words - 1] >> 63 != 0;
        std::uint64_t m[words] = {};
        if (negative)
            negate(words_, m);
        else
            for (std::size_t w = 0; w < words; ++w) m[w] = words_[w];
        std::size_t w = words - 1;
        while (w > 0 && m[w] == 0) --w;
        if (w == 0) return detail::nearest<T>(negative, m[0], false, format::lowest);
        const int up = 64 - detail::width_of(m[w]);
        const std::uint64_t head = up == 0 ? m[w] : m[w] << up | m[w - 1] >> (64 - up);
        std::uint64_t rest = m[w - 1] << up;
        for (std::size_t v = 0; v + 1 < w; ++v) rest |= m[v];
        return detail::nearest<T>(negative, head, rest != 0, format::lowest + 64 * static_cast<int>(w) - up);
    }
    static constexpr void negate(const std::uint64_t (&from)[words], std::uint64_t (&to)[words]) {
        std::uint64_t carry = 1;
        for (std::size_t w = 0; w < words; ++w) {
            to[w] = ~from[w] + carry;
            carry &= static_cast<std::uint64_t>(to[w] == 0);
        }
    }
    /// Adds an X, which is a T, or its negative.
    template <class X>
    constexpr void add_number(detail::bits_of_number<X> bits, bool negated) {
        using of = detail::number_format<X>;
        const bool negative = of::negative(bits) != negated;
        if (const std::uint64_t special = detail::special_of<X>(bits); special != detail::finite)
            *this += of_special(negated ? (special & 1) << 1 | special >> 1 : special);
        else if constexpr (std::is_same_v<X, T>)
            add_integer(of::significand(bits), negative, exponent_of<X>(bits) - of::lowest);
        else
            add_scaled(static_cast<std::int64_t>(of::significand(bits)), exponent_of<X>(bits), negative);
    }
    template <class X>
    static constexpr int exponent_of(detail::bits_of_number<X> bits) {
        const int field = detail::number_format<X>::field(bits);
        return detail::number_format<X>::lowest + (field == 0 ? 0 : field - 1);
    }
    static constexpr exact_sum of_special(std::uint64_t special) {
        exact_sum made;
        made.special_ = special;
        return made;
    }
    /// Adds m * 2^shift least subnormals, or takes them away.
    constexpr void add_integer(std::uint64_t m, bool negative, int shift) {
        if (special_ != detail::finite) return;
        std::size_t w = static_cast<std::size_t>(shift) / 64;
        const int up = shift % 64;
        const std::uint64_t low = m << up, high = (m >> 1) >> (63 - up);
        if (!negative) {
            words_[w] += low;
            const std::uint64_t more = high + static_cast<std::uint64_t>(words_[w] < low);
            words_[++w] += more;
            std::uint64_t carry = static_cast<std::uint64_t>(words_[w] < more);
            while (carry != 0 && ++w < words) carry = static_cast<std::uint64_t>(++words_[w] == 0);
        } else {
            const std::uint64_t more = high + static_cast<std::uint64_t>(words_[w] < low);
            words_[w] -= low;
            std::uint64_t borrow = static_cast<std::uint64_t>(words_[++w] < more);
            words_[w] -= more;
            while (borrow != 0 && ++w < words) borrow = static_cast<std::uint64_t>(words_[w]-- == 0);
        }
    }
    /// Adds units * 2^exponent, a multiple of the least subnormal, or its negative.
    constexpr void add_scaled(std::int64_t units, int exponent, bool negated) {
        const bool negative = units < 0;
        std::uint64_t m = negative ? 0 - static_cast<std::uint64_t>(units) : static_cast<std::uint64_t>(units);
        if (m == 0) return;
        if (exponent < format::lowest) m >>= format::lowest - exponent;
        add_integer(m, negative != negated, exponent < format::lowest ? 0 : exponent - format::lowest);
    }

    /// Blocks of X, to which T converts exactly.
    template <class X>
    void add_whole(const X* x, std::size_t count) {
        detail::add_block(
            x, count, [&](const X* one) { add_number<X>(detail::number_format<X>::bits_at(one), false); },
            [&](std::int64_t units, int exponent) { add_scaled(units, exponent, false); });
    }
    template <class X>
    void add_array(const X* x, std::size_t count) {
        using loops = detail::block_loops<X>;
        const detail::nearest_rounding mode;
        std::size_t i = 0;
        if (count >= 2 * loops::step)
            for (std::size_t whole = count / loops::step * loops::step; i < whole;) {
                const std::size_t n = whole - i < loops::length ? whole - i : loops::length;
                add_whole(x + i, n);
                i += n;
            }
        for (; i < count; ++i) add_number<X>(detail::number_format<X>::bits_at(x + i), false);
    }
    template <class X, class Get>
    void add_tiles(std::size_t count, Get get) {
        constexpr std::size_t length = detail::block_loops<X>::length;
        alignas(64) X tile[length];
        for (std::size_t at = 0; at < count; at += length) {
            const std::size_t n = count - at < length ? count - at : length;
            for (std::size_t i = 0; i < n; ++i) tile[i] = get(at + i);
            add_array(tile, n);
        }
    }

    std::uint64_t words_[words] = {};         // two's complement, the least significant first; 0 if not finite
    std::uint64_t special_ = detail::finite;  // a special_value
};

/// Adds exact_sums; in calls on buffers of numbers (exact.hpp), the sum of these.
struct exact_t {
    static constexpr bool commutative = true, pure = true;
    /// For the library: a fold of T gets the contributions of all ranks at once.
    template <class T>
    static constexpr bool at_once_on = detail::is_exact_number<T>;
    template <class T>
    constexpr exact_sum<T> operator()(const exact_sum<T>& a, const exact_sum<T>& b) const {
        return a + b;
    }
};
/// The sum whose bits depend on nothing but the multiset of the addends.
inline constexpr exact_t exact{};

}  // namespace colls::inline v1
