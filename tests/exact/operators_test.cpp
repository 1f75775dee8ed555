// Operators and their traits; the two-byte floats, exhaustively.
#include "catch.hpp"

#include <colls/operators.hpp>
#include <colls/types.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

using namespace colls;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct matrix {
    int a, b, c, d;
    friend constexpr matrix operator*(const matrix& x, const matrix& y) {
        return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
    }
    friend constexpr matrix operator+(const matrix& x, const matrix& y) {
        return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
    }
    friend constexpr bool operator==(const matrix&, const matrix&) = default;
};
struct says_no {
    static constexpr bool commutative = false;
    int operator()(int a, int) const { return a; }
};
struct says_yes {
    static constexpr bool commutative = true;
    int operator()(int a, int b) const { return a + b; }
};
namespace std_like {
template <class T>
struct plus {
    T operator()(T a, T) const { return a; }
};
}  // namespace std_like

template <class Op, class T>
concept has_finish = requires(Op op, T x) { op.finish(x, 2); };
template <class Op, class T>
concept has_leaf = requires(Op op, T x) { op.leaf(x); };

std::uint16_t bits(bfloat16 x) { return x.bits; }
std::uint16_t bits(half x) { return x.bits; }

}  // namespace

TEST_CASE("is_commutative: true for operators that declare it, and for those of the standard library", "[operators]") {
    STATIC_REQUIRE((is_commutative<sum_t> && is_commutative<min_t> && is_commutative<max_t> && is_commutative<avg_t>));
    STATIC_REQUIRE((is_commutative<bit_and_t> && is_commutative<bit_or_t> && is_commutative<bit_xor_t>));
    STATIC_REQUIRE((is_commutative<minloc_t> && is_commutative<maxloc_t>));
    STATIC_REQUIRE(is_commutative<premul_sum_t<float>>);
    STATIC_REQUIRE((is_commutative<prod_t> && is_commutative<prod_t, double> && is_commutative<prod_t, bfloat16>));
    STATIC_REQUIRE(is_commutative<prod_t, std::complex<float>>);
    STATIC_REQUIRE(!is_commutative<prod_t, matrix>);
    STATIC_REQUIRE(is_commutative<sum_t, matrix>);

    STATIC_REQUIRE(
        (is_commutative<std::plus<>> && is_commutative<std::plus<int>> && is_commutative<const std::plus<>&>));
    STATIC_REQUIRE((is_commutative<std::multiplies<>, double> && !is_commutative<std::multiplies<>, matrix>));
    STATIC_REQUIRE(
        (is_commutative<std::bit_and<>> && is_commutative<std::bit_or<int>> && is_commutative<std::bit_xor<>>));
    STATIC_REQUIRE(!is_commutative<std::minus<>>);
    STATIC_REQUIRE(!is_commutative<std::divides<int>>);
    STATIC_REQUIRE(!is_commutative<std::less<>>);
    STATIC_REQUIRE(!is_commutative<std::function<int(int, int)>>);
    STATIC_REQUIRE(!is_commutative<std_like::plus<int>>);
    STATIC_REQUIRE(!is_commutative<int (*)(int, int)>);

    constexpr auto lambda = [](std::plus<int>, int a) { return a; };  // naming std::plus is not enough
    STATIC_REQUIRE(!is_commutative<decltype(lambda)>);
    STATIC_REQUIRE(is_commutative<decltype(commutative(lambda))>);
    STATIC_REQUIRE((is_commutative<says_yes> && !is_commutative<says_no>));
    STATIC_REQUIRE(is_commutative<decltype(commutative(says_no{}))>);

    const auto subtract = commutative([k = 5](int a, int b) { return a - b + k; });
    REQUIRE(subtract(10, 3) == 12);
    int (*const add)(int, int) = [](int a, int b) { return a + b; };
    REQUIRE(commutative(add)(2, 3) == 5);
}

TEST_CASE("operator_on: tells which element types an operator takes", "[operators]") {
    STATIC_REQUIRE((operator_on<sum_t, int> && operator_on<sum_t, half> && operator_on<sum_t, matrix>));
    STATIC_REQUIRE((!operator_on<min_t, matrix> && !operator_on<max_t, std::complex<float>>));
    STATIC_REQUIRE((operator_on<bit_or_t, unsigned char> && !operator_on<bit_or_t, float>));
    STATIC_REQUIRE(!operator_on<bit_and_t, bfloat16>);
    STATIC_REQUIRE((operator_on<minloc_t, value_index<double>> && !operator_on<minloc_t, double>));
    STATIC_REQUIRE((!operator_on<decltype([](int& a, int) { return a; }), int>));
    STATIC_REQUIRE(!operator_on<matrix, int>);
    STATIC_REQUIRE((has_finish<avg_t, int> && !has_finish<sum_t, int>));
    STATIC_REQUIRE((has_leaf<premul_sum_t<int>, int> && !has_leaf<avg_t, int>));
}

TEST_CASE("sum and prod: integers wrap", "[operators]") {
    STATIC_REQUIRE(sum(2, 3) == 5);
    STATIC_REQUIRE(prod(2.5, 4.0) == 10.0);
    REQUIRE(sum(std::numeric_limits<int>::max(), 1) == std::numeric_limits<int>::min());
    REQUIRE(
        sum(std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}) == std::numeric_limits<std::int64_t>::max());
    REQUIRE(sum(std::int8_t{127}, std::int8_t{1}) == -128);
    REQUIRE(prod(std::int16_t{-32768}, std::int16_t{-32768}) == 0);
    REQUIRE(prod(std::uint16_t{65535}, std::uint16_t{65535}) == 1);
    REQUIRE(prod(65537, 65535) == -1);
    REQUIRE(prod(std::complex<double>(0, 1), std::complex<double>(0, 1)) == std::complex<double>(-1, 0));
    REQUIRE(prod(matrix{1, 1, 0, 1}, matrix{1, 0, 1, 1}) == matrix{2, 1, 1, 1});
    REQUIRE(sum(matrix{1, 2, 3, 4}, matrix{1, 1, 1, 1}) == matrix{2, 3, 4, 5});
    REQUIRE(float(sum(bfloat16(1.5f), bfloat16(2.25f))) == 3.75f);
    REQUIRE(sum(true, true));
}

TEST_CASE("min and max: NaN if either operand is NaN", "[operators]") {
    REQUIRE(min(2, 3) == 2);
    REQUIRE(min(3, 2) == 2);
    REQUIRE(max(-2, 3) == 3);
    REQUIRE(max(3, -2) == 3);
    REQUIRE(min(-infinity, 1.0f) == -infinity);
    REQUIRE(max(infinity, 1.0f) == infinity);
    REQUIRE(max(std::uint8_t{200}, std::uint8_t{100}) == 200);
    for (const float x : {0.0f, -1.0f, infinity, -infinity}) {
        REQUIRE(std::isnan(min(x, not_a_number)));
        REQUIRE(std::isnan(min(not_a_number, x)));
        REQUIRE(std::isnan(max(x, not_a_number)));
        REQUIRE(std::isnan(max(not_a_number, x)));
        REQUIRE(std::isnan(float(max(half(not_a_number), half(x)))));
        REQUIRE(std::isnan(float(min(bfloat16(x), bfloat16(not_a_number)))));
    }
    REQUIRE(float(min(half(2.0f), half(-3.0f))) == -3.0f);
}

TEST_CASE("minloc and maxloc: ties to the lower index, NaN first", "[operators]") {
    using pair = value_index<float>;
    STATIC_REQUIRE(std::is_trivially_copyable_v<pair>);
    const pair a{1, 5}, b{1, 3}, c{2, 0}, x{not_a_number, 7}, y{not_a_number, 9};
    for (const auto& [p, q, least, greatest] :
        {std::array{a, b, b, b}, std::array{a, c, a, c}, std::array{b, c, b, c}}) {
        REQUIRE(minloc(p, q) == least);
        REQUIRE(minloc(q, p) == least);
        REQUIRE(maxloc(p, q) == greatest);
        REQUIRE(maxloc(q, p) == greatest);
    }
    for (const pair& number : {a, b, c}) {
        REQUIRE(minloc(x, number).index == 7);
        REQUIRE(minloc(number, x).index == 7);
        REQUIRE(maxloc(x, number).index == 7);
        REQUIRE(maxloc(number, x).index == 7);
    }
    REQUIRE(minloc(x, y).index == 7);
    REQUIRE(minloc(y, x).index == 7);
    REQUIRE(maxloc(x, y).index == 7);
    REQUIRE(maxloc(y, x).index == 7);
    const value_index<int, long> far{-5, 1L << 40}, near{-5, 2};
    REQUIRE(minloc(far, near) == near);
    struct own_pair {
        double value;
        unsigned index;
    };
    REQUIRE(maxloc(own_pair{1, 2}, own_pair{4, 1}).index == 1);
}

TEST_CASE("logical_and, logical_or, logical_xor: 1 or 0 by what is other than 0, on every number", "[operators]") {
    const auto on = []<class T>(T zero, T some, T other) {
        const T one(1);
        REQUIRE(
            (logical_and(some, other) == one && logical_and(some, zero) == zero && logical_and(zero, zero) == zero));
        REQUIRE((logical_or(some, other) == one && logical_or(zero, some) == one && logical_or(zero, zero) == zero));
        REQUIRE((logical_xor(some, other) == zero && logical_xor(zero, some) == one && logical_xor(some, zero) == one));
        STATIC_REQUIRE((is_commutative<logical_and_t, T> && is_commutative<logical_or_t, T>));
    };
    on(0, 4, 2);  // of which the bitwise and is 0
    on(std::int8_t{0}, std::int8_t{-128}, std::int8_t{1});
    on(std::uint64_t{0}, std::uint64_t{1} << 40, std::uint64_t{1});
    on(false, true, true);
    on(0.0, 0.5, -3.0);
    on(half(0.0f), half(0.25f), half(7.0f));
    REQUIRE(logical_or(-0.0, 0.0) == 0.0);
    STATIC_REQUIRE(!operator_on<logical_and_t, std::complex<float>>);
}

TEST_CASE("bit_and, bit_or, bit_xor: on integers", "[operators]") {
    REQUIRE(bit_and(0b1100, 0b1010) == 0b1000);
    REQUIRE(bit_or(0b1100, 0b1010) == 0b1110);
    REQUIRE(bit_xor(std::uint8_t{0xff}, std::uint8_t{0x0f}) == 0xf0);
    REQUIRE(bit_xor(std::int8_t{-1}, std::int8_t{1}) == -2);
}

TEST_CASE("avg: divides the sum by the number of ranks at the end", "[operators]") {
    REQUIRE(avg(3, 4) == 7);
    REQUIRE(avg.finish(7, 2) == 3);
    REQUIRE(avg.finish(-7, 2) == -3);
    REQUIRE(avg.finish(std::int8_t{-128}, 300) == 0);
    REQUIRE(avg.finish(std::uint8_t{255}, 300) == 0);
    REQUIRE(avg.finish(std::uint32_t{4000000000u}, 2) == 2000000000u);
    REQUIRE(avg.finish(std::numeric_limits<std::uint64_t>::max(), 1) == std::numeric_limits<std::uint64_t>::max());
    REQUIRE(avg.finish(std::numeric_limits<std::int64_t>::min(), 2) == std::numeric_limits<std::int64_t>::min() / 2);
    REQUIRE(avg.finish(1.0f, 3) == 1.0f / 3.0f);
    REQUIRE(avg.finish(1.0, 3) == 1.0 / 3.0);
    REQUIRE(avg.finish(std::complex<float>(3, 6), 3) == std::complex<float>(1, 2));
    REQUIRE(float(avg.finish(bfloat16(5.0f), 2)) == 2.5f);
    REQUIRE(float(avg.finish(half(1.0f), 3)) == float(half(1.0f / 3.0f)));
}

TEST_CASE("premul_sum: scales each contribution", "[operators]") {
    REQUIRE(premul_sum(3).leaf(5) == 15);
    REQUIRE(premul_sum(3)(5, 7) == 12);
    REQUIRE(premul_sum(2.5).leaf(4) == 10);
    REQUIRE(premul_sum(0.5).leaf(-5) == -2);
    REQUIRE(premul_sum(1 << 30).leaf(4) == 0);
    REQUIRE(premul_sum(3).leaf(2.5f) == 7.5f);
    REQUIRE(premul_sum(2.0).leaf(std::complex<float>(1, 2)) == std::complex<float>(2, 4));
    REQUIRE(premul_sum(std::complex<float>(0, 1)).leaf(std::complex<float>(1, 2)) == std::complex<float>(-2, 1));
    REQUIRE(float(premul_sum(bfloat16(3.0f)).leaf(bfloat16(0.5f))) == 1.5f);
    REQUIRE(float(premul_sum(0.1).leaf(half(10.0f))) == float(half(10.0f * 0.1f)));
}

TEST_CASE("two-byte floats: sizes, literals, arithmetic", "[types]") {
    STATIC_REQUIRE((sizeof(bfloat16) == 2 && sizeof(half) == 2 && alignof(half) == 2));
    STATIC_REQUIRE((std::is_trivially_copyable_v<bfloat16> && std::is_trivially_default_constructible_v<half>));
    STATIC_REQUIRE(!std::is_convertible_v<float, half>);
    STATIC_REQUIRE(std::is_convertible_v<half, float>);
    STATIC_REQUIRE(bfloat16(1.0f).bits == 0x3f80);
    STATIC_REQUIRE(half(1.0f).bits == 0x3c00);
    STATIC_REQUIRE(half(65504).bits == 0x7bff);
    STATIC_REQUIRE(half(65520.0f).bits == 0x7c00);
    STATIC_REQUIRE(half(65519.996f).bits == 0x7bff);
    STATIC_REQUIRE(half(0x1p-24f).bits == 1);
    STATIC_REQUIRE(half(0x1p-25f).bits == 0);
    STATIC_REQUIRE(half(0x1.8p-25f).bits == 1);
    STATIC_REQUIRE(half(-0.0f).bits == 0x8000);
    STATIC_REQUIRE(bfloat16(3.0) == bfloat16(3));
    STATIC_REQUIRE((half(2.0f) < half(3.0f) && half(-0.0f) == half(0.0f) && half(3.0f) >= half(3.0f)));
    STATIC_REQUIRE(bfloat16(not_a_number) != bfloat16(not_a_number));
    half x(1.5f);
    x += half(2.0f);
    x *= half(2.0f);
    x -= half(1.0f);
    x /= half(3.0f);
    REQUIRE(x == half(2.0f));
    REQUIRE(-x == half(-2.0f));
    REQUIRE(x + 0.25f == 2.25f);
    REQUIRE(x * 3 == 6.0f);
    REQUIRE(float(bfloat16(256.0f) + bfloat16(1.0f)) == 256.0f);
}

namespace {

/// Converts every pattern there and back, and every tie with its two neighbours in float and in double.
template <class T>
void check_conversions(int fraction_bits, int bias) {
    const int exponent_bits = 15 - fraction_bits;
    const auto magnitude = [=](unsigned p) {  // by the definition of the format
        const int e = static_cast<int>(p >> fraction_bits), f = static_cast<int>(p & ((1u << fraction_bits) - 1));
        return e == 0 ? std::ldexp(f, 1 - bias - fraction_bits)
                      : std::ldexp(f + (1 << fraction_bits), e - bias - fraction_bits);
    };
    const unsigned first_special = ((1u << exponent_bits) - 1) << fraction_bits;
    for (unsigned p = 0; p < 0x10000; ++p) {
        const T x = T::from_bits(static_cast<unsigned short>(p));
        const unsigned m = p & 0x7fff;
        const double sign = p >> 15 ? -1 : 1;
        if (m > first_special) {
            if (!std::isnan(float(x)) || !std::isnan(float(T(float(x))))) FAIL("NaN " << p);
            if (bits(T(float(x))) >> 15 != p >> 15) FAIL("sign of NaN " << p);
            continue;
        }
        const double expected = m == first_special ? std::numeric_limits<double>::infinity() : magnitude(m);
        if (static_cast<double>(float(x)) != sign * expected || std::signbit(float(x)) != (p >> 15 == 1))
            FAIL("value " << p);
        if (bits(T(float(x))) != p || bits(T(static_cast<double>(float(x)))) != p) FAIL("round trip " << p);
        if (m >= first_special) continue;
        const double tie = (magnitude(m) + magnitude(m + 1)) / 2;  // (above the greatest: where infinity begins)
        const auto encoded = [&](auto v) { return bits(T(v)) & 0x7fffu; };
        const auto even = m % 2 == 0 ? m : m + 1;
        const auto f = static_cast<float>(sign * tie);
        REQUIRE(static_cast<double>(f) == sign * tie);
        const float less = std::nextafter(f, 0.0f), more = std::nextafter(f, static_cast<float>(sign) * infinity);
        if (encoded(f) != even || encoded(less) != m || encoded(more) != m + 1) FAIL("tie above " << p);
        const double lower = std::nextafter(sign * tie, 0.0), upper = std::nextafter(sign * tie, sign * 1e300);
        if (encoded(sign * tie) != even || encoded(lower) != m || encoded(upper) != m + 1)
            FAIL("double tie above " << p);
        if (bits(T(f)) >> 15 != p >> 15) FAIL("sign " << p);
    }
    for (const std::uint32_t payload : {1u, 0x1fffu, 0xffffu, 0x3fffffu, 0x400000u, 0x7fffffu})  // low bits alone, too
        for (const std::uint32_t word : {0x7f800000u | payload, 0xff800000u | payload}) {
            float f;
            std::memcpy(&f, &word, 4);
            REQUIRE(std::isnan(float(T(f))));
            REQUIRE(bits(T(f)) >> 15 == word >> 31);
        }
    REQUIRE(bits(T(1e300)) == first_special);
    REQUIRE(bits(T(-1e300)) == (first_special | 0x8000u));
    REQUIRE(bits(T(1e-300)) == 0);
    REQUIRE(std::isnan(float(T(std::numeric_limits<double>::quiet_NaN()))));
}

}  // namespace

TEST_CASE("bfloat16: converts all 65,536 patterns and all ties rightly", "[types]") {
    check_conversions<bfloat16>(7, 127);
}
TEST_CASE("half: converts all 65,536 patterns and all ties rightly", "[types]") { check_conversions<half>(10, 15); }

#if defined(__FLT16_MAX__)
TEST_CASE("half: agrees with the compiler's type _Float16", "[types]") {
    std::mt19937 random(7);
    for (int i = 0; i < 3'000'000; ++i) {
        const auto word = static_cast<std::uint32_t>(random());
        float f;
        std::memcpy(&f, &word, 4);
        const auto reference = static_cast<_Float16>(f);
        std::uint16_t expected;
        std::memcpy(&expected, &reference, 2);
        if (std::isnan(f) ? !std::isnan(float(half(f))) : bits(half(f)) != expected) FAIL("float " << word);
        const std::uint64_t long_word = static_cast<std::uint64_t>(0x3e00 + random() % 0x300) << 48 ^
                                        (static_cast<std::uint64_t>(random()) << 20 ^ random());
        double d;
        std::memcpy(&d, &long_word, 8);
        const auto from_double = static_cast<_Float16>(d);
        std::memcpy(&expected, &from_double, 2);
        if (bits(half(d)) != expected) FAIL("double " << long_word);
    }
}
#endif
