// Tests of the tests' tools: with a wrong reference, or guards that find nothing, all other tests would be worthless.
#include "catch.hpp"

#include "support/guarded.hpp"
#include "support/reference.hpp"

#include <array>
#include <cmath>

using namespace support;

namespace {

template <class T>
byte_list raw(std::initializer_list<T> values) {
    byte_list b(values.size() * sizeof(T));
    std::size_t i = 0;
    for (const T& v : values) kinds::store(b.data(), i++, v);
    return b;
}
constexpr kind int_sum = kinds::erased<kinds::sum_of<std::int32_t>>("int32 sum");
constexpr kind words = kinds::erased<kinds::word_chain>("words");

shape of(verb c, int n, int root, std::vector<std::size_t> counts) { return {c, n, root, std::move(counts)}; }

std::string text_of(const byte_list& b) {
    const word w = kinds::load<word>(b.data(), 0);
    return {w.text, w.size};
}

}  // namespace

TEST_CASE("guarded buffer: finds a single byte written on either side", "[support]") {
    for (const std::size_t size : {0u, 1u, 7u, 64u, 1000u})
        for (const std::size_t shift : {0u, 1u, 8u, 63u}) {
            guarded buffer(size, shift);
            REQUIRE(buffer.broken().empty());
            std::memset(buffer.data(), 0, size);
            REQUIRE(buffer.broken().empty());
            for (const std::ptrdiff_t off : {std::ptrdiff_t{-1}, std::ptrdiff_t{-64}, static_cast<std::ptrdiff_t>(size),
                     static_cast<std::ptrdiff_t>(size) + 63}) {
                std::byte& target = buffer.data()[off];
                target ^= std::byte{1};
                CHECK_FALSE(buffer.broken().empty());
                target ^= std::byte{1};
            }
            REQUIRE(buffer.broken().empty());
        }
}

TEST_CASE("reference: gives results computed by hand", "[support]") {
    const std::vector<byte_list> three = {
        raw<int>({1, 2, 3, 4}), raw<int>({10, 20, 30, 40}), raw<int>({100, 200, 300, 400})};
    const std::vector<std::size_t> cut = balanced(4, 3);
    REQUIRE(cut == std::vector<std::size_t>{2, 1, 1});

    SECTION("reductions") {
        const auto all = expected(of(verb::all_reduce, 3, 0, cut), int_sum, three);
        for (const byte_list& b : all) CHECK(b == raw<int>({111, 222, 333, 444}));
        const auto one = expected(of(verb::reduce, 3, 2, cut), int_sum, three);
        CHECK(one[0].empty());
        CHECK(one[2] == raw<int>({111, 222, 333, 444}));
        const auto part = expected(of(verb::reduce_scatter, 3, 0, cut), int_sum, three);
        CHECK(part[0] == raw<int>({111, 222}));
        CHECK(part[1] == raw<int>({333}));
        CHECK(part[2] == raw<int>({444}));
        const auto inclusive = expected(of(verb::inclusive_scan, 3, 0, cut), int_sum, three);
        CHECK(inclusive[0] == three[0]);
        CHECK(inclusive[1] == raw<int>({11, 22, 33, 44}));
        const auto exclusive = expected(of(verb::exclusive_scan, 3, 0, cut), int_sum, three);
        CHECK(exclusive[1] == three[0]);
        CHECK(exclusive[2] == raw<int>({11, 22, 33, 44}));
        CHECK_FALSE(of(verb::exclusive_scan, 3, 0, cut).writes(0));
    }
    SECTION("copies") {
        const auto on_all = expected(of(verb::broadcast, 3, 1, cut), int_sum, three);
        for (const byte_list& b : on_all) CHECK(b == three[1]);
        const auto dealt = expected(of(verb::scatter, 3, 2, cut), int_sum, three);
        CHECK(dealt[0] == raw<int>({100, 200}));
        CHECK(dealt[2] == raw<int>({400}));
        const std::vector<byte_list> own = {raw<int>({1, 2}), raw<int>({3}), raw<int>({4})};
        const auto met = expected(of(verb::gather, 3, 1, cut), int_sum, own);
        CHECK(met[0].empty());
        CHECK(met[1] == raw<int>({1, 2, 3, 4}));
        const auto shared = expected(of(verb::all_gather, 3, 0, cut), int_sum, own);
        for (const byte_list& b : shared) CHECK(b == raw<int>({1, 2, 3, 4}));
    }
    SECTION("all_to_all_v") {
        // 0 -> 0: one, 0 -> 1: two; 1 -> 0: none, 1 -> 1: one
        const auto out =
            expected(of(verb::all_to_all, 2, 0, {1, 2, 0, 1}), int_sum, {raw<int>({5, 6, 7}), raw<int>({8})});
        CHECK(out[0] == raw<int>({5}));
        CHECK(out[1] == raw<int>({6, 7, 8}));
    }
}

TEST_CASE("element kinds: operators that do not commute reveal the order of folding", "[support]") {
    std::vector<byte_list> in;
    for (int r = 0; r < 5; ++r) {
        random_source none(1);
        in.emplace_back(words.size);
        words.fill(in.back().data(), 1, 0, r, none);
    }
    const auto out = expected(of(verb::reduce, 5, 0, balanced(1, 5)), words, in);
    CHECK(text_of(out[0]) == " !\"#$");
    std::swap(in[1], in[3]);
    CHECK(text_of(expected(of(verb::reduce, 5, 0, balanced(1, 5)), words, in)[0]) == " #\"!$");

    random_source random(7);
    const auto matrix_of = [&] { return kinds::matrix_product::make(0, 0, random); };
    const matrix a = matrix_of(), b = matrix_of(), c = matrix_of();
    const matrix left = multiply(multiply(a, b), c), right = multiply(a, multiply(b, c)),
                 other = multiply(multiply(b, a), c);
    CHECK(std::memcmp(&left, &right, sizeof left) == 0);
    CHECK(std::memcmp(&left, &other, sizeof left) != 0);
    const affine f{3, 1}, g{5, 3}, h{7, 4};
    CHECK(then(then(f, g), h).shift == then(f, then(g, h)).shift);
    CHECK(then(f, g).shift != then(g, f).shift);
    const interval first{0, 0, 4, 0}, second{1, 1, 4, 0};
    CHECK(join(first, second).spoilt == 0);
    CHECK(join(second, first).spoilt == 1);
}

TEST_CASE("element kinds: order-free values fold to the same bits in any order, others do not", "[support]") {
    constexpr std::array kinds_to_try = {kinds::erased<kinds::sum_of<float>>("float sum"),
        kinds::erased<kinds::sum_of<double>>("double sum"), kinds::erased<kinds::prod_of<float>>("float prod"),
        kinds::erased<kinds::bfloat16_sum>("bfloat16 sum"), kinds::erased<kinds::half_sum>("half sum"),
        kinds::erased<kinds::sum_of<std::int8_t>>("int8 sum"), kinds::erased<kinds::minloc_double>("minloc"),
        kinds::erased<kinds::complex_sum>("complex sum"), kinds::erased<kinds::avg_of<float>>("float avg"),
        kinds::erased<kinds::wild_sum_of<float>>("float sum, wild"),
        kinds::erased<kinds::wild_sum_of<double>>("double sum, wild")};
    constexpr int n = 129;
    constexpr std::size_t count = 40;
    for (const kind& k : kinds_to_try) {
        INFO(k.name);
        std::vector<byte_list> in;
        for (int r = 0; r < n; ++r) {
            random_source random = stream(3, static_cast<std::uint64_t>(r));
            in.emplace_back(count * k.size);
            k.fill(in.back().data(), count, 0, r, random);
        }
        const shape s = of(verb::reduce, n, 0, balanced(count, n));
        const byte_list straight = expected(s, k, in)[0];
        std::vector<const std::byte*> parts;
        for (const byte_list& b : in) parts.push_back(b.data());
        if (k.far) {
            CHECK(k.far(straight.data(), parts, count) == -1);
            CHECK(k.far(in[0].data(), parts, count) >= 0);
        }
        random_source random(9);
        for (std::size_t i = n - 1; i > 0; --i) std::swap(in[i], in[random.below(i + 1)]);
        const byte_list shuffled = expected(s, k, in)[0];
        CHECK((straight == shuffled) == (k.how == judged::exactly));
    }
}

TEST_CASE("element kinds: 16-bit floats convert there and back", "[support]") {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
        const auto b = static_cast<std::uint16_t>(bits);
        if ((b >> 10 & 31) != 31 && to_half_bits(from_half_bits(b)) != b) FAIL("half " << bits);
        if ((b >> 7 & 255) != 255 && to_bfloat16_bits(from_bfloat16_bits(b)) != b) FAIL("bfloat16 " << bits);
    }
    CHECK(from_half_bits(0x3c00) == 1.0f);
    CHECK(from_half_bits(0x7bff) == 65504.0f);
    CHECK(from_half_bits(1) == 0x1p-24f);
    CHECK(to_half_bits(1.0f + 0x1p-11f) == 0x3c00);  // tie to even
    CHECK(to_half_bits(1.0f + 0x1p-11f + 0x1p-20f) == 0x3c01);
    CHECK(to_bfloat16_bits(1.0f + 0x1p-8f) == 0x3f80);
    CHECK(to_bfloat16_bits(1.0f + 3 * 0x1p-8f) == 0x3f82);
}
