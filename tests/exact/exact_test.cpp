// colls::exact: against sums bit by bit (exact/reference.hpp), and one result whatever the order, the ranks that hold
// the addends, the schedule and the transport. exact/check_fractions.py checks sums that the last case here writes.
#include "catch.hpp"

#include "exact/numbers.hpp"
#include "support/every_transport.hpp"
#include "support/guarded.hpp"

#include <colls/colls.hpp>
#include <colls/exact.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace support;
using colls::bfloat16;
using colls::exact_sum;
using colls::half;

namespace {

template <class T>
exact_sum<T> one_by_one(std::span<const T> x) {
    exact_sum<T> sum;
    for (const T v : x) sum += v;
    return sum;
}

static_assert(sizeof(exact_sum<float>) == 56 && sizeof(exact_sum<double>) == 280);
static_assert(sizeof(exact_sum<bfloat16>) == 56 && sizeof(exact_sum<half>) == 24);
static_assert(std::is_trivially_copyable_v<exact_sum<double>> && std::is_standard_layout_v<exact_sum<double>>);
static_assert(std::has_unique_object_representations_v<exact_sum<float>>);
static_assert(colls::is_commutative<colls::exact_t, exact_sum<float>>);
static_assert(colls::operator_on<colls::exact_t, exact_sum<half>> && !colls::operator_on<colls::exact_t, float>);
static_assert((exact_sum<double>(1e300) + exact_sum<double>(1.0) - exact_sum<double>(1e300)).value() == 1.0);

// A number of 64 bits below the least one: more than half of it is that one, half of it is zero, being even.
constexpr std::uint64_t half_of_least = std::uint64_t{1} << 63;
constexpr int below_least = colls::detail::number_format<float>::lowest - 64;
static_assert(colls::detail::nearest<float>(false, half_of_least + 1, false, below_least) == 1);
static_assert(colls::detail::nearest<float>(false, half_of_least, true, below_least) == 1);
static_assert(colls::detail::nearest<float>(false, half_of_least, false, below_least) == 0);
static_assert(colls::detail::nearest<float>(false, ~std::uint64_t{0}, true, below_least - 1) == 0);

}  // namespace

TEMPLATE_TEST_CASE(
    "exact_sum: the sum bit by bit, rounded once, in any order", "[exact]", float, double, bfloat16, half) {
    using T = TestType;
    for (int k = 0; k < samples; ++k)
        for (std::uint64_t trial = 0; trial < (long_run ? 2000u : 60u); ++trial) {
            random_source random = stream(1, static_cast<std::uint64_t>(k), trial);
            std::vector<T> x = numbers<T>(static_cast<sample>(k), random.below(40), random);
            const exact_sum<T> sum = one_by_one<T>(x);
            INFO("sample " << k << ", trial " << trial);
            REQUIRE(raw(sum.value()) == expected<T>(summed<T>(x)));
            REQUIRE(raw(static_cast<T>(sum)) == raw(sum.value()));
            // Another order, in two parts and by subtraction: the same bytes.
            for (std::size_t i = x.size(); i > 1; --i) std::swap(x[i - 1], x[random.below(i)]);
            const std::size_t cut = random.below(x.size() + 1);
            const std::span<const T> all(x);
            const exact_sum<T> left = one_by_one(all.first(cut)), right = one_by_one(all.subspan(cut));
            exact_sum<T> taken, negated;
            for (const T v : x) taken -= -v;
            for (const T v : x) negated -= v;
            REQUIRE(same_bytes(left + right, sum));
            REQUIRE(same_bytes(colls::exact(right, left), sum));
            REQUIRE(same_bytes(taken, sum));
            REQUIRE(same_bytes(-negated, sum));
            REQUIRE(same_bytes(left - -right, sum));
        }
}

TEST_CASE("exact_sum: special values, cancellation, ties and overflow", "[exact]") {
    const float inf = std::numeric_limits<float>::infinity(), nan = -std::numeric_limits<float>::quiet_NaN();
    const float most = std::numeric_limits<float>::max();
    const auto sum = [](std::initializer_list<float> x) {
        exact_sum<float> s;
        for (const float v : x) s += v;
        return raw(s.value());
    };
    CHECK(sum({}) == 0);
    CHECK(sum({-0.0f, -0.0f}) == 0);
    CHECK(sum({nan, 1}) == 0x7fc00000);
    CHECK(sum({inf, 1, -inf}) == 0x7fc00000);
    CHECK(sum({-inf, most}) == raw(-inf));
    CHECK(sum({most, most, -most}) == raw(most));
    CHECK(sum({most, most}) == raw(inf));
    CHECK(sum({most, 0x1p102f}) == raw(most));
    CHECK(sum({most, 0x1p103f}) == raw(inf));  // half a unit: to even
    CHECK(sum({most, 0x1p103f, -0x1p-149f}) == raw(most));
    CHECK(sum({1, 0x1p-24f}) == raw(1.0f));
    CHECK(sum({1, 0x1p-24f, 0x1p-149f}) == raw(0x1.000002p0f));
    CHECK(sum({0x1p-149f, 0x1p-149f}) == 2);
    // Many of the greatest: beyond 64 bits above T's range only after 2^63 of them.
    exact_sum<half> halves;
    for (int i = 0; i < 100000; ++i) halves += half(65504.0f);
    CHECK(raw(halves.value()) == 0x7c00);
    for (int i = 0; i < 99999; ++i) halves -= half(65504.0f);
    CHECK(static_cast<float>(halves.value()) == 65504.0f);
    exact_sum<double> doubled(std::numeric_limits<double>::max());
    for (int i = 0; i < 62; ++i) doubled += doubled;
    exact_sum<double> back = doubled;
    back += 0x1p-1074;
    back -= doubled;
    CHECK(back.value() == 0x1p-1074);
    // Equal sums of what is not finite are equal bytes, too.
    CHECK(same_bytes(exact_sum<float>(inf) + exact_sum<float>(1.0f), exact_sum<float>(inf)));
    CHECK(same_bytes(-exact_sum<float>(inf), exact_sum<float>(-inf)));
}

TEMPLATE_TEST_CASE("exact_sum: an array is its numbers one by one", "[exact]", float, double, bfloat16, half) {
    using T = TestType;
    const auto check = [](sample k, std::size_t count, std::size_t shift, std::uint64_t seed) {
        random_source random = stream(2, static_cast<std::uint64_t>(k), seed);
        const std::vector<T> x = numbers<T>(k, count + shift, random);
        const std::span<const T> all = std::span(x).subspan(shift);
        exact_sum<T> sum(static_cast<T>(3.0f));
        sum.add(all);
        INFO("sample " << k << ", " << count << " numbers, shifted by " << shift);
        REQUIRE(same_bytes(sum, one_by_one(all) + exact_sum<T>(static_cast<T>(3.0f))));
    };
    for (int k = 0; k < samples; ++k) {
        for (std::size_t count = 0; count <= 70; ++count) check(static_cast<sample>(k), count, count % 5, count);
        for (const std::size_t count : {1000u, 2048u, 4099u, 10000u})
            check(static_cast<sample>(k), count, count % 3, count);
    }
    // Spreads between those that one cut takes and those that need many: the same random numbers over a few binades.
    using format = colls::detail::number_format<T>;
    for (int binades = 1; binades < format::special; binades += 1 + binades / 8) {
        random_source random = stream(3, static_cast<std::uint64_t>(binades));
        for (const int top : {format::special - 1, format::special / 2, binades}) {
            if (top < binades) continue;
            std::vector<T> x(2500);
            for (T& v : x) {
                const std::uint64_t field =
                    static_cast<std::uint64_t>(top) - random.below(static_cast<std::size_t>(binades));
                v = from_raw<T>((random.next() & ~(std::uint64_t{format::special} << (format::digits - 1))) |
                                field << (format::digits - 1));
            }
            exact_sum<T> sum;
            sum.add(x);
            INFO(binades << " binades up to field " << top);
            REQUIRE(same_bytes(sum, one_by_one<T>(x)));
        }
    }
    // Numbers of one sign whose significands begin with `ones` ones (or where not `leading` end with them), and smaller
    // ones among them, one a lane: sums and what cuts leave are as long as they get.
    constexpr std::size_t block = std::is_same_v<T, double> ? 1024 : 2048;
    constexpr int field = format::special / 2;
    for (int ones = 1; ones < format::digits; ones += ones < 40 ? 3 : 1)
        for (const bool leading : {true, false})
            for (int apart = 0; apart < std::min(field, 60); apart += apart < 17 ? 4 : 1) {
                const std::uint64_t low = (std::uint64_t{1} << ones) - 1;
                const std::uint64_t significand = leading ? low << (format::digits - 1 - ones) : low;
                std::vector<T> full(block, from_raw<T>(std::uint64_t{field} << (format::digits - 1) | significand));
                exact_sum<T> want;
                for (std::size_t i = 0; i < 16; ++i) {
                    full[i] = from_raw<T>(static_cast<std::uint64_t>(field - apart) << (format::digits - 1) | 1);
                    want += full[i];
                }
                // The others are alike: 2^10 - 2^4, or 2^11 - 2^4, of them.
                exact_sum<T> power(full[16]), taken;
                for (std::size_t k = 1; k < 16; k *= 2) power += power;
                taken -= power;
                for (std::size_t k = 16; k < block; k *= 2) power += power;
                exact_sum<T> sum;
                sum.add(full);
                INFO(ones << " ones, smaller by " << apart << " binades");
                REQUIRE(same_bytes(sum, want + power + taken));
            }
}

TEST_CASE("exact_sum: products of floats are exact", "[exact]") {
    random_source random(4);
    for (const sample k : {finite_bits, alike, subnormal, specials}) {
        const auto a = numbers<float>(k, 3000, random), b = numbers<float>(k, 3000, random);
        reference::bit_sum want;
        exact_sum<double> singly, together;
        for (std::size_t i = 0; i < a.size(); ++i) {
            want.add(static_cast<double>(a[i]) * static_cast<double>(b[i]));
            singly.add_product(a[i], b[i]);
        }
        together.add_products(a, b);
        CHECK(raw(singly.value()) == expected<double>(want));
        CHECK(same_bytes(singly, together));
    }
    // One product, which no other hides.
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const float a : {inf, -inf, nan, 2.0f, -2.0f, 0.0f})
        for (const float b : {inf, -inf, nan, 3.0f, -3.0f, -0.0f}) {
            exact_sum<double> sum;
            sum.add_product(a, b);
            INFO(a << " times " << b);
            CHECK(same_bytes(sum, exact_sum<double>(static_cast<double>(a) * static_cast<double>(b))));
        }
}

namespace {

/// The error that is documented, before the last rounding.
template <class T>
long double bound(const std::vector<T>& addends) {
    long double greatest = 0, count = 0;
    for (const T v : addends) {
        greatest = std::max(greatest, std::abs(static_cast<long double>(real(v))));
        count += real(v) != 0 ? 1 : 0;
    }
    if (greatest == 0 || std::is_same_v<T, half>) return 0;
    return count * std::ldexp(1.0L, std::ilogb(greatest) + 1 - (sizeof(T) == 8 ? 87 : 44));
}

/// The same multiset of addends of each element for any number of ranks: each addend lies with a random rank, but no
/// two with one; the others have zeros of either sign.
template <class T>
struct columns {
    std::vector<std::vector<T>> addends;  // of each element, `held` of them
    columns(std::size_t count, std::size_t held, std::uint64_t seed) {
        random_source random = stream(5, seed, held);
        for (std::size_t i = 0; i < count; ++i)
            addends.push_back(
                numbers<T>(i % 70 == 69 ? specials : static_cast<sample>(i / 65 % specials), held, random));
        // The first element's addends differ by far; a long run of similar ones takes the loops.
        for (std::size_t i = 0; i < count; ++i)
            if (i % 256 < 128) addends[i] = numbers<T>(i % 2 != 0 ? alike : finite_bits, held, random);
        for (std::size_t i = 0; i < count; ++i)
            if (i % 512 < 64) addends[i] = numbers<T>(alike, held, random);
    }
    std::vector<T> of_rank(int rank, int n, std::uint64_t seed) const {
        std::vector<T> mine(addends.size());
        for (std::size_t i = 0; i < addends.size(); ++i) {
            random_source random = stream(6, seed, i);
            std::vector<int> order(static_cast<std::size_t>(n));
            for (int r = 0; r < n; ++r) order[static_cast<std::size_t>(r)] = r;
            for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.below(k)]);
            const auto at = static_cast<std::size_t>(std::ranges::find(order, rank) - order.begin());
            mine[i] = at < addends[i].size() ? addends[i][at] : from_raw<T>((random.next() & 1) << (8 * sizeof(T) - 1));
        }
        return mine;
    }
};

template <class T>
bool equal(std::span<const T> got, std::span<const bits_of<T>> want) {
    return got.size() == want.size() && std::memcmp(got.data(), want.data(), got.size_bytes()) == 0;
}

/// Every call and some schedules give `want`.
template <class T>
void check_calls(colls::communicator& comm, const std::vector<T>& mine, std::span<const bits_of<T>> want, bool all) {
    const std::size_t size = mine.size() * sizeof(T);
    const int n = comm.size();
    guarded in(size, sizeof(T)), out(size, 3 * sizeof(T));
    std::memcpy(in.data(), mine.data(), size);
    const auto done = [&](guarded& where, const char* what) {
        expect(equal<T>(where.template as<T>(), want), what);
        expect(in.broken().empty() && out.broken().empty(), "guards");
        std::memcpy(in.data(), mine.data(), size);
        std::memset(out.data(), 0xee, size);
    };
    colls::all_reduce(comm, in.as<T>(), out.as<T>(), colls::exact);
    expect(std::memcmp(in.data(), mine.data(), size) == 0, "the input stays");
    done(out, "all_reduce");
    colls::all_reduce(comm, in.as<T>(), colls::exact);
    done(in, "all_reduce in place");
    const auto by = [&]<class S>(const S& schedule, const char* name) {
        if (!colls::supports(colls::schedule_of<colls::collective::all_reduce>(schedule), n)) return;
        colls::all_reduce<S>(comm, in.as<T>(), out.as<T>(), colls::exact);
        done(out, name);
        if (!all) return;
        colls::all_reduce(comm, in.as<T>(), colls::exact, schedule);
        done(in, name);
    };
    by(colls::ring{}, "ring");
    by(colls::halving_doubling{}, "halving_doubling");
    if (all) {
        by(colls::direct{}, "direct");
        by(colls::tree<2>{}, "tree");
        by(colls::circulant<>{}, "circulant");
        by(colls::recursive_doubling{}, "recursive_doubling");
        colls::all_reduce<colls::reproducible>(comm, in.as<T>(), colls::exact);
        done(in, "reproducible");
    }
    colls::exact_all_reduce<T> prepared(comm, mine.size());
    for (int twice = 0; twice < 2; ++twice) {
        prepared(in.as<T>(), out.as<T>());
        done(out, "prepared");
    }
    {
        const std::span<T> from = in.as<T>(), to = out.as<T>();
        colls::plan plan = colls::prepare::all_reduce(comm, from, to, colls::exact);
        for (int twice = 0; twice < 2; ++twice) {
            plan.run();
            done(out, "a plan");
        }
        colls::start::all_reduce(comm, from, colls::exact).wait();
        done(in, "started in place");
        colls::start::all_reduce<colls::direct>(comm, from, to, colls::exact).wait();
        done(out, "started, direct");
        colls::start::reduce(comm, from, to, colls::exact, n - 1).wait();
        if (comm.rank() == n - 1) done(out, "a started reduce");
    }
    colls::reduce(comm, in.as<T>(), out.as<T>(), colls::exact, n - 1);
    if (comm.rank() == n - 1) done(out, "reduce");
    const colls::buffer_block own = colls::block_of(mine.size(), n, comm.rank());
    guarded block(own.size * sizeof(T), sizeof(T));
    std::memcpy(in.data(), mine.data(), size);
    const auto scattered = [&](const char* what) {
        expect(equal<T>(block.as<T>(), want.subspan(own.offset, own.size)) && block.broken().empty(), what);
        std::memset(block.data(), 0xee, own.size * sizeof(T));
    };
    colls::reduce_scatter(comm, in.as<T>(), block.as<T>(), colls::exact);
    scattered("reduce_scatter");
    const std::span<T> to_scatter = in.as<T>(), own_block = block.as<T>();
    colls::start::reduce_scatter(comm, to_scatter, own_block, colls::exact).wait();
    scattered("a started reduce_scatter");
    // Blocks of 1, 2, 3 ... elements, and for the last rank the rest, which may be none.
    std::vector<std::size_t> counts;
    std::size_t before = 0, left = mine.size();
    for (int r = 0; r < n; ++r) {
        counts.push_back(r + 1 == n ? left : std::min(left, static_cast<std::size_t>(r) + 1));
        left -= counts.back();
        before += r < comm.rank() ? counts.back() : 0;
    }
    const std::size_t length = counts[static_cast<std::size_t>(comm.rank())];
    guarded piece(length * sizeof(T), sizeof(T));
    colls::reduce_scatter_v(comm, in.as<T>(), piece.as<T>(), counts, colls::exact);
    expect(equal<T>(piece.as<T>(), want.subspan(before, length)) && piece.broken().empty(), "reduce_scatter_v");
}

template <class T>
std::vector<bits_of<T>> results(const columns<T>& of) {
    std::vector<bits_of<T>> want;
    for (const auto& addends : of.addends) want.push_back(by_formula(addends));
    return want;
}

}  // namespace

TEMPLATE_TEST_CASE("exact calls on numbers: one result for any ranks, partition and schedule", "[exact]", float, double,
    bfloat16, half) {
    using T = TestType;
    for (const std::size_t held : {1u, 2u, 5u, 40u}) {
        const columns<T> data(held == 40 ? 200 : 1300, held, 1);
        const std::vector<bits_of<T>> want = results(data);
        for (std::size_t i = 0; i < want.size(); ++i) {  // within the bound that exact.hpp states
            const auto& addends = data.addends[i];
            const reference::bit_sum sum = summed<T>(addends);
            const double got = real(from_raw<T>(want[i])), right = sum.rounded<T>();
            if (!std::isfinite(got) || !std::isfinite(right)) continue;
            const long double least = std::ldexp(1.0L, reference::traits<T>::least);
            const long double last_place =
                got == 0 ? 0 : std::max(least, std::ldexp(1.0L, std::ilogb(got) - reference::traits<T>::digits + 1));
            REQUIRE(std::abs(static_cast<long double>(got) - sum.approximately()) <=
                    bound(addends) + last_place / 2 * 1.001L);
        }
        for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64}) {
            if (static_cast<std::size_t>(n) < held || n > most_ranks || (n > 9 && held < 5)) continue;
            INFO(held << " addends, " << n << " ranks");
            REQUIRE_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
                const auto mine = data.of_rank(comm.rank(), n, static_cast<std::uint64_t>(n));
                check_calls<T>(comm, mine, want, n <= 9);
                const std::vector<T> few(mine.begin(), mine.begin() + 3);
                check_calls<T>(comm, few, std::span(want).first(3), n <= 9);
            }));
        }
    }
}

namespace {

/// The bits of the processor's mode that matter to sums, of this thread.
unsigned mode_of_sums() {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & 0xe040u;
#else
    return static_cast<unsigned>(std::fegetround());
#endif
}
void set_mode(int rounding, bool flushes) {
    std::fesetround(rounding);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~0x8040u) | (flushes ? 0x8040u : 0));
#else
    static_cast<void>(flushes);
#endif
}
/// Throws where a sum differs, or the mode is another one afterwards.
template <class T>
void check_in_mode(
    colls::communicator& comm, const columns<T>& data, std::span<const bits_of<T>> want, int rounding, bool flushes) {
    auto x = data.of_rank(comm.rank(), 3, 3), y = x;
    exact_sum<T> sum, singly;
    for (const T v : x) singly += v;
    set_mode(rounding, flushes);
    const unsigned mode = mode_of_sums();
    sum.add(x);
    colls::all_reduce(comm, x, colls::exact);
    colls::all_reduce<colls::ring>(comm, y, colls::exact);
    const bool kept = mode_of_sums() == mode;
    set_mode(FE_TONEAREST, false);
    expect(equal<T>(x, want), "addends at hand");
    expect(equal<T>(y, want), "integers");
    expect(same_bytes(sum, singly), "an array");
    expect(kept, "the mode");
}

}  // namespace

TEMPLATE_TEST_CASE("exact calls: the rounding mode of a rank, and flushing, change no bit and stay", "[exact]", float,
    double, bfloat16, half) {
    using T = TestType;
    const columns<T> data(1300, 3, 2);
    const std::vector<bits_of<T>> want = results(data);
    for (const int rounding : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO})
        for (const bool flushes : {false, true}) {
            INFO("rounding " << rounding << (flushes ? ", flushing" : ""));
            CHECK_NOTHROW(colls::threads::run(
                3, [&](colls::communicator& comm) { check_in_mode<T>(comm, data, want, rounding, flushes); }));
        }
}

TEST_CASE("exact calls: more ranks than doubles hold, long buffers, no elements", "[exact]") {
    // 300 addends are summed without the loops in double. The integers are what ranks would send.
    const std::vector<double> same(300, 0x1.fffffffffffffp10);
    std::int64_t first = 0, second = 0, one = 0, two = 0;
    const auto level = colls::detail::own_level<double>(raw(same[0]));
    for (const double x : same) {
        colls::detail::to_lanes<double>(raw(x), level, one, two);
        first += one;
        second += two;
    }
    CHECK(colls::detail::from_lanes<double>(level, first, second) == by_formula(same));
    colls::threads::run(3, [](colls::communicator& comm) {
        std::vector<float> x((std::size_t{1} << 18) + 77);
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<float>(i % 1000) * (comm.rank() == 1 ? -1.0f : 0x1p-3f);
        const std::vector<float> own(x);
        colls::all_reduce<colls::ring>(comm, own, x, colls::exact);  // by integers, in two chunks
        for (std::size_t i = 0; i < x.size(); ++i)
            expect(x[i] == static_cast<float>(i % 1000) * -0.75f, "an element of a long buffer, by a schedule");
        x = own;
        colls::all_reduce(comm, x, colls::exact);
        for (std::size_t i = 0; i < x.size(); ++i)
            expect(x[i] == static_cast<float>(i % 1000) * -0.75f, "an element of a long buffer");
        std::vector<double> none;
        colls::all_reduce(comm, none, colls::exact);
        colls::reduce_scatter(comm, none, none, colls::exact);
        std::vector<float> in(3), out(2);
        expect(refusal_of([&] { colls::all_reduce(comm, in, out, colls::exact); }) != "none", "lengths that differ");
        expect(refusal_of([&] { colls::reduce(comm, in, in, colls::exact, 3); }) != "none", "a root out of range");
        expect(refusal_of([&] { colls::reduce_scatter(comm, in, out, colls::exact); }) != "none", "a block");
        const std::vector<std::size_t> counts{2, 2, 2}, few{1, 2};
        expect(refusal_of([&] { colls::reduce_scatter_v(comm, in, out, counts, colls::exact); }) != "none", "counts");
        expect(refusal_of([&] { colls::reduce_scatter_v(comm, in, out, few, colls::exact); }) != "none", "two counts");
        const std::size_t half_of_all = std::size_t{1} << 63;
        const std::vector<std::size_t> wrapping{half_of_all, half_of_all + 1, 2};  // together 3
        const std::string sum = refusal_of([&] { colls::reduce_scatter_v(comm, in, out, wrapping, colls::exact); });
        expect(sum.find("the counts add up to more than 2^63 elements") != std::string::npos, sum);
    });
}

TEST_CASE("exact calls: what a rank passes wrongly is refused before it is read, and the others are told", "[exact]") {
    // With a schedule, by several calls; without, at once.
    const auto each = [](auto call) {
        for (const bool named : {false, true}) {
            std::atomic<int> refused{0}, told{0}, over{0};
            colls::threads::run(3, [&](colls::communicator& comm) {
                comm.set_timeout(std::chrono::seconds(60));
                try {
                    call(comm, named, comm.rank() == 1);
                    colls::barrier(comm);
                } catch (const colls::error& e) {
                    refused += comm.rank() == 1 && e.code() == colls::errc::invalid_argument;
                    told += comm.rank() != 1 && e.code() == colls::errc::peer_failed && e.peer() == 1 &&
                            std::string(e.what()).find("refused") != std::string::npos;
                }
                ++over;
                while (over < 3) std::this_thread::yield();  // rank 1 does not leave before
            });
            CHECK(refused == 1);
            CHECK(told == 2);
        }
    };
    const auto floats = [](std::size_t count, float* from) { return std::span<float>(from, count); };
    const std::vector<std::size_t> right_counts{1, 2, 3}, wrong_counts{1, 2, 2};
    each([&](colls::communicator& comm, bool named, bool wrong) {
        std::vector<float> in(6), out(6);
        const auto from = floats(wrong ? 5 : 6, in.data());
        named ? colls::all_reduce<colls::ring>(comm, from, out, colls::exact)
              : colls::all_reduce(comm, from, out, colls::exact);
    });
    each([&](colls::communicator& comm, bool named, bool wrong) {
        std::vector<float> in(6), out(6);
        const auto from = floats(6, wrong ? nullptr : in.data());
        named ? colls::all_reduce<colls::ring>(comm, from, out, colls::exact)
              : colls::all_reduce(comm, from, out, colls::exact);
    });
    each([&](colls::communicator& comm, bool named, bool wrong) {
        std::vector<float> all(12);
        const auto to = floats(6, all.data() + (wrong ? 1 : 6));
        named ? colls::all_reduce<colls::ring>(comm, floats(6, all.data()), to, colls::exact)
              : colls::all_reduce(comm, floats(6, all.data()), to, colls::exact);
    });
    each([&](colls::communicator& comm, bool named, bool wrong) {
        std::vector<float> in(6), out(6);
        named ? colls::reduce<colls::ring>(comm, in, out, colls::exact, wrong ? 3 : 0)
              : colls::reduce(comm, in, out, colls::exact, wrong ? 3 : 0);
    });
    each([&](colls::communicator& comm, bool named, bool wrong) {
        std::vector<float> in(6), out(wrong ? 1 : 2);
        named ? colls::reduce_scatter<colls::ring>(comm, in, out, colls::exact)
              : colls::reduce_scatter(comm, in, out, colls::exact);
    });
    each([&](colls::communicator& comm, bool named, bool wrong) {
        const std::vector<std::size_t>& counts = wrong ? wrong_counts : right_counts;
        std::vector<float> in(6), out(right_counts[static_cast<std::size_t>(comm.rank())]);
        named ? colls::reduce_scatter_v<colls::ring>(comm, in, out, counts, colls::exact)
              : colls::reduce_scatter_v(comm, in, out, counts, colls::exact);
    });
    each([&](colls::communicator& comm, bool named, bool wrong) {
        std::vector<float> in(6), out(6);
        const auto to = floats(wrong ? 5 : 6, out.data());
        if (named)
            colls::exact_all_reduce<float, colls::ring>(comm, 6)(in, to);
        else
            colls::exact_all_reduce<float>(comm, 6)(in, to);
    });
}

namespace {

/// The beginnings of rows, as a fold's operands.
template <class T>
std::vector<colls::detail::operand> rows_of(const std::vector<T>& x, std::size_t stride) {
    std::vector<colls::detail::operand> rows;
    for (std::size_t at = 0; at + stride <= x.size(); at += stride) rows.push_back({x.data() + at});
    return rows;
}

}  // namespace

TEMPLATE_TEST_CASE(
    "exact calls: sums of addends at hand are those of the integers", "[exact]", float, double, bfloat16, half) {
    using T = TestType;
    random_source random(11);
    for (const int ranks : {1, 2, 3, 5, 32, 33})
        for (int k = any_bits; k < samples; ++k)
            for (const std::size_t count : std::initializer_list<std::size_t>{0, 4, 5, 63, 64, 68, 200}) {
                const std::size_t stride = count + 3;
                const auto kind = static_cast<sample>(k);
                const std::vector<T> x = numbers<T>(kind, stride * static_cast<std::size_t>(ranks), random);
                std::vector<T> made(count), wanted(count);
                std::vector<colls::detail::level_of<T>> levels(count), own(count);
                std::vector<std::int64_t> sums(2 * count), lanes(2 * count);
                const auto of = [&](int r) { return x.data() + static_cast<std::size_t>(r) * stride; };
                for (int r = 0; r < ranks; ++r) {
                    colls::detail::find_levels(of(r), count, own.data());
                    for (std::size_t i = 0; i < count; ++i) levels[i] = std::max(levels[i], own[i]);
                }
                for (int r = 0; r < ranks; ++r) {
                    colls::detail::fill_lanes(of(r), count, levels.data(), lanes.data(), lanes.data() + count);
                    for (std::size_t i = 0; i < 2 * count; ++i) sums[i] += lanes[i];
                }
                colls::detail::round_lanes(
                    levels.data(), sums.data(), sums.data() + count, count, ranks, wanted.data());
                colls::detail::sum_addends<T>(made.data(), rows_of(x, stride).data(), ranks, count, nullptr);
                std::size_t bad = 0;
                for (std::size_t i = 0; i < count; ++i) bad += raw(made[i]) != raw(wanted[i]);
                INFO(ranks << " ranks, kind " << k << ", " << count << " elements");
                CHECK(bad == 0);
            }
}

TEMPLATE_TEST_CASE(
    "exact calls: as many ranks as the loops in double take, and more", "[exact]", float, double, bfloat16, half) {
    using T = TestType;
    using format = colls::detail::lane_format<T>;
    // The greatest significand: the sum of the integers comes to the end of what the loops take, and beyond.
    const T x = from_raw<T>((std::uint64_t{format::special / 2 + 1} << (format::digits - 1)) + format::fraction);
    const std::vector<T> addends(2 * colls::detail::lane_tile + 1, x);
    const std::size_t count = addends.size();
    std::vector<colls::detail::level_of<T>> levels(count);
    std::vector<std::int64_t> lanes(2 * count);
    colls::detail::find_levels(addends.data(), count, levels.data());
    colls::detail::fill_lanes(addends.data(), count, levels.data(), lanes.data(), lanes.data() + count);
    constexpr int few = format::few_ranks;
    for (const int ranks : {1, few / 2, few - 1, few, few + 1, 3 * few / 2, 4 * few - 1, 9 * few}) {
        std::vector<std::int64_t> sums = lanes;
        for (std::int64_t& s : sums) s *= ranks;
        std::vector<T> made(count);
        colls::detail::round_lanes(levels.data(), sums.data(), sums.data() + count, count, ranks, made.data());
        exact_sum<T> wanted;
        for (int r = 0; r < ranks; ++r) wanted += x;
        INFO(ranks << " ranks");
        CHECK(std::count_if(made.begin(), made.end(), [&](T v) { return raw(v) != raw(wanted.value()); }) == 0);
    }
}

TEMPLATE_TEST_CASE("exact calls: small floats are rounded once, not by way of float", "[exact]", bfloat16, half) {
    using T = TestType;
    // A little above the middle between 1 and the next number: in float it would be the middle, which goes to even.
    const double addends[] = {
        1, std::is_same_v<T, half> ? 0x1p-11 : 0x1p-8, std::is_same_v<T, half> ? 0x1p-24 : 0x1p-30};
    colls::threads::run(3, [&](colls::communicator& comm) {
        std::vector<T> x(3000, static_cast<T>(addends[comm.rank()]));
        colls::all_reduce(comm, x, colls::exact);
        for (const T v : x) expect(real(v) > 1, "rounded up");
    });
}

// Whether doubles hold a sum, or integers make it, is decided by how far its addends are from each other.
TEMPLATE_TEST_CASE("exact: sums of addends near each other and far, as the integers make them", "[exact]", float,
    double, bfloat16, half) {
    using T = TestType;
    constexpr std::size_t elements = 1024, tile = colls::detail::lane_tile;
    constexpr int digits = std::is_same_v<T, double>  ? 53
                           : std::is_same_v<T, float> ? 24
                           : std::is_same_v<T, half>  ? 11
                                                      : 8;
    constexpr std::size_t lowest = sizeof(T) == 8 ? 100 : 60;  // fields where subnormals may count lie below
    constexpr int highest = std::is_same_v<T, half> ? 15 : std::is_same_v<T, double> ? 1023 : 127;
    random_source random(9);
    std::size_t different = 0;
    for (const int ranks : {1, 2, 3, 7, 32})
        for (int turn = 0; turn < 200; ++turn) {
            // All elements of a tile have the same range of exponents, so that most tiles are whole on one side.
            const int binades = static_cast<int>(random.below(std::is_same_v<T, half> ? 16 : 2 * digits + 8));
            const int top = turn % 8 == 0   ? highest
                            : turn % 8 == 1 ? binades + digits - highest
                            : turn % 8 == 2 ? highest - static_cast<int>(random.below(8))
                            : turn % 8 == 3 ? binades + static_cast<int>(random.below(lowest)) - highest
                                            : static_cast<int>(random.below(12));
            std::vector<T> x(elements * static_cast<std::size_t>(ranks)), made(elements), wanted(elements);
            for (std::size_t i = 0; i < x.size(); ++i) {
                // Few bits, or all: ties, and what is just beside them.
                const int bits = static_cast<int>(random.below(5));
                double v = bits == 0   ? 1
                           : bits == 1 ? 1.5
                           : bits == 2 ? 2 - std::ldexp(1, 1 - digits)
                           : bits == 3
                               ? 1 + std::ldexp(1, -1 - static_cast<int>(random.below(std::size_t{digits} - 1))) +
                                     std::ldexp(1, 1 - digits)
                               : 1 + std::floor(std::ldexp(random.unit(), digits - 1)) * std::ldexp(1, 1 - digits);
                const int down =
                    random.one_in(2) ? binades : static_cast<int>(random.below(static_cast<std::size_t>(binades) + 1));
                v = std::ldexp(v, top - (i < elements ? 0 : down));
                x[i] =
                    random.one_in(16) ? T(random.one_in(2) ? -0.0f : 0.0f) : static_cast<T>(random.one_in(2) ? -v : v);
            }
            const std::vector<colls::detail::operand> rows = rows_of(x, elements);
            colls::detail::sum_one_by_one(rows.data(), ranks, 0, elements, wanted.data());
            colls::detail::sum_addends<T>(made.data(), rows.data(), ranks, elements, nullptr);
            different += std::memcmp(made.data(), wanted.data(), elements * sizeof(T)) != 0;
        }
    // Whole tiles at the border: what is just beside a tie, of two addends and of three.
    for (int down = 0; down < (std::is_same_v<T, half> ? 14 : 2 * digits + 8); ++down)
        for (int tie = 1; tie < digits - 1; ++tie)
            for (const int ranks : {2, 3}) {
                const double addends[] = {
                    1, std::ldexp(1 + std::ldexp(1, -tie) + std::ldexp(1, 1 - digits), -down), std::ldexp(1, -digits)};
                std::vector<T> x, made(tile), wanted(tile);
                for (int r = 0; r < ranks; ++r) x.insert(x.end(), tile, static_cast<T>(addends[r]));
                const std::vector<colls::detail::operand> rows = rows_of(x, tile);
                colls::detail::sum_one_by_one(rows.data(), ranks, 0, tile, wanted.data());
                colls::detail::sum_addends<T>(made.data(), rows.data(), ranks, tile, nullptr);
                different += std::memcmp(made.data(), wanted.data(), tile * sizeof(T)) != 0;
            }
    CHECK(different == 0);
}

TEST_CASE("exact: one result on every transport", "[exact]") {
    const columns<float> data(1300, 3, 2);
    const auto want = results(data);
    const columns<double> doubles(600, 3, 3);
    const auto wanted = results(doubles);
    on_every_transport(5, [&](colls::communicator& comm) {
        check_calls<float>(comm, data.of_rank(comm.rank(), 5, 1), want, false);
        check_calls<double>(comm, doubles.of_rank(comm.rank(), 5, 1), wanted, false);
    });
}

TEMPLATE_TEST_CASE("exact_sum: an element of every schedule's calls", "[exact]", float, double) {
    using T = TestType;
    for (const int n : {1, 2, 3, 5, 8, 9}) {
        std::vector<T> all;
        random_source random = stream(7, 0);
        for (int i = 0; i < 5; ++i) {
            const auto more = numbers<T>(finite_bits, 999, random);
            all.insert(all.end(), more.begin(), more.end());
        }
        exact_sum<T> whole;
        whole.add(all);
        REQUIRE_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
            // Three cuts of the same numbers.
            std::array<exact_sum<T>, 3> mine;
            for (std::size_t c = 0; c < 3; ++c)
                for (std::size_t i = 0; i < all.size(); ++i)
                    if (static_cast<int>(stream(8, c, i).below(static_cast<std::size_t>(n))) == comm.rank())
                        mine[c] += all[i];
            const auto by = [&]<class S>(const S& schedule) {
                if (!colls::supports(colls::schedule_of<colls::collective::all_reduce>(schedule), n)) return;
                auto sums = mine;
                colls::all_reduce<S>(comm, sums, colls::exact);
                for (const auto& sum : sums) expect(same_bytes(sum, whole), "the bytes of a sum");
            };
            by(colls::ring{});
            by(colls::halving_doubling{});
            by(colls::direct{});
            by(colls::tree<2>{});
            by(colls::circulant<>{});
            by(colls::recursive_doubling{});
            by(colls::double_tree{});
            auto sums = mine;
            colls::all_reduce(comm, sums, colls::exact);
            expect(same_bytes(sums[0], whole), "without a schedule");
            sums = mine;
            colls::all_reduce(comm, sums, colls::sum);
            expect(same_bytes(sums[2], whole), "by colls::sum");
        }));
    }
}

namespace {

template <class T>
void write_cases(std::FILE* file, const char* name) {
    for (int k = 0; k < samples; ++k)
        for (std::uint64_t trial = 0; trial < 30; ++trial) {
            random_source random = stream(9, static_cast<std::uint64_t>(k), trial);
            const auto x = numbers<T>(static_cast<sample>(k), 1 + random.below(60), random);
            exact_sum<T> sum;
            sum.add(x);
            std::fprintf(file, "%s %llx", name, static_cast<unsigned long long>(raw(sum.value())));
            for (const T v : x) std::fprintf(file, " %llx", static_cast<unsigned long long>(raw(v)));
            std::fprintf(file, "\n");
        }
}

}  // namespace

TEST_CASE("exact_sum: cases for exact/check_fractions.py", "[.][write]") {
    const char* path = std::getenv("COLLS_TEST_EXACT_CASES");
    REQUIRE(path != nullptr);
    std::FILE* const file = std::fopen(path, "w");
    REQUIRE(file != nullptr);
    write_cases<float>(file, "float");
    write_cases<double>(file, "double");
    write_cases<bfloat16>(file, "bfloat16");
    write_cases<half>(file, "half");
    CHECK(std::fclose(file) == 0);
}
