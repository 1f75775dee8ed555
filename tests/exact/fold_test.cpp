// Every variant of the reduce loops compared to one loop over the elements; and the copies.
#include "catch.hpp"

#include "support/guarded.hpp"
#include "support/random.hpp"

#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/support/copy.hpp>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

using namespace colls;
using namespace colls::detail;

namespace {

struct variant {
    const char* name;
    fold_function fold;
};
/// A variant as the table would call it.
template <class T, class Op, fold_function f>
void called(void* dst, const operand* x, int k, std::size_t count, const void* op) {
    if constexpr (std::is_same_v<fold_loop<T, Op>, direct_fold<T, Op>>)
        fold_by_fours(f, sizeof(T), dst, x, k, count, op);
    else
        f(dst, x, k, count, op);
}
/// The fold of the table, and those among which it chooses on this processor. (Not by way of the table, which would
/// also have the folds into two places compiled: reproducible_test tests those.)
template <class T, class Op>
std::vector<variant> variants() {
    std::vector<variant> v{{"table", &fold_entry<T, Op>}, {"baseline", &called<T, Op, &fold_baseline<T, Op>>}};
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) v.push_back({"avx2", &called<T, Op, &compiled_for<&fold_any<T, Op>>::avx2>});
    if constexpr (folds_in_float<T, Op>)
        if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            v.push_back({"avx512", &called<T, Op, &compiled_for<&fold_any<T, Op>>::avx512>});
#endif
    return v;
}

/// Awkward values: the extremes of T among small ones.
template <class T>
T element(std::size_t i, std::size_t j) {
    const std::uint64_t h = (i * 2654435761u + j * 40503u + 12345u) * 0x9e3779b97f4a7c15u >> 40;
    if constexpr (std::is_same_v<T, bool>)
        return h % 3 != 0;
    else if constexpr (std::is_integral_v<T>)
        return h % 7 == 0   ? std::numeric_limits<T>::max()
               : h % 7 == 1 ? std::numeric_limits<T>::min()
                            : static_cast<T>(h);
    else if constexpr (std::is_floating_point_v<T>)
        return h % 11 == 0 ? static_cast<T>(-0.0) : static_cast<T>(h % 1000) / static_cast<T>(7) - static_cast<T>(60);
    else if constexpr (is_small_float<T>)
        return T::from_bits(static_cast<unsigned short>(h % 13 == 0 ? h & 0x83ff : 0x2000 | (h & 0x9fff)));
    else if constexpr (complex_like<T>)
        return T(element<typename T::value_type>(i, j), element<typename T::value_type>(i + 7, j));
    else
        return T::make(h);
}
/// The elements of operand j.
template <class T>
void fill(void* to, std::size_t count, std::size_t j) {
    for (std::size_t i = 0; i < count; ++i) {
        const T e = element<T>(i, j);
        std::memcpy(static_cast<std::byte*>(to) + i * sizeof(T), static_cast<const void*>(&e), sizeof(T));
    }
}

/// The definition of a fold, in one loop: in float for small floats under a pure operator.
template <class T, class Op>
T folded(const operand* x, int k, std::size_t i, const Op& op) {
    using A = std::conditional_t<folds_in_float<T, Op>, float, T>;
    const auto get = [&](int j) { return static_cast<A>(static_cast<const T*>(x[j].data)[i]); };
    std::optional<A> so_far(get(0));  // emplaced, since A need not be assignable
    for (int j = 1; j < k; ++j) {
        const A next = static_cast<A>(op(*so_far, get(j)));
        so_far.emplace(next);
    }
    return static_cast<T>(*so_far);
}
template <class T, class Op>
void expect(void* out, const operand* x, int k, std::size_t count, const void* op) {
    for (std::size_t i = 0; i < count; ++i) {
        const T e = folded<T>(x, k, i, *static_cast<const Op*>(op));
        std::memcpy(static_cast<std::byte*>(out) + i * sizeof(T), static_cast<const void*>(&e), sizeof(T));
    }
}

bool same_bytes(const void* a, const void* b, std::size_t bytes) { return bytes == 0 || std::memcmp(a, b, bytes) == 0; }
bool same_long_doubles(const void* a, const void* b, std::size_t bytes) {  // they have padding
    const auto* const x = static_cast<const long double*>(a);
    return std::equal(x, x + bytes / sizeof(long double), static_cast<const long double*>(b));
}

/// An operator on an element type, their types erased: the checks below are compiled once.
struct erased_fold {
    std::size_t size, alignment;
    void (*fill)(void* to, std::size_t count, std::size_t j);
    void (*expect)(void* out, const operand* x, int k, std::size_t count, const void* op);
    bool (*same)(const void* a, const void* b, std::size_t bytes);
    const void* op;
    std::vector<variant> variants;
};
template <class T, class Op>
erased_fold make_fold(const Op& op) {
    return {sizeof(T), alignof(T), &fill<T>, &expect<T, Op>,
        std::is_same_v<T, long double> ? &same_long_doubles : &same_bytes, &op, variants<T, Op>()};
}

/// One call, whose dst is a buffer of its own (alias < 0) or that of an operand.
void check(const erased_fold& f, const variant& v, int k, std::size_t count, int alias, std::size_t shift) {
    if (k == 1 && v.name != f.variants[0].name) return;  // a copy, which the table makes without these loops
    const std::size_t bytes = count * f.size;
    std::vector<support::guarded> buffers;
    std::vector<support::guarded> before;
    std::vector<operand> x, inputs;
    for (int j = 0; j <= k; ++j) {  // the last is dst
        buffers.emplace_back(bytes, (shift + static_cast<std::size_t>(j) * 3) * f.alignment % 64);
        before.emplace_back(bytes);
        f.fill(buffers.back().data(), count, static_cast<std::size_t>(j));
        std::memcpy(before.back().data(), buffers.back().data(), bytes);
        if (j < k) {
            x.push_back({buffers.back().data()});
            inputs.push_back({before.back().data()});
        }
    }
    support::guarded expected(bytes);
    f.expect(expected.data(), inputs.data(), k, count, f.op);

    const auto target = static_cast<std::size_t>(alias < 0 ? k : alias);
    v.fold(buffers[target].data(), x.data(), k, count, f.op);

    const auto fail = [&](const std::string& what) {
        FAIL(v.name << ", " << k << " operands, count " << count << ", alias " << alias << ", shift " << shift << ": "
                    << what);
    };
    const std::byte* const got = buffers[target].data();
    if (!f.same(got, expected.data(), bytes)) {
        std::size_t i = 0;
        while (f.same(got + i * f.size, expected.data() + i * f.size, f.size)) ++i;
        fail("element " + std::to_string(i) + " differs");
    }
    for (std::size_t j = 0; j < buffers.size(); ++j) {
        if (const std::string where = buffers[j].broken(); !where.empty())
            fail("buffer " + std::to_string(j) + ": wrote " + where);
        if (j != target && !f.same(buffers[j].data(), before[j].data(), bytes))
            fail("operand " + std::to_string(j) + " was changed");
    }
}

void check_all(const erased_fold& f) {
    for (const variant& v : f.variants) {
        for (int k = 1; k <= 9; k += support::sanitized ? 2 : 1) {
            for (std::size_t count = 0; count <= 300; count += count < 70 ? 1 : 23)
                check(f, v, k, count, -1, count % 5);
            for (int alias = 0; alias < k; ++alias)
                for (const std::size_t count : {1u, 31u, 33u, 130u, 300u, 2100u}) check(f, v, k, count, alias, 1);
        }
        for (const int k : {33, 128})
            for (const std::size_t count : {5u, 64u, 300u})
                for (const int alias : {-1, 0, 3, 4, k - 2, k - 1}) check(f, v, k, count, alias, 0);
        for (const int k : {2, 3, 4, 5, 8, 11})
            if (!support::sanitized || k == 4) check(f, v, k, 20011, -1, 1);
    }
    SUCCEED();
}
template <class T, class Op>
void check_all(const Op& op) {
    check_all(make_fold<T>(op));
}

/// The fold of two operands into two places, each of which may be an operand.
struct variant_of_two {
    const char* name;
    bool (*fold)(void* dst, void* also, past_caches past, const operand* x, std::size_t count, const void* op);
};
template <void (*f)(void*, void*, const operand*, std::size_t, const void*)>
bool called_plain(void* dst, void* also, past_caches past, const operand* x, std::size_t count, const void* op) {
    if (past != past_caches::none) return false;
    f(dst, also, x, count, op);
    return true;
}
#if defined(__x86_64__) && defined(__GNUC__)
/// What the table takes where the processor has AVX2 and no AVX-512.
template <class T, class Op>
bool lines_avx2_called(void* dst, void* also, past_caches past, const operand* x, std::size_t count, const void* op) {
    const auto apart = reinterpret_cast<std::uintptr_t>(dst) - reinterpret_cast<std::uintptr_t>(also);
    if (past == past_caches::none || (past == past_caches::both && apart % 64 != 0)) return false;
    (past == past_caches::second    ? &compiled_for<&fold_twice_by_lines<past_caches::second, lines_avx2, T, Op>>::avx2
        : past == past_caches::both ? &compiled_for<&fold_twice_by_lines<past_caches::both, lines_avx2, T, Op>>::avx2
                                    : &compiled_for<&fold_twice_by_lines<past_caches::alone, lines_avx2, T, Op>>::avx2)(
        dst, also, x, count, op);
    return true;
}
#endif
template <class T, class Op>
std::vector<variant_of_two> variants_of_two() {
    std::vector<variant_of_two> v{{"table", op_table_for<T, Op>.fold_twice},
        {"baseline", &called_plain<&compiled_for<&fold_twice<T, Op>>::baseline>}};
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) {
        v.push_back({"avx2", &called_plain<&compiled_for<&fold_twice<T, Op>>::avx2>});
        v.push_back({"lines, avx2", &lines_avx2_called<T, Op>});
    }
#endif
    return v;
}

/// The places: 0 and 1 are those of the operands, 2 and 3 are others. Returns whether there is such a loop.
template <class T, class Op>
bool check_twice(const variant_of_two& v, past_caches past, std::size_t to, std::size_t also, std::size_t count,
    std::size_t shift, const Op& op) {
    std::vector<support::guarded> buffers;
    std::vector<std::vector<T>> before(4);
    for (std::size_t j = 0; j < 4; ++j) {
        buffers.emplace_back(count * sizeof(T), shift * alignof(T));
        for (std::size_t i = 0; i < count; ++i) before[j].push_back(element<T>(i, j));
        std::copy(before[j].begin(), before[j].end(), buffers[j].template as<T>().begin());
    }
    const operand of_before[] = {{before[0].data()}, {before[1].data()}};
    std::vector<T> expected;
    for (std::size_t i = 0; i < count; ++i) expected.push_back(folded<T>(of_before, 2, i, op));
    const operand x[] = {{buffers[0].data()}, {buffers[1].data()}};
    if (!v.fold(buffers[to].data(), buffers[also].data(), past, x, count, &op)) return false;
    fence_stream();
    CAPTURE(v.name, static_cast<int>(past), to, also, count, shift);
    for (std::size_t j = 0; j < 4; ++j) {
        if (const std::string where = buffers[j].broken(); !where.empty()) FAIL("buffer " << j << ": wrote " << where);
        const bool is_place = j == to || j == also;
        if (!same_bytes(
                buffers[j].template as<T>().data(), (is_place ? expected : before[j]).data(), count * sizeof(T)))
            FAIL((is_place ? "the fold is wrong in buffer " : "there was a write to buffer ") << j);
    }
    return true;
}
template <class T, class Op>
void check_all_twice(const Op& op) {
    int done = 0;
    for (const variant_of_two& v : variants_of_two<T, Op>())
        for (const past_caches past : {past_caches::none, past_caches::second, past_caches::both, past_caches::alone})
            for (std::size_t to = 0; to < 4; ++to)
                for (std::size_t also = 0; also < 4; ++also)
                    if ((to == also) == (past == past_caches::alone))
                        for (const std::size_t count : {1u, 17u, 130u, 1100u})
                            for (const std::size_t shift : {0u, 5u})
                                done += check_twice<T>(v, past, to, also, count, shift, op);
    CHECK(done > 200);
}

/// x -> a x + b under composition: associative, not commutative, no default constructor, not assignable.
struct affine {
    const std::uint32_t a, b;
    affine(std::uint32_t x, std::uint32_t y) : a(x), b(y) {}
    static affine make(std::uint64_t h) { return {static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(h * 77)}; }
};
struct compose_affine {
    affine operator()(const affine& f, const affine& g) const { return {f.a * g.a, g.a * f.b + g.b}; }
};
/// An element larger than the loop's tile.
struct page {
    std::uint64_t words[600];
    static page make(std::uint64_t h) {
        page p;
        for (std::uint64_t i = 0; i < 600; ++i) p.words[i] = h * (i + 1);
        return p;
    }
};
struct alignas(64) lines {
    std::int32_t x[16];
    static lines make(std::uint64_t h) {
        lines p;
        for (std::uint64_t i = 0; i < 16; ++i) p.x[i] = static_cast<std::int32_t>(h * (i + 1) % 1000);
        return p;
    }
};
struct three_bytes {
    unsigned char b[3];
    static three_bytes make(std::uint64_t h) {
        return {
            {static_cast<unsigned char>(h), static_cast<unsigned char>(h >> 8), static_cast<unsigned char>(h >> 16)}};
    }
};
struct located : value_index<float, int> {
    static located make(std::uint64_t h) { return {{static_cast<float>(h % 5), static_cast<int>(h % 9)}}; }
};

/// A pure operator with a wider result: each step must convert back to the element type.
struct halve_and_add {
    static constexpr bool pure = true;
    int operator()(int a, int b) const {
        return static_cast<int>(static_cast<unsigned>(a >> 1) + 5 * static_cast<unsigned>(b));
    }
};

float half_way(float a, float b) { return a * 0.5f + b; }

}  // namespace

TEST_CASE("fold: floating-point types give the reference's bits", "[fold]") {
    check_all<float>(sum);
    check_all<double>(sum);
    check_all<float>(prod);
    check_all<float>(min);
    check_all<double>(max);
    check_all<long double>(prod);
}

TEST_CASE("fold: integers wrap", "[fold]") {
    check_all<std::int8_t>(prod);
    check_all<std::uint8_t>(max);
    check_all<std::int16_t>(prod);
    check_all<std::uint16_t>(prod);
    check_all<std::int32_t>(sum);
    check_all<std::int32_t>(prod);
    check_all<std::uint32_t>(bit_xor);
    check_all<std::int64_t>(prod);
    check_all<std::int64_t>(min);
    check_all<std::uint64_t>(bit_and);
    check_all<std::int8_t>(logical_and);
    check_all<std::uint32_t>(logical_or);
    check_all<bool>(logical_xor);
    check_all<bool>(bit_or);
    check_all<char>(std::bit_xor<>{});
}

TEST_CASE("fold: bfloat16 and half round once", "[fold]") {
    check_all<bfloat16>(sum);
    check_all<bfloat16>(min);
    check_all<bfloat16>(logical_xor);
    check_all<bfloat16>(prod);
    check_all<bfloat16>(std::plus<>{});
    check_all<half>(sum);
    check_all<half>(max);
    check_all<half>([](half a, half b) { return a + b; });  // rounds at each step: it takes half alone

    // 256 + 128 ones: in bfloat16, whose step there is 2, each single one would be lost.
    std::vector<bfloat16> values(129, bfloat16(1.0f));
    values[0] = bfloat16(256.0f);
    std::vector<operand> x;
    for (const bfloat16& v : values) x.push_back({&v});
    bfloat16 result{};
    op_table_for<bfloat16, sum_t>.fold(&result, x.data(), 129, 1, &sum);
    REQUIRE(float(result) == 384.0f);
}

/// What a rank makes of its contribution: in the accumulator, rounded to T; into other memory, and in place.
template <class T, class Op>
void check_leaf(const Op& op) {
    const auto leaf = op_table_for<T, Op>.leaf;
    REQUIRE(leaf != nullptr);
    for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 1000u})
        for (const bool in_place : {false, true}) {
            support::guarded in(count * sizeof(T), alignof(T)), out(count * sizeof(T), alignof(T));
            fill<T>(in.data(), count, 3);
            const std::vector<T> given(in.template as<T>().begin(), in.template as<T>().end());
            leaf(in_place ? in.data() : out.data(), in.data(), count, &op);
            CAPTURE(count, in_place);
            const std::byte* const got = (in_place ? in : out).data();
            for (std::size_t i = 0; i < count; ++i) {
                const T wanted = static_cast<T>(op.leaf(static_cast<accumulator_of<T, Op>>(given[i])));
                if (std::memcmp(got + i * sizeof(T), &wanted, sizeof(T)) != 0) FAIL("element " << i);
            }
            CHECK(in.broken() == "");
            CHECK(out.broken() == "");
        }
}

TEST_CASE("leaf: a rank's contribution, times its factor", "[fold]") {
    check_leaf<float>(premul_sum(0.3f));
    check_leaf<double>(premul_sum(3));
    check_leaf<std::int32_t>(premul_sum(-7));
    check_leaf<std::int32_t>(premul_sum(0.5));
    check_leaf<std::uint8_t>(premul_sum(3));
    check_leaf<bfloat16>(premul_sum(0.3));
    check_leaf<half>(premul_sum(bfloat16(1.5f)));
    check_leaf<std::complex<double>>(premul_sum(0.5));
    check_leaf<std::complex<float>>(premul_sum(std::complex<float>(0.5f, 2.0f)));
    REQUIRE(op_table_for<float, sum_t>.leaf == nullptr);
}

TEST_CASE("fold: users' element types and callables", "[fold]") {
    check_all<affine>(compose_affine{});
    check_all<std::complex<float>>(sum);
#if !defined(__FMA__)  // g++ may fuse operations inside the product, in one place and not in the other
    check_all<std::complex<double>>(prod);
#endif
    check_all<located>(minloc);
    check_all<located>(maxloc);
    check_all<three_bytes>([](const three_bytes& a, const three_bytes& b) {
        return three_bytes{
            {static_cast<unsigned char>(a.b[0] + b.b[1]), a.b[2], static_cast<unsigned char>(a.b[1] ^ b.b[0])}};
    });
    check_all<lines>([](const lines& l, const lines& b) {
        lines a = l;
        for (int i = 0; i < 16; ++i) a.x[i] = a.x[i] % 1000 * 3 + b.x[15 - i];
        return a;
    });
    check_all<float>([](float a, float b) { return a - b; });
    check_all<std::uint8_t>(halve_and_add{});
    check_all<short>([](int a, int b) { return static_cast<short>(a % 100 - b % 100); });
    check_all<float>(&half_way);
    check_all<unsigned>(commutative([](unsigned a, unsigned b) { return a * b + a + b; }));
}

TEST_CASE("fold: an element larger than a tile", "[fold]") {
    const auto add = [](page a, const page& b) {
        for (int i = 0; i < 600; ++i) a.words[i] = a.words[i] * 3 + b.words[599 - i];
        return a;
    };
    const erased_fold f = make_fold<page>(add);
    for (const variant& v : f.variants)
        for (const int k : {1, 2, 3, 7})
            for (const int alias : {-1, 0, k - 1}) check(f, v, k, 5, alias, 0);
    SUCCEED();
}

TEST_CASE("fold: thousands of operands", "[fold]") {
    const erased_fold in_integers = make_fold<std::uint32_t>(sum), in_half = make_fold<half>(sum);
    for (const variant& v : in_integers.variants) check(in_integers, v, 3000, 37, 1500, 0);
    for (const variant& v : in_half.variants) check(in_half, v, 3000, 37, 2999, 0);
    SUCCEED();
}

TEST_CASE("fold: a callable with a state is called once for each pair, in order", "[fold]") {
    int calls = 0;
    float last = -1;
    bool ordered = true;
    const auto op = [&](float a, float b) {
        ++calls;
        ordered = ordered && b >= last;
        last = b;
        return a + b;
    };
    std::vector<float> a(1000), b(1000), out(1000);
    for (std::size_t i = 0; i < 1000; ++i) b[i] = static_cast<float>(i);
    const operand x[] = {{a.data()}, {b.data()}};
    for (const variant& v : variants<float, std::remove_cvref_t<decltype(op)>>()) {
        calls = 0, last = -1;
        v.fold(out.data(), x, 2, 1000, &op);
        REQUIRE(calls == 1000);
        REQUIRE(ordered);
        REQUIRE(out == b);
    }
}

TEST_CASE("fold_twice: each pair is folded once and goes to both places, which may be operands", "[fold]") {
    check_all_twice<float>(sum);
    check_all_twice<double>(prod);
    check_all_twice<std::int32_t>(sum);
    check_all_twice<std::int8_t>(max);
    check_all_twice<std::uint16_t>(bit_xor);
    check_all_twice<int>(halve_and_add{});
}

TEST_CASE("op_table: finish divides for avg, and is null for operators without a last step", "[fold]") {
    REQUIRE(op_table_for<float, sum_t>.finish == nullptr);
    REQUIRE(op_table_for<float, premul_sum_t<float>>.finish == nullptr);
    std::vector<int> x;
    for (int i = -50; i < 50; ++i) x.push_back(i);
    op_table_for<int, avg_t>.finish(x.data(), x.size(), 7, &avg);
    for (int i = -50; i < 50; ++i) REQUIRE(x[static_cast<std::size_t>(i + 50)] == i / 7);
    for (std::size_t count = 0; count < 70; ++count) {
        support::guarded z(count * 4, 4), w(count * 4, 4);
        for (std::size_t i = 0; i < count; ++i) z.as<float>()[i] = w.as<float>()[i] = static_cast<float>(i) - 30.3f;
        op_table_for<float, avg_t>.finish(z.data(), count, 7, &avg);
        finish_loop<float, avg_t>(w.as<float>().data(), count, 7, avg);
        REQUIRE((z.broken().empty() && w.broken().empty()));
        for (std::size_t i = 0; i < count; ++i) {
            REQUIRE(z.as<float>()[i] == (static_cast<float>(i) - 30.3f) / 7.0f);
            REQUIRE(w.as<float>()[i] == z.as<float>()[i]);
        }
    }
    std::vector<bfloat16> y(33, bfloat16(10.0f));
    op_table_for<bfloat16, avg_t>.finish(y.data(), 32, 4, &avg);
    for (std::size_t i = 0; i < 33; ++i) REQUIRE(float(y[i]) == (i < 32 ? 2.5f : 10.0f));
}

TEST_CASE("op_table: fold is that which the other tests call", "[fold]") {
    REQUIRE(op_table_for<float, sum_t>.fold == &fold_entry<float, sum_t>);
    REQUIRE(op_table_for<bfloat16, sum_t>.fold == &fold_entry<bfloat16, sum_t>);
    REQUIRE(op_table_for<int, avg_t>.fold == &fold_entry<int, sum_t>);
    REQUIRE(op_table_for<int, premul_sum_t<int>>.fold == &fold_entry<int, sum_t>);
}

TEST_CASE("op_table: commutative is that of the operator", "[fold]") {
    STATIC_REQUIRE(op_table_for<float, sum_t>.commutative);
    STATIC_REQUIRE(op_table_for<float, std::plus<>>.commutative);
    STATIC_REQUIRE(!op_table_for<float, std::minus<>>.commutative);
    STATIC_REQUIRE(!op_table_for<affine, compose_affine>.commutative);
    STATIC_REQUIRE(op_table_for<affine, commutative_operator<compose_affine>>.commutative);
    STATIC_REQUIRE(
        op_table_for<three_bytes, commutative_operator<three_bytes (*)(three_bytes, three_bytes)>>.element_size == 3);
}

TEST_CASE("half rows: F16C and the portable code convert to the same bits", "[fold]") {
    std::vector<half> all(65536), back(65536);
    std::vector<float> a(65536), b(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = half::from_bits(static_cast<unsigned short>(i));
    widen_row(a.data(), all.data(), all.size());
    widen_row_portable(b.data(), all.data(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (b[i] != b[i])
            REQUIRE(a[i] != a[i]);
        else
            REQUIRE(same_bytes(&a[i], &b[i], sizeof(float)));
    }
    std::vector<float> values;
    for (std::uint64_t bits = 0; bits < 0x100000000u; bits += 4093) {
        const auto word = static_cast<std::uint32_t>(bits);
        float f;
        std::memcpy(&f, &word, 4);
        values.push_back(f);
    }
    for (std::uint32_t h = 0; h < 0x7c00; ++h) {  // the ties
        const float f = (b[h] + (h == 0x7bff ? 65536.0f : b[h + 1])) / 2;
        values.push_back(f), values.push_back(-f);
    }
    std::vector<half> p(values.size()), q(values.size());
    narrow_row(p.data(), values.data(), values.size());
    narrow_row_portable(q.data(), values.data(), values.size());
    REQUIRE(same_bytes(p.data(), q.data(), p.size() * sizeof(half)));
}

TEST_CASE("copy_bytes: copies what memcpy is slow for, at every alignment, and writes no other byte", "[copy]") {
    std::vector<unsigned char> source(9000);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 131 + (i >> 8));
    for (std::size_t behind = 0; behind < 66; ++behind)
        for (std::size_t from = 0; from < 64; from += 7)
            for (const std::size_t size : {2047u, 2048u, 2049u, 4096u, 5003u}) {
                // At the same place within its page as the source, or up to 65 bytes behind it.
                const auto place = reinterpret_cast<std::uintptr_t>(source.data() + from) + behind;
                std::vector<unsigned char> room(4096 + size + 2, 255);
                const auto skip = (place - reinterpret_cast<std::uintptr_t>(room.data() + 1)) % 4096;
                unsigned char* const to = room.data() + 1 + skip;
                CHECK(is_slow_for_memcpy(to, source.data() + from, size) ==
                      (size >= 2048 && behind >= 1 && behind <= 63));
                copy_bytes(to, source.data() + from, size);
                if (std::memcmp(to, source.data() + from, size) != 0 || to[-1] != 255 || to[size] != 255)
                    FAIL("behind " << behind << " from " << from << " size " << size);
            }
}

TEST_CASE("stream_bytes: copies every alignment and length, and writes no other byte", "[copy]") {
    std::vector<unsigned char> source(3000);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 131 + (i >> 8));
    for (std::size_t shift = 0; shift < 64; shift += 1)
        for (std::size_t from = 0; from < 64; from += 7)
            for (std::size_t size = 0; size < 2000; size += size < 200 ? 1 : 149) {
                support::guarded to(size, shift), plain(size, shift);
                stream_bytes(to.data(), source.data() + from, size);
                copy_bytes(plain.data(), source.data() + from, size);
                if (!to.broken().empty() || !plain.broken().empty() ||
                    (size != 0 && (std::memcmp(to.data(), source.data() + from, size) != 0 ||
                                      std::memcmp(plain.data(), source.data() + from, size) != 0)))
                    FAIL("shift " << shift << " from " << from << " size " << size);
            }
    stream_bytes(nullptr, nullptr, 0);
    copy_bytes(nullptr, nullptr, 0);
#if defined(__x86_64__) && defined(__GNUC__)
    alignas(64) char line[256];
    move_lines_sse2<true>(line, reinterpret_cast<const char*>(source.data()) + 3, 4);
    REQUIRE(std::memcmp(line, source.data() + 3, 256) == 0);
    move_lines_sse2<false>(line, reinterpret_cast<const char*>(source.data()) + 5, 4);
    REQUIRE(std::memcmp(line, source.data() + 5, 256) == 0);
#endif
}
