// 8-bit floats and quantised blocks against references of their own: conversions, folds, and the loops over arrays.
#include "catch.hpp"

#include "patterns/quantized_reference.hpp"

#include <colls/detail/reduce/fold.hpp>
#include <colls/patterns/detail/convert_loops.hpp>
#include <colls/patterns/quantized.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace colls;
using namespace support;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float largest = std::numeric_limits<float>::max();
constexpr float least_normal = std::numeric_limits<float>::min();

template <class T>
bool same_bytes(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}
float with_bits(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

/// What 8-bit floats are checked with: every code, every midpoint of two, the floats beside them, and a sweep through
/// all floats.
template <class F>
std::vector<float> interesting() {
    std::vector<float> all = {0.0f, -0.0f, infinity, -infinity, largest, -largest, least_normal, 1e-45f, 500.0f, 7e4f};
    for (int c = 0; c < 256; ++c) {
        const double here = fp8_value<F>(c), next = fp8_value<F>(c + 1 < 256 ? c + 1 : c);
        if (!std::isfinite(here)) continue;
        for (const double x : {here, std::isfinite(next) ? (here + next) / 2 : here * 1.0625}) {
            const auto f = static_cast<float>(x);
            for (const float y : {f, std::nextafter(f, infinity), std::nextafter(f, -infinity)}) all.push_back(y);
        }
    }
    for (std::uint32_t bits = 0; bits < 0xffff0000u; bits += 0x10001u * 7)
        if (const float x = with_bits(bits); !std::isnan(x)) all.push_back(x);
    return all;
}

template <class F>
void check_fp8() {
    for (int c = 0; c < 256; ++c) {
        const double value = fp8_value<F>(c);
        const float decoded = F::from_bits(static_cast<unsigned char>(c));
        INFO("code " << c);
        if (std::isnan(value)) {
            CHECK(std::isnan(decoded));
            CHECK(std::isnan(static_cast<float>(F(decoded))));
            continue;
        }
        CHECK(static_cast<double>(decoded) == value);
        CHECK(std::signbit(decoded) == (c >= 128));
        if (std::isfinite(value)) CHECK(int(F(decoded).bits) == c);
    }
    for (const float x : interesting<F>())
        if (F(x).bits != fp8_nearest<F>(x)) {
            INFO(x);
            CHECK(int(F(x).bits) == int(fp8_nearest<F>(x)));
        }
    CHECK(std::isnan(static_cast<float>(F(not_a_number))));
    CHECK(std::isnan(static_cast<float>(F(-with_bits(0x7f800001u)))));
}

std::vector<float> random_floats(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& v : x) v = normal(random) * std::ldexp(1.0f, static_cast<int>(random() % 20) - 10);
    return x;
}
template <int B>
float_block<B> block_of_floats(const std::vector<float>& x) {
    float_block<B> b{};
    std::copy_n(x.begin(), std::min(x.size(), std::size_t{B}), b.values);
    return b;
}

/// Blocks that have been found to matter: zeros, subnormals, the extremes, one large value among small ones.
std::vector<std::vector<float>> awkward_blocks() {
    std::vector<std::vector<float>> all = {{}, {-0.0f, 0.0f}, {1e-45f, -1e-45f}, {least_normal, -least_normal / 3},
        {127 * least_normal, least_normal, least_normal / 2}, {1e-30f, 2e-31f}, {0x1.fffffep126f, -0x1p126f, 1.0f},
        {1.0f, 0.5f, 1.0f / 254, 3.0f / 254, -1.0f / 254}, {-448.0f, 448.0f, 447.0f}, {449.0f, 3.0f}, {0x1.cp0f, 1.0f},
        {0x1.c00002p0f, 1.0f}, {1e30f, 1e-30f}};
    for (unsigned seed = 0; seed < 40; ++seed) all.push_back(random_floats(128, seed));
    return all;
}

template <class Q>
void check_blocks() {
    constexpr int B = sizeof(float_block<128>) / sizeof(float);
    for (const auto& x : awkward_blocks()) {
        const auto in = block_of_floats<B>(x);
        const Q q(in);
        CAPTURE(x.empty() ? 0.0f : x[0]);
        CHECK(same_bytes(q, reference_block<Q>(in.values)));
        const float_block<B> back(q);
        float most = 0;
        for (const float v : in.values) most = std::max(most, std::abs(v));
        // half a scale where m / 127 is less than the least scale
        const double bound = std::max(double{Q::worst_error} * most, 0.5 * least_normal) * (1 + 1e-5);
        for (int i = 0; i < B; ++i) {
            CHECK(std::abs(double{back.values[i]} - in.values[i]) <= bound);
            CHECK((in.values[i] != 0 || back.values[i] == 0));
        }
        if constexpr (std::is_same_v<typename Q::code, std::int8_t>) {
            for (int i = 0; i < B; ++i)
                CHECK(std::abs(double{back.values[i]} - in.values[i]) <= 0.5 * q.scale * (1 + 1e-4));
        } else if (most < 0x1p126f) {
            CHECK(same_bytes(float_block<B>(Q(back)), back));  // nothing is lost by quantising again
        }
    }
    for (const float bad : {not_a_number, -not_a_number, infinity, -infinity, largest, -0x1p127f}) {
        auto x = random_floats(128, 5);
        x[77] = bad;
        const Q q(block_of_floats<B>(x));
        for (const float v : float_block<B>(q).values) CHECK(std::isnan(v));
        // One form of such a block: the same bytes on every rank.
        CHECK(same_bytes(q, Q(block_of_floats<B>({bad}))));
    }
}

/// A user's type: a probability kept as a rounded percentage, summed in double.
struct percent {
    using accumulator = double;
    std::uint16_t value;
    percent() = default;
    explicit percent(double x) : value(static_cast<std::uint16_t>(std::lround(100 * x))) {}
    explicit operator double() const { return value / 100.0; }
};

template <class T, class Op>
void check_fold(const Op& op, int k, std::size_t count) {
    using A = accumulator_of<T, Op>;
    constexpr std::size_t each = sizeof(A) / sizeof(float);
    std::vector<std::vector<T>> in(static_cast<std::size_t>(k), std::vector<T>(count));
    std::vector<detail::operand> x;
    for (std::size_t j = 0; j < in.size(); ++j) {
        detail::compress_array(random_floats(count * each, static_cast<unsigned>(j)).data(),
            static_cast<float*>(nullptr), count * each, in[j].data());
        x.push_back({in[j].data()});
    }
    std::vector<T> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto get = [&](std::size_t j) { return static_cast<A>(in[j][i]); };
        A a = get(0);
        for (std::size_t j = 1; j < in.size(); ++j) a = op(a, get(j));
        expected[i] = static_cast<T>(a);
    }
    const auto check = [&](detail::fold_function fold, bool in_place) {
        std::vector<T> out(count);
        if (in_place) {
            out = in.back();
            x.back().data = out.data();
        }
        fold(out.data(), x.data(), k, count, &op);
        x.back().data = in.back().data();
        CHECK(std::memcmp(out.data(), expected.data(), count * sizeof(T)) == 0);
    };
    for (const bool in_place : {false, true}) {
        check(detail::op_table_for<T, Op>.fold, in_place);
        check(&detail::fold_baseline<T, Op>, in_place);
#if defined(__x86_64__) && defined(__GNUC__)
        if (__builtin_cpu_supports("avx2")) check(&detail::compiled_for<&detail::fold_any<T, Op>>::avx2, in_place);
#endif
    }
}
template <class T, class Op>
void check_folds(const Op& op) {
    for (const int k : {2, 3, 4, 7, 17})
        for (const std::size_t count : {1u, 5u, 33u, 300u}) check_fold<T>(op, k, count);
}

}  // namespace

TEST_CASE("fp8: all codes, and rounding to nearest even with saturation", "[patterns]") {
    check_fp8<fp8_e4m3>();
    check_fp8<fp8_e5m2>();
    CHECK(static_cast<float>(fp8_e4m3(1e9f)) == 448);
    CHECK(static_cast<float>(fp8_e5m2(-infinity)) == -57344);
    STATIC_REQUIRE(fp8_e4m3(1.0f).bits == 0x38);
    STATIC_REQUIRE(fp8_e5m2(1.0f).bits == 0x3c);
}

TEST_CASE("quantized: a block is its scale, and then its codes", "[patterns]") {
    using q8 = quantized<std::int8_t, 16>;
    STATIC_REQUIRE(sizeof(q8) == 20);
    STATIC_REQUIRE((sizeof(quantized<fp8_e4m3>) == 132 && std::is_trivially_copyable_v<quantized<fp8_e4m3>>));
    const q8 q(block_of_floats<16>({127.0f, -127.0f, 1.0f, 0.5f, 1.5f, -2.5f}));
    const unsigned char bytes[20] = {0, 0, 0x80, 0x3f, 127, 0x81, 1, 0, 2, 0xfe};  // 1.0f, then ties to even
    CHECK(std::memcmp(&q, bytes, sizeof q) == 0);
    CHECK(quantized<fp8_e4m3, 16>(block_of_floats<16>({3.0f})).scale == 0x1p-7f);  // 384, of 448
    CHECK(quantized<fp8_e5m2, 16>(block_of_floats<16>({3.0f})).scale == 0x1p-14f);
}

TEST_CASE("quantized: codes, errors, and blocks that are not finite", "[patterns]") {
    check_blocks<quantized<std::int8_t>>();
    check_blocks<quantized<fp8_e4m3>>();
    check_blocks<quantized<fp8_e5m2>>();
}

TEST_CASE("a fold computes in the accumulator that the type names, and rounds once", "[patterns]") {
    check_folds<quantized<std::int8_t>>(sum);
    check_folds<quantized<fp8_e5m2, 32>>(sum);
    check_folds<fp8_e4m3>(sum);
    check_folds<fp8_e4m3>(colls::max);
    check_folds<fp8_e5m2>(sum);

    STATIC_REQUIRE(std::is_same_v<accumulator_of<percent, sum_t>, double>);
    STATIC_REQUIRE(std::is_same_v<accumulator_of<bfloat16, sum_t>, float>);
    STATIC_REQUIRE(std::is_same_v<accumulator_of<float, sum_t>, float>);
    STATIC_REQUIRE(std::is_same_v<accumulator_of<percent, bit_xor_t>, percent>);  // doubles have no ^
    const auto lambda = [](percent a, percent) { return a; };                     // not known to be pure
    STATIC_REQUIRE(std::is_same_v<accumulator_of<percent, decltype(lambda)>, percent>);
    STATIC_REQUIRE(operator_on<sum_t, percent>);
    STATIC_REQUIRE(!operator_on<bit_xor_t, percent>);
    STATIC_REQUIRE(!operator_on<min_t, quantized<std::int8_t>>);

    std::vector<percent> x(40, percent(0.5)), y(40, percent(0.25)), z(40);
    const detail::operand both[] = {{x.data()}, {y.data()}};
    detail::op_table_for<percent, sum_t>.fold(z.data(), both, 2, z.size(), &sum);
    for (const percent& p : z) CHECK(p.value == 75);
}

TEST_CASE("quantized: avg divides the scale, and quantises nothing again", "[patterns]") {
    using Q = quantized<std::int8_t>;
    std::vector<Q> x(3);
    detail::compress_array(random_floats(384, 1).data(), static_cast<float*>(nullptr), 384, x.data());
    auto divided = x;
    detail::op_table_for<Q, avg_t>.finish(divided.data(), 3, 5, &avg);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(divided[i].scale == x[i].scale / 5);
        CHECK(std::memcmp(divided[i].codes, x[i].codes, sizeof x[i].codes) == 0);
    }
}

TEMPLATE_TEST_CASE("arrays: any count is converted, and the residual is what was lost", "[patterns]",
    (quantized<std::int8_t, 48>), (quantized<fp8_e4m3>), fp8_e5m2, bfloat16, half, float) {
    using E = TestType;
    constexpr std::size_t each = sizeof(accumulator_of<E, sum_t>) / sizeof(float);
    std::vector<void (*)(const float*, float*, std::size_t, E*)> compress{
        &detail::compress_array<E>, &detail::for_processor<&detail::compress_either<E>>::baseline};
    std::vector<void (*)(const E*, std::size_t, float*)> decompress{
        &detail::decompress_array<E>, &detail::for_processor<&detail::decompress_loop<E>>::baseline};
    for (std::size_t count = 0; count < 300; count += count < 140 ? 1 : 13) {
        const std::size_t elements = (count + each - 1) / each;
        const auto x = random_floats(count, 3), kept = random_floats(count, 4);
        std::vector<float> padded(elements * each), alone(elements * each);
        for (std::size_t i = 0; i < count; ++i) padded[i] = x[i] + kept[i], alone[i] = x[i];
        std::vector<E> expected(elements + 1), expected_alone(elements + 1);
        for (std::size_t i = 0; i < elements; ++i) {
            accumulator_of<E, sum_t> a;
            std::memcpy(&a, padded.data() + i * each, sizeof a);
            expected[i] = static_cast<E>(a);
            std::memcpy(&a, alone.data() + i * each, sizeof a);
            expected_alone[i] = static_cast<E>(a);
        }
        for (std::size_t v = 0; v < compress.size(); ++v) {
            // An element and a float more than needed: they must stay as they are.
            std::vector<E> made(elements + 1);
            std::memset(static_cast<void*>(made.data()), 0x5a, made.size() * sizeof(E));
            const E beyond = made.back();
            auto residual = kept;
            residual.push_back(-7);
            compress[v](x.data(), residual.data(), count, made.data());
            CHECK(std::memcmp(made.data(), expected.data(), elements * sizeof(E)) == 0);
            CHECK(same_bytes(made.back(), beyond));

            std::vector<float> back(count + 1, -7);
            decompress[v](made.data(), count, back.data());
            CHECK((back.back() == -7 && residual.back() == -7));
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i) {
                accumulator_of<E, sum_t> a = static_cast<accumulator_of<E, sum_t>>(expected[i / each]);
                float values[each];
                std::memcpy(values, &a, sizeof a);
                wrong += back[i] != values[i % each] || residual[i] != padded[i] - back[i];
            }
            CHECK(wrong == 0);
            compress[v](x.data(), nullptr, count, made.data());
            CHECK(std::memcmp(made.data(), expected_alone.data(), elements * sizeof(E)) == 0);
        }
    }
    // What is not finite leaves no residual.
    std::vector<float> x(256, 1.0f), residual(256, 0.25f);
    x[3] = infinity, x[4] = not_a_number;
    std::vector<E> made(256);
    detail::compress_array(x.data(), residual.data(), 256, made.data());
    for (const float r : residual) CHECK(std::isfinite(r));
    CHECK((residual[3] == 0 && residual[4] == 0));
}
