// Calls whose types are known at run time: every type with every operator, vector functions, schedules by name, all
// collectives in their three forms, and ranks of which some make the typed call.
#include "catch.hpp"

#include "support/dynamic_forms.hpp"
#include "support/every_transport.hpp"
#include "support/guarded.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/dynamic.hpp>
#include <colls/dynamic/detail/function_fold.hpp>

#include <complex>
#include <cstring>
#include <vector>

using namespace support;
namespace dynamic = colls::dynamic;
using dynamic::op;
using dynamic::reduction;
using dynamic::type;

namespace {

/// As expect, for checks of each element, whose text is made only where it is needed.
template <class Text>
void expect_else(bool right, Text text) {
    if (!right) expect(false, text());
}

std::uint64_t hash(int rank, std::size_t i) {
    std::uint64_t x = (static_cast<std::uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebull;
    return x ^ (x >> 32);
}

// The types, by what kind of number they are.

template <class T>
inline constexpr bool is_small = std::is_same_v<T, colls::half> || std::is_same_v<T, colls::bfloat16>;
template <class T>
inline constexpr bool is_real = std::is_floating_point_v<T> || is_small<T>;
template <class T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
inline constexpr bool is_complex = requires(T x) { x.imag(); };
template <class T>
inline constexpr bool is_pair = requires(T x) { x.index; };

/// The operators that make sense, as the header lists them.
template <class T>
bool fits(op code) {
    switch (code) {
        case op::sum:
        case op::prod:
            return !is_pair<T> && !std::is_same_v<T, std::byte>;
        case op::avg:
        case op::premul_sum:
            return is_integer<T> || is_real<T> || is_complex<T>;
        case op::min:
        case op::max:
            return is_integer<T> || is_real<T> || std::is_same_v<T, bool>;
        case op::logical_and:
        case op::logical_or:
        case op::logical_xor:
            return std::is_integral_v<T>;
        case op::bit_and:
        case op::bit_or:
        case op::bit_xor:
            return std::is_integral_v<T> || std::is_same_v<T, std::byte>;
        case op::minloc:
        case op::maxloc:
            return is_pair<T>;
        case op::exact:  // dynamic_exact_test
        case op::function:
            return false;
    }
    return false;
}
constexpr op all_operators[] = {op::sum, op::prod, op::min, op::max, op::avg, op::premul_sum, op::logical_and,
    op::logical_or, op::logical_xor, op::bit_and, op::bit_or, op::bit_xor, op::minloc, op::maxloc, op::function};

/// The contribution of a rank. Results of real and complex numbers are exact, whatever the order.
template <class T>
T value(op code, int rank, std::size_t i) {
    const std::uint64_t h = hash(rank, i);
    const int little = static_cast<int>(h % 17) - 8;
    if constexpr (is_pair<T>) {
        // Ties within values, and within indices.
        return {static_cast<decltype(T::value)>(static_cast<int>(h % 3)), static_cast<int>((h >> 8) % 4)};
    } else if constexpr (std::is_same_v<T, bool>) {
        return h % 4 != 0;
    } else if constexpr (std::is_same_v<T, std::byte>) {
        return static_cast<std::byte>(h);
    } else if constexpr (is_complex<T>) {
        using R = typename T::value_type;
        if (code == op::prod) return T(static_cast<R>(h % 2), static_cast<R>(h / 2 % 3));
        return T(static_cast<R>(little), static_cast<R>(static_cast<int>(h / 32 % 9) - 4));
    } else if constexpr (is_real<T>) {
        if (code == op::prod) return T(h % 3 == 0 ? -2.0f : h % 3 == 1 ? 0.5f : 4.0f);
        return T(static_cast<float>(little));
    } else {
        if (code == op::logical_and || code == op::logical_or || code == op::logical_xor)
            return static_cast<T>(h % 3 == 0 ? 0 : h % 3 == 1 ? 2 : 4);
        if (code == op::premul_sum) return static_cast<T>(std::is_signed_v<T> ? little : little + 8);
        return static_cast<T>(h);
    }
}

/// The reference: one step of the fold.
template <class T>
T step(op code, T a, T b) {
    if constexpr (is_pair<T>) {
        const bool tie = a.value == b.value,
                   first = tie ? a.index <= b.index : (a.value < b.value) == (code == op::minloc);
        return first ? a : b;
    } else if constexpr (std::is_same_v<T, std::byte>) {
        const auto x = static_cast<unsigned>(a), y = static_cast<unsigned>(b);
        return static_cast<std::byte>(code == op::bit_and ? x & y : code == op::bit_or ? x | y : x ^ y);
    } else if constexpr (std::is_same_v<T, bool>) {
        switch (code) {
            case op::prod:
            case op::min:
            case op::bit_and:
            case op::logical_and:
                return a ? b : false;
            case op::bit_xor:
            case op::logical_xor:
                return a != b;
            default:
                return a ? true : b;
        }
    } else if constexpr (is_complex<T>) {
        if (code == op::prod)
            return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
        return {a.real() + b.real(), a.imag() + b.imag()};
    } else if constexpr (is_real<T>) {
        const auto x = static_cast<long double>(a), y = static_cast<long double>(b);
        switch (code) {
            case op::prod:
                return T(static_cast<double>(x * y));
            case op::min:
                return x < y ? a : b;
            case op::max:
                return x > y ? a : b;
            default:
                return T(static_cast<double>(x + y));
        }
    } else {
        const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
        switch (code) {
            case op::prod:
                return static_cast<T>(x * y);
            case op::min:
                return a < b ? a : b;
            case op::max:
                return a > b ? a : b;
            case op::logical_and:
                return static_cast<T>(a != 0 && b != 0 ? 1 : 0);
            case op::logical_or:
                return static_cast<T>(a != 0 || b != 0 ? 1 : 0);
            case op::logical_xor:
                return static_cast<T>((a != 0) != (b != 0) ? 1 : 0);
            case op::bit_and:
                return static_cast<T>(x & y);
            case op::bit_or:
                return static_cast<T>(x | y);
            case op::bit_xor:
                return static_cast<T>(x ^ y);
            default:
                return static_cast<T>(x + y);
        }
    }
}
/// x times the factor 1.5, cut off; or times -3.
template <class T>
T scaled(T x, bool by_integer) {
    if constexpr (is_complex<T>) {
        using R = typename T::value_type;
        const R f = by_integer ? R{-3} : R{1.5};
        return {x.real() * f, x.imag() * f};
    } else if constexpr (is_real<T>) {
        return T(static_cast<double>(x) * (by_integer ? -3 : 1.5));
    } else if constexpr (is_integer<T>) {
        return by_integer ? static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(-3))
                          : static_cast<T>(static_cast<double>(x) * 1.5);
    } else {
        return x;
    }
}
template <class T>
T divided(T x, int n) {
    if constexpr (is_complex<T>) {
        using R = typename T::value_type;
        return {x.real() / static_cast<R>(n), x.imag() / static_cast<R>(n)};
    } else if constexpr (std::is_floating_point_v<T>) {
        return x / static_cast<T>(n);
    } else if constexpr (is_small<T>) {
        return T(static_cast<float>(x) / static_cast<float>(n));
    } else if constexpr (is_integer<T>) {
        return static_cast<T>(std::is_signed_v<T>
                                  ? static_cast<T>(static_cast<std::int64_t>(x) / n)
                                  : static_cast<T>(static_cast<std::uint64_t>(x) / static_cast<unsigned>(n)));
    } else {
        return x;
    }
}
template <class T>
T result(op code, bool by_integer, int n, std::size_t i) {
    const auto own = [&](int rank) {
        const T x = value<T>(code, rank, i);
        return code == op::premul_sum ? scaled(x, by_integer) : x;
    };
    T x = own(0);
    for (int rank = 1; rank < n; ++rank) x = step(code, x, own(rank));
    return code == op::avg ? divided(x, n) : x;
}

reduction reduction_of(op code, bool by_integer) {
    if (code != op::premul_sum) return code;
    return by_integer ? reduction::premul_sum(-3) : reduction::premul_sum(1.5);
}

/// Every operator on one type, on a rank of a group.
template <class T>
void check_type(colls::communicator& comm, type code) {
    const dynamic::element_type t = code;
    const std::string name(colls::detail::type_text<T>);  // as typed calls have it
    expect(t.size() == sizeof(T) && t.code() == code, name + ": size or code");
    expect(t.name() == name, name + ": its name is " + std::string(t.name()));
    for (const op operation : all_operators)
        for (const bool by_integer : {false, true}) {
            if (by_integer && operation != op::premul_sum) continue;
            const reduction by = reduction_of(operation, by_integer);
            const std::string what = name + ", " + std::string(by.name());
            if (!fits<T>(operation)) {
                T x{};
                const std::string refusal = refusal_of([&] { dynamic::all_reduce(comm, {&x, 1, t}, by); });
                const std::string want = operation == op::function ? "the vector function is null"
                                                                   : "the operator " + std::string(by.name()) +
                                                                         " does not take elements of type " + name;
                expect(says(refusal, want) && says(refusal, "in all_reduce"), what + ": " + refusal);
                continue;
            }
            for (const std::size_t count : {std::size_t{1}, std::size_t{77}, std::size_t{3000}}) {
                guarded in(count * sizeof(T), alignof(T)), out(count * sizeof(T), alignof(T) * 2);
                for (std::size_t i = 0; i < count; ++i) in.as<T>()[i] = value<T>(operation, comm.rank(), i);
                dynamic::all_reduce(comm, {in.data(), count, t}, {out.data(), count, t}, by);
                for (std::size_t i = 0; i < count; ++i) {
                    const T want = result<T>(operation, by_integer, comm.size(), i);
                    expect_else(out.as<T>()[i] == want, [&] {
                        return what + ": element " + std::to_string(i) + " of " + std::to_string(count) + " is wrong";
                    });
                    expect_else(in.as<T>()[i] == value<T>(operation, comm.rank(), i),
                        [&] { return what + ": the input has changed"; });
                }
                expect(in.broken().empty() && out.broken().empty(), what + ": guard bytes");
            }
        }
}
void check_types(colls::communicator& comm) {
    check_type<std::int8_t>(comm, type::int8);
    check_type<std::int16_t>(comm, type::int16);
    check_type<std::int32_t>(comm, type::int32);
    check_type<std::int64_t>(comm, type::int64);
    check_type<std::uint8_t>(comm, type::uint8);
    check_type<std::uint16_t>(comm, type::uint16);
    check_type<std::uint32_t>(comm, type::uint32);
    check_type<std::uint64_t>(comm, type::uint64);
    check_type<colls::half>(comm, type::half);
    check_type<colls::bfloat16>(comm, type::bfloat16);
    check_type<float>(comm, type::float32);
    check_type<double>(comm, type::float64);
    check_type<long double>(comm, type::long_double);
    check_type<std::complex<float>>(comm, type::complex_float32);
    check_type<std::complex<double>>(comm, type::complex_float64);
    check_type<bool>(comm, type::boolean);
    check_type<colls::value_index<float>>(comm, type::float32_index);
    check_type<colls::value_index<double>>(comm, type::float64_index);
    check_type<colls::value_index<short>>(comm, type::int16_index);
    check_type<colls::value_index<int>>(comm, type::int32_index);
    check_type<colls::value_index<long>>(comm, type::int64_index);
    check_type<colls::value_index<long double>>(comm, type::long_double_index);
    check_type<std::byte>(comm, type::bytes);
}

// Vector functions

/// x -> a x + b, modulo 2^32: composition is associative, and does not commute.
struct affine_map {
    std::uint32_t a, b;
    friend bool operator==(const affine_map&, const affine_map&) = default;
};
affine_map affine_of(int rank, std::size_t i) {
    const std::uint64_t h = hash(rank, i);
    return {static_cast<std::uint32_t>(h) | 1u, static_cast<std::uint32_t>(h >> 32)};
}
affine_map composed(affine_map x, affine_map y) { return {x.a * y.a, y.a * x.b + y.b}; }
affine_map composed_of(int first, int last, std::size_t i) {
    affine_map x = affine_of(first, i);
    for (int rank = first + 1; rank < last; ++rank) x = composed(x, affine_of(rank, i));
    return x;
}
/// What a vector function saw.
struct calls_seen {
    std::atomic<std::size_t> calls{0}, elements{0}, wrong{0};
    std::size_t element = 0;

    void see(const void* in, const void* inout, std::size_t count) {
        calls.fetch_add(1, std::memory_order_relaxed);
        elements.fetch_add(count, std::memory_order_relaxed);
        const auto a = reinterpret_cast<std::uintptr_t>(in), b = reinterpret_cast<std::uintptr_t>(inout);
        const bool apart = a + count * element <= b || b + count * element <= a;
        if (!apart || count == 0 || a % 4 != 0 || b % 4 != 0) wrong.fetch_add(1, std::memory_order_relaxed);
    }
};
/// Elements of `element` bytes, which begin with an affine map; the rest of the left one is passed on, plus 1.
void compose(const void* in, void* inout, std::size_t count, void* context) {
    auto& seen = *static_cast<calls_seen*>(context);
    seen.see(in, inout, count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::byte* const x = static_cast<const std::byte*>(in) + i * seen.element;
        std::byte* const y = static_cast<std::byte*>(inout) + i * seen.element;
        affine_map left, right;
        std::memcpy(&left, x, sizeof left);
        std::memcpy(&right, y, sizeof right);
        const affine_map both = composed(left, right);
        std::memcpy(y, &both, sizeof both);
        for (std::size_t at = sizeof both; at < seen.element; ++at)
            y[at] = static_cast<std::byte>(std::to_integer<unsigned>(x[at]) + 1);
    }
}
/// Not associative: it tells in which order and from which side it was applied.
void half_and_add(const void* in, void* inout, std::size_t count, void*) {
    for (std::size_t i = 0; i < count; ++i) {
        auto& y = static_cast<float*>(inout)[i];
        y = static_cast<const float*>(in)[i] * 0.5f + y;
    }
}
/// The same, commutative and not associative.
void half_of_both(const void* in, void* inout, std::size_t count, void*) {
    for (std::size_t i = 0; i < count; ++i) {
        auto& y = static_cast<float*>(inout)[i];
        y = (static_cast<const float*>(in)[i] + y) * 0.5f;
    }
}

/// Buffers of affine maps in elements of `element` bytes.
struct maps {
    std::size_t element;
    guarded memory;
    std::size_t count;

    maps(std::size_t bytes, std::size_t n) : element(bytes), memory(bytes * n, 4), count(n) {}
    dynamic::buffer all() { return part(0, count); }
    dynamic::buffer part(std::size_t first, std::size_t n) {
        return {memory.data() + first * element, n, dynamic::element_type::bytes(element)};
    }
    void set(std::size_t i, affine_map x) {
        std::memset(memory.data() + i * element, 0, element);
        std::memcpy(memory.data() + i * element, &x, sizeof x);
    }
    affine_map operator[](std::size_t i) const {
        affine_map x;
        std::memcpy(&x, memory.data() + i * element, sizeof x);
        return x;
    }
    /// How often the rest of the element was folded.
    std::size_t folds(std::size_t i) const {
        return element == sizeof(affine_map) ? 0 : std::to_integer<std::size_t>(memory.data()[(i + 1) * element - 1]);
    }
};

/// All collectives that reduce, by a function that does not commute.
template <class Form>
void check_function(colls::communicator& comm, std::size_t element, std::size_t count, const dynamic::options& how) {
    const int n = comm.size(), me = comm.rank();
    const auto ranks = static_cast<std::size_t>(n);
    calls_seen seen;
    seen.element = element;
    const reduction by = reduction::function(&compose, &seen, false, "compose");
    const std::string where = "elements of " + std::to_string(element) + " bytes, " + std::string(how.schedule) + ": ";
    const auto filled = [&](std::size_t m) {
        maps in(element, m);
        for (std::size_t i = 0; i < m; ++i) in.set(i, affine_of(me, i));
        return in;
    };
    const auto holds = [&](maps& out, int first, int last, std::size_t skip, const char* what) {
        for (std::size_t i = 0; i < count; ++i) {
            const auto text = [&] { return where + what + ", element " + std::to_string(i); };
            expect_else(out[i] == composed_of(first, last, i + skip), text);
            expect_else(
                element == sizeof(affine_map) || out.folds(i) == static_cast<std::size_t>(last - first - 1), text);
        }
        expect(out.memory.broken().empty(), where + what + ": guard bytes");
    };
    maps in = filled(count), out(element, count);
    finish(Form::all_reduce(comm, in.all(), out.all(), by, how));
    holds(out, 0, n, 0, "all_reduce");
    maps both = filled(count);
    finish_once(Form::all_reduce(comm, both.all(), by, how));
    holds(both, 0, n, 0, "all_reduce in place");
    for (int root = 0; root < n; ++root) {
        finish(Form::reduce(comm, in.all(), out.all(), by, root, how));
        if (me == root) holds(out, 0, n, 0, "reduce");
    }
    finish(Form::inclusive_scan(comm, in.all(), out.all(), by, how));
    holds(out, 0, me + 1, 0, "inclusive_scan");
    if (how.schedule.empty()) {
        finish(Form::exclusive_scan(comm, in.all(), out.all(), by, how));
        if (me > 0) holds(out, 0, me, 0, "exclusive_scan");
    }
    maps all = filled(count * ranks);
    finish(Form::reduce_scatter(comm, all.all(), out.all(), by, how));
    holds(out, 0, n, count * static_cast<std::size_t>(me), "reduce_scatter");
    expect(seen.wrong == 0, where + "the function was called on vectors that overlap, are empty, or not aligned");
    if (n > 1 && count >= 100 && element == sizeof(affine_map))
        expect(seen.calls.load() * 20 < seen.elements.load(), where + "it was called on a few elements at a time");
}

// Data that moves

int datum(int from, int to, std::size_t i) { return from * 1'000'000 + to * 10'000 + static_cast<int>(i % 9973); }

/// Blocks of ints, one a rank, and their places in a buffer.
struct ragged {
    std::vector<std::size_t> counts, offsets;
    std::size_t total = 0;

    template <class F>
    ragged(int n, F count) {
        for (int r = 0; r < n; ++r) {
            counts.push_back(count(r));
            offsets.push_back(total);
            total += counts.back();
        }
    }
    std::size_t count(int r) const { return counts[static_cast<std::size_t>(r)]; }
    std::size_t offset(int r) const { return offsets[static_cast<std::size_t>(r)]; }
};
struct ints {
    guarded memory;

    explicit ints(std::size_t count) : memory(count * sizeof(int), 4) {}
    std::span<int> all() { return memory.as<int>(); }
    dynamic::buffer part(std::size_t first, std::size_t count) {
        return {memory.as<int>().data() + first, count, type::int32};
    }
    dynamic::buffer whole() { return part(0, all().size()); }
    void set(std::size_t first, std::size_t count, int from, int to) {
        for (std::size_t i = 0; i < count; ++i) all()[first + i] = datum(from, to, i);
    }
    void is(std::size_t first, std::size_t count, int from, int to, const char* what) {
        for (std::size_t i = 0; i < count; ++i)
            expect_else(all()[first + i] == datum(from, to, i), [&] {
                return std::string(what) + ": from rank " + std::to_string(from) + ", element " + std::to_string(i);
            });
        expect(memory.broken().empty(), std::string(what) + ": guard bytes");
    }
};

/// All collectives that move data, of balanced blocks (`uneven` 0) and of others; in place and not.
template <class Form>
void check_moves(colls::communicator& comm, std::size_t count, bool with_counts, const dynamic::options& how) {
    const int n = comm.size(), me = comm.rank(), root = n - 1;
    const ragged by_rank(n, [&](int r) {
        return with_counts ? count * static_cast<std::size_t>((r + 2) % 3) + static_cast<std::size_t>(r)
                           : colls::block_of(count * static_cast<std::size_t>(n) + 1, n, r).size;
    });
    const std::size_t own = by_rank.count(me), at = by_rank.offset(me);
    const dynamic::count_list counts = by_rank.counts;
    const auto call = [&](auto without, auto with) { with_counts ? with() : without(); };
    ints in(own), out(by_rank.total);

    in.set(0, own, me, 0);
    call([&] { finish(Form::all_gather(comm, in.whole(), out.whole(), how)); },
        [&] { finish(Form::all_gather_v(comm, in.whole(), out.whole(), counts, how)); });
    for (int r = 0; r < n; ++r) out.is(by_rank.offset(r), by_rank.count(r), r, 0, "all_gather");

    ints gathered(by_rank.total);
    gathered.set(at, own, me, 1);
    call([&] { finish(Form::all_gather(comm, gathered.part(at, own), gathered.whole(), how)); },
        [&] { finish(Form::all_gather_v(comm, gathered.part(at, own), gathered.whole(), counts, how)); });
    for (int r = 0; r < n; ++r) gathered.is(by_rank.offset(r), by_rank.count(r), r, 1, "all_gather in place");

    dynamic::options straight = how;
    if (with_counts) straight.schedule = {};
    in.set(0, own, me, 2);
    const dynamic::count_list roots_counts = me == root ? counts : dynamic::count_list{};
    call(
        [&] {
            finish(Form::gather(
                comm, in.whole(), me == root ? out.whole() : dynamic::buffer{nullptr, 0, type::int32}, root, how));
        },
        [&] { finish(Form::gather_v(comm, in.whole(), out.whole(), roots_counts, root, straight)); });
    for (int r = 0; r < n && me == root; ++r) out.is(by_rank.offset(r), by_rank.count(r), r, 2, "gather");

    ints all(by_rank.total);
    for (int r = 0; r < n; ++r) all.set(by_rank.offset(r), by_rank.count(r), me, r);
    call([&] { finish(Form::scatter(comm, all.whole(), in.whole(), root, how)); },
        [&] { finish(Form::scatter_v(comm, all.whole(), in.whole(), counts, root, straight)); });
    in.is(0, own, root, me, "scatter");

    // To rank r a block whose length depends on both.
    const auto between = [&](int a, int b) {
        return with_counts ? (count + static_cast<std::size_t>(3 * a + 5 * b)) % (count + 2) : count;
    };
    const ragged sent(n, [&](int r) { return between(me, r); }), received(n, [&](int r) { return between(r, me); });
    ints to(sent.total), from(received.total);
    for (int r = 0; r < n; ++r) to.set(sent.offset(r), sent.count(r), me, r);
    call([&] { finish(Form::all_to_all(comm, to.whole(), from.whole(), how)); },
        [&] { finish(Form::all_to_all_v(comm, to.whole(), from.whole(), sent.counts, received.counts, straight)); });
    for (int r = 0; r < n; ++r) from.is(received.offset(r), received.count(r), r, me, "all_to_all");

    // Sums, since their bits are those of any order.
    const auto total_of = [&](int r, std::size_t i) {
        int sum = 0;
        for (int k = 0; k < n; ++k) sum += datum(k, r, i);
        return sum;
    };
    call([&] { finish(Form::reduce_scatter(comm, all.whole(), in.whole(), op::sum, how)); },
        [&] { finish(Form::reduce_scatter_v(comm, all.whole(), in.whole(), counts, op::sum, how)); });
    for (std::size_t i = 0; i < own; ++i) expect(in.all()[i] == total_of(me, i), "reduce_scatter");
    call([&] { finish_once(Form::reduce_scatter(comm, all.whole(), all.part(at, own), op::sum, how)); },
        [&] { finish_once(Form::reduce_scatter_v(comm, all.whole(), all.part(at, own), counts, op::sum, how)); });
    for (std::size_t i = 0; i < own; ++i) expect(all.all()[at + i] == total_of(me, i), "reduce_scatter in place");
    if (with_counts) return;

    ints message(count);
    if (me == root) message.set(0, count, root, 7);
    finish(Form::broadcast(comm, message.whole(), root, how));
    message.is(0, count, root, 7, "broadcast");
    finish(Form::barrier(comm, how));
}
template <class Form>
void check_all_moves(colls::communicator& comm) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{3000}})
        for (const bool with_counts : {false, true}) check_moves<Form>(comm, count, with_counts, {});
    check_moves<Form>(comm, 100, false, {.schedule = "direct"});
    check_moves<Form>(comm, 100, true, {.schedule = "circulant"});
}

// Some ranks make the typed call

/// The typed call on odd ranks, and the call at run time on even ones; by `turn`, on all or none.
template <class T, class Op>
void check_mixed(colls::communicator& comm, dynamic::element_type t, const Op& typed, reduction untyped,
    const dynamic::options& how, const char* what) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{4001}}) {
        std::vector<T> in(count), all_typed(count), mixed(count), all_untyped(count);
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t h = hash(comm.rank(), i);
            if constexpr (is_pair<T>)
                in[i] = {static_cast<decltype(T::value)>(h % 5), static_cast<int>(h >> 40)};
            else if constexpr (std::is_same_v<T, bool>)
                in[i] = h % 2 == 0;
            else if constexpr (is_complex<T>)
                in[i] = T(static_cast<float>(h % 1000) / 7, static_cast<float>(h / 1000 % 1000) / 3);
            else
                in[i] = T(static_cast<float>(h % 100'000) / 977);
        }
        const auto by_type = [&](std::vector<T>& out) {
            if (how.reproducible)
                colls::all_reduce<colls::reproducible>(comm, in, out, typed);
            else if (how.schedule == "ring")
                colls::all_reduce<colls::ring>(comm, in, out, typed);
            else
                colls::all_reduce(comm, in, out, typed);
        };
        const auto by_code = [&](std::vector<T>& out) {
            dynamic::all_reduce(comm, {in.data(), count, t}, {out.data(), count, t}, untyped, how);
        };
        by_type(all_typed);
        comm.rank() % 2 == 1 ? by_type(mixed) : by_code(mixed);
        by_code(all_untyped);
        for (std::size_t i = 0; i < count; ++i)
            expect_else(mixed[i] == all_typed[i] && all_untyped[i] == all_typed[i], [&] {
                return std::string(what) + ", element " + std::to_string(i) + " of " + std::to_string(count) +
                       ": other bits than the typed call";
            });
    }
}
void check_all_mixed(colls::communicator& comm) {
    const double factor = 0.3 * (comm.rank() + 1);  // each rank's own
    const std::int64_t integer = 3 - comm.rank();
    check_mixed<int>(comm, type::int32, colls::sum, op::sum, {}, "int, sum");
    check_mixed<float>(comm, type::float32, colls::avg, op::avg, {}, "float, avg");
    check_mixed<float>(comm, type::float32, colls::sum, op::sum, {.schedule = "ring"}, "float, sum, ring");
    check_mixed<float>(comm, type::float32, colls::sum, op::sum, {.reproducible = true}, "float, sum, reproducible");
    check_mixed<colls::bfloat16>(
        comm, type::bfloat16, colls::premul_sum(factor), reduction::premul_sum(factor), {}, "bfloat16, premul_sum");
    check_mixed<colls::half>(comm, type::half, colls::premul_sum(integer), reduction::premul_sum(integer), {},
        "half, premul_sum by an integer");
    check_mixed<short>(
        comm, type::int16, colls::premul_sum(factor), reduction::premul_sum(factor), {}, "short, premul_sum");
    check_mixed<std::complex<float>>(comm, type::complex_float32, colls::premul_sum(factor),
        reduction::premul_sum(factor), {}, "complex, premul_sum");
    check_mixed<std::complex<double>>(comm, type::complex_float64, colls::avg, op::avg, {}, "complex, avg");
    check_mixed<unsigned char>(
        comm, type::uint8, colls::logical_xor, op::logical_xor, {}, "unsigned char, logical_xor");
    check_mixed<long>(comm, type::int64, colls::bit_xor, op::bit_xor, {}, "long, bit_xor");
    check_mixed<colls::value_index<double>>(comm, type::float64_index, colls::maxloc, op::maxloc, {}, "pairs, maxloc");

    // Bytes, messages and a barrier.
    using twelve = std::array<std::byte, 12>;
    const auto t = dynamic::element_type::bytes(12);
    const int n = comm.size(), me = comm.rank();
    std::vector<twelve> own(5), all(5 * static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < own.size(); ++i) own[i].fill(static_cast<std::byte>(me * 16 + static_cast<int>(i)));
    if (me % 2 == 0)
        dynamic::all_gather(comm, {own.data(), own.size(), t}, {all.data(), all.size(), t});
    else
        colls::all_gather(comm, own, all);
    for (std::size_t i = 0; i < all.size(); ++i)
        expect(all[i][11] == static_cast<std::byte>(i / 5 * 16 + i % 5), "all_gather of 12 bytes");
    me % 2 == 0 ? dynamic::barrier(comm) : colls::barrier(comm);
    if (n == 1) return;
    std::vector<twelve> left(own.size());
    const int to = (me + 1) % n, from = (me + n - 1) % n;
    const dynamic::buffer mine{own.data(), own.size(), t}, theirs{left.data(), left.size(), t};
    const auto arrived = [&](const char* what) {
        expect(left[4][0] == static_cast<std::byte>(from * 16 + 4), what);
        left[4][0] = std::byte{255};
    };
    me % 2 == 0 ? dynamic::exchange(comm, mine, to, theirs, from) : colls::exchange(comm, own, to, left, from);
    arrived("exchange");
    {
        colls::operation sends = me % 2 == 0 ? dynamic::start::send(comm, mine, to) : colls::start::send(comm, own, to);
        me % 2 == 0 ? colls::recv(comm, left, from) : dynamic::recv(comm, theirs, from);
        sends.wait();
    }
    arrived("start::send and recv");
    {
        colls::operation receives = dynamic::start::recv(comm, theirs, from);
        dynamic::send(comm, mine, to);
        receives.wait();
    }
    arrived("send and start::recv");
    {
        colls::operation sends = dynamic::start::send(comm, mine, to);
        expect(dynamic::recv_any(comm, theirs) == from, "recv_any: the sender");
        sends.wait();
    }
    arrived("recv_any");
}

/// What happens on two ranks where the call of one differs.
template <class F>
std::string mismatch_of(F call) {
    std::string text = "none";
    std::mutex mutex;
    colls::threads::run(2, [&](colls::communicator& comm) {
        try {
            call(comm, comm.rank() == 1);
        } catch (const colls::error& failure) {
            const std::lock_guard lock(mutex);
            if (failure.code() == colls::errc::mismatch) text = failure.what();
        }
    });
    return text;
}
}  // namespace

TEST_CASE("dynamic: every type with every operator gives the serial result, or is refused", "[dynamic]") {
    for (const int n : {1, 2, 3, 5}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(run_over("threads", n, [](auto& comm) { check_types(comm); }));
    }
}

TEST_CASE("dynamic: contributions are folded in rank order by a function that does not commute", "[dynamic]") {
    for (const int n : {1, 2, 3, 5}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(run_over("threads", n, [](auto& comm) {
            for (const std::size_t element : {std::size_t{8}, std::size_t{12}, std::size_t{20'000}}) {
                const std::size_t count = element > 1000 ? 3 : 2000;
                check_function<blocking>(comm, element, 7, {});
                check_function<blocking>(comm, element, count, {});
                check_function<dynamic::start>(comm, element, count, {});
                check_function<dynamic::prepare>(comm, element, count, {.schedule = "direct"});
            }
        }));
    }
    on_every_transport(3, [](auto& comm) { check_function<dynamic::start>(comm, 12, 2000, {}); });
}

TEST_CASE("fold_by_function: folds from the left, wherever the result goes", "[dynamic]") {
    using colls::detail::fold_by_function;
    using colls::detail::operand;
    for (const bool commutative : {false, true})
        for (int k = 1; k <= 6; ++k)
            for (const std::size_t count :
                {std::size_t{0}, std::size_t{1}, std::size_t{2047}, std::size_t{2048}, std::size_t{7001}})
                for (int alias = -1; alias < 2 * k; ++alias) {  // from k on, the result is also a second operand
                    std::vector<std::vector<float>> x(
                        static_cast<std::size_t>(k) + 1, std::vector<float>(count + 2, -1));
                    for (std::size_t j = 0; j <= static_cast<std::size_t>(k); ++j)
                        for (std::size_t i = 1; i <= count; ++i)
                            x[j][i] = static_cast<float>(hash(static_cast<int>(j), i) % 1000) / 7;
                    std::vector<std::size_t> at;
                    for (int j = 0; j < k; ++j) at.push_back(static_cast<std::size_t>(j));
                    const std::size_t to = static_cast<std::size_t>(alias < 0 ? k : alias % k);
                    if (alias >= k) at[(to + 1) % static_cast<std::size_t>(k)] = to;
                    std::vector<float> want(count + 2, -1);
                    // In plain steps: the left operand, then the right.
                    for (std::size_t i = 1; i <= count; ++i) {
                        float left = x[at[0]][i];
                        for (std::size_t j = 1; j < static_cast<std::size_t>(k); ++j) {
                            const float right = x[at[j]][i];
                            left = commutative ? (left + right) * 0.5f : left * 0.5f + right;
                        }
                        want[i] = left;
                    }
                    std::vector<operand> operands;
                    for (const std::size_t j : at) operands.push_back({x[j].data() + 1});
                    const colls::detail::function_operator by{
                        commutative ? &half_of_both : &half_and_add, nullptr, sizeof(float), commutative};
                    auto before = x;
                    fold_by_function(x[to].data() + 1, operands.data(), k, count, &by);
                    before[to] = want;
                    INFO(k << " operands, " << count << " elements, the result goes to " << alias);
                    REQUIRE(x == before);  // no operand has changed
                }
}

TEST_CASE("dynamic: collectives that move data, blocking, started and prepared", "[dynamic]") {
    for (const int n : {1, 2, 3, 5}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(run_over("threads", n, [](auto& comm) {
            check_all_moves<blocking>(comm);
            check_all_moves<dynamic::start>(comm);
            check_all_moves<dynamic::prepare>(comm);
        }));
    }
    on_every_transport(3, [](auto& comm) {
        check_all_moves<blocking>(comm);
        check_moves<dynamic::prepare>(comm, 3000, true, {});
    });
}

TEST_CASE("dynamic: a call is the typed call of other ranks, with its bits", "[dynamic]") {
    for (const int n : {1, 2, 3, 5}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(run_over("threads", n, check_all_mixed));
    }
    on_every_transport(2, check_all_mixed);
}

TEST_CASE("dynamic: ranks with different types, operators or functions get a mismatch that names both", "[dynamic]") {
    const auto reduces = [](dynamic::element_type a, reduction by, dynamic::element_type b, reduction other) {
        return mismatch_of([=](colls::communicator& comm, bool odd) {
            std::vector<std::byte> x(64);
            dynamic::all_reduce(comm, {x.data(), 4, odd ? b : a}, odd ? other : by);
        });
    };
    calls_seen seen;
    const reduction first = reduction::function(&compose, &seen, false, "first"),
                    second = reduction::function(&compose, &seen, false, "second");
    using dynamic::element_type;
    CHECK(lacks(reduces(type::int32, op::sum, type::float32, op::sum), {"int", "float"}).empty());
    CHECK(lacks(reduces(type::int32, op::sum, type::uint32, op::sum), {"int", "unsigned"}).empty());
    CHECK(lacks(reduces(type::int32, op::sum, type::int32, op::max), {"sum_t", "max_t"}).empty());
    CHECK(lacks(reduces(type::float32, reduction::premul_sum(2), type::float32, reduction::premul_sum(2.0)),
        {"premul_sum_t<long", "premul_sum_t<double>"})
            .empty());
    CHECK(lacks(reduces(element_type::bytes(8), first, element_type::bytes(8), second), {"first", "second"}).empty());
    CHECK(lacks(reduces(element_type::bytes(8), first, element_type::bytes(12), first),
        {"std::array<std::byte, 8>", "std::array<std::byte, 12>"})
            .empty());
}

TEST_CASE("dynamic: what all ranks refuse leaves the group whole, where one rank is slower", "[dynamic]") {
    for (const std::string& transport : every_transport())
        CHECK_NOTHROW(run_over(transport, 3, [&](auto& comm) {
            std::vector<float> in(6, 1), out(6);
            const dynamic::const_buffer from{in.data(), 6, type::float32};
            const dynamic::buffer to{out.data(), 6, type::float32};
            const auto refuses = [&](const char* part, auto call) {
                if (comm.rank() == 2) usleep(130'000);  // after 0.1 s a refusal would count for the call of the others
                const std::string text = refusal_of(call);
                expect(says(text, part), transport + ": " + text);
            };
            const auto goes_on = [&](auto& group) {
                if (comm.rank() == 2) usleep(130'000);
                dynamic::all_reduce(group, from, to, op::sum);
                expect(out[5] == 3, transport + ": the sum after refusals");
            };
            goes_on(comm);
            refuses("of type int", [&] { dynamic::all_reduce(comm, from, {out.data(), 6, type::int32}, op::sum); });
            refuses("out of range", [&] { dynamic::broadcast(comm, to, 3); });
            goes_on(comm);
            refuses("does not take", [&] { dynamic::start::all_reduce(comm, to, op::bit_xor).wait(); });
            refuses("no schedule named", [&] { dynamic::prepare::barrier(comm, {.schedule = "rings"}).run(); });
            goes_on(comm);
            auto under_way = dynamic::start::broadcast(comm, to, 2);
            refuses("out of range", [&] { dynamic::start::broadcast(comm, to, -1).wait(); });
            if (comm.rank() == 2) usleep(130'000);
            under_way.wait();
            refuses("out of range", [&] { dynamic::broadcast(comm, to, 3); });
            if (comm.rank() == 2) usleep(130'000);
            colls::communicator part = comm.split(0, comm.rank());
            goes_on(part);
        }));
}

TEST_CASE("dynamic: what a typed call would not compile is refused, and the group goes on", "[dynamic]") {
    for (const int n : {1, 3})
        CHECK_NOTHROW(run_over("threads", n, [n](auto& comm) {
            std::vector<float> in(6), out(6);
            const dynamic::const_buffer from{in.data(), 6, type::float32};
            const dynamic::buffer to{out.data(), 6, type::float32};
            const auto refuses = [&](auto call, std::initializer_list<std::string> parts) {
                const std::string missing = lacks(refusal_of(call), parts);
                expect(missing.empty(), missing);
            };
            refuses([&] { dynamic::all_reduce(comm, from, {out.data(), 6, type::int32}, op::sum); },
                {"the input is of type float", "the output of type int"});
            refuses([&] { dynamic::inclusive_scan(comm, from, to, op::avg); },
                {"inclusive_scan", "a scan has no use for avg_t"});
            refuses([&] { dynamic::all_reduce(comm, to, op::sum, {.schedule = "rings"}); },
                {"no schedule named rings", "direct, ring, circulant"});
            refuses(
                [&] { dynamic::broadcast(comm, to, 0, {.schedule = "bruck"}); }, {"no schedule named bruck", "tree"});
            refuses([&] { dynamic::broadcast(comm, to, n); }, {"root", "is out of range"});
            refuses([&] { dynamic::all_reduce(comm, {nullptr, 6, type::float32}, op::sum); }, {"is null"});
            refuses([&] { dynamic::element_type::bytes(0); }, {"0 bytes"});
            const std::vector<std::size_t> counts(static_cast<std::size_t>(n), 2);
            refuses([&] { dynamic::gather_v(comm, from, to, counts, 0, {.schedule = "tree"}); },
                {"gather_v", "straight from rank to rank"});
            const colls::any_schedule tree(colls::schedule_of<colls::collective::gather>(colls::tree<4>{})),
                straight(colls::schedule_of<colls::collective::gather>(colls::direct{}));
            refuses([&] { dynamic::gather_v(comm, from, to, counts, 0, {.given = &tree}); },
                {"gather_v", "straight from rank to rank"});
            for (const dynamic::options& how : {dynamic::options{.given = &straight}, {.schedule = "direct"}}) {
                std::vector<float> own(2, 1), all(2 * static_cast<std::size_t>(n));
                dynamic::gather_v(
                    comm, {own.data(), 2, type::float32}, {all.data(), all.size(), type::float32}, counts, 0, how);
                expect(all.back() == (comm.rank() == 0 ? 1 : 0), "gather_v by direct");
            }
            const colls::any_schedule ring(colls::schedule_of<colls::collective::all_reduce>(colls::ring{}));
            refuses([&] { dynamic::broadcast(comm, to, 0, {.given = &ring}); }, {"ring", "implements all_reduce"});
            refuses([&] { dynamic::all_reduce(comm, to, op::sum, {.schedule = "ring", .given = &ring}); },
                {"give one of them"});
            // Schedules that do not keep the order of ranks, or that have several fold expressions.
            calls_seen seen;
            seen.element = 4;
            const reduction ordered = reduction::function(&half_and_add, nullptr, false);
            const auto code_of = [](auto call) {
                try {
                    call();
                } catch (const colls::error& failure) {
                    return failure.code();
                }
                return colls::errc{};
            };
            const colls::errc unsupported = n == 1 ? colls::errc{} : colls::errc::unsupported;
            expect(code_of([&] { dynamic::all_reduce(comm, to, ordered, {.schedule = "ring"}); }) == unsupported,
                "order, ring");
            expect(code_of([&] { dynamic::all_reduce(comm, to, ordered, {.given = &ring}); }) == unsupported,
                "order, given");
            expect(code_of([&] {
                dynamic::all_reduce(comm, to, op::sum, {.schedule = "ring", .reproducible = true});
            }) == unsupported,
                "reproducible");
            for (const int root : {0, n - 1}) {
                expect(code_of([&] { dynamic::reduce(comm, from, to, ordered, root, {.schedule = "direct"}); }) ==
                           colls::errc{},
                    "direct");
                expect(code_of([&] {
                    dynamic::reduce(comm, from, to, op::sum, root, {.given = nullptr, .reproducible = true});
                }) == colls::errc{},
                    "reproducible");
            }
            // The group goes on.
            for (float& x : in) x = 1;
            dynamic::all_reduce(comm, from, to, op::sum, {.given = &ring});
            expect(out[5] == static_cast<float>(n), "sum");
        }));
    CHECK(dynamic::element_type::bytes(1) == dynamic::element_type(type::bytes));
    CHECK(dynamic::element_type::bytes(2).name() == "std::array<std::byte, 2>");
    CHECK(reduction::function(&half_and_add, nullptr, false, "halves").name() == "halves");
    CHECK(says(refusal_of([] {
        colls::communicator none;
        dynamic::barrier(none);
    }),
        "no group"));
}

TEST_CASE("dynamic: every family by its name", "[dynamic]") {
    for (const int n : {1, 2, 4, 6})
        CHECK_NOTHROW(run_over("threads", n, [n](auto& comm) {
            int ran = 0;
            for (const std::string_view name : colls::detail::known_names()) {
                std::vector<int> x(1000, comm.rank() + 1);
                try {
                    dynamic::all_reduce(comm, {x.data(), x.size(), type::int32}, op::sum, {.schedule = name});
                } catch (const colls::error& failure) {
                    expect(failure.code() == colls::errc::unsupported || says(failure.what(), "no schedule named"),
                        failure.what());
                    continue;
                }
                expect(x[999] == n * (n + 1) / 2, "all_reduce by " + std::string(name));
                ++ran;
            }
            expect_else(ran >= 5, [] { return std::string("few families have an all_reduce"); });
            // Each family refuses a function that does not commute, or keeps the order of ranks, whatever the root.
            calls_seen seen;
            seen.element = sizeof(affine_map);
            const reduction by = reduction::function(&compose, &seen, false, "compose");
            int in_order = 0;
            for (const std::string_view name : colls::detail::known_names())
                for (int root = 0; root < n; ++root) {
                    maps in(sizeof(affine_map), 40), out(sizeof(affine_map), 40);
                    for (std::size_t i = 0; i < in.count; ++i) in.set(i, affine_of(comm.rank(), i));
                    try {
                        dynamic::reduce(comm, in.all(), out.all(), by, root, {.schedule = name});
                    } catch (const colls::error& failure) {
                        expect(failure.code() == colls::errc::unsupported || says(failure.what(), "no schedule named"),
                            failure.what());
                        continue;
                    }
                    ++in_order;
                    for (std::size_t i = 0; i < in.count && comm.rank() == root; ++i)
                        expect_else(out[i] == composed_of(0, n, i),
                            [&] { return "reduce by " + std::string(name) + " to rank " + std::to_string(root); });
                }
            expect(in_order > n, "direct alone keeps the order of ranks");
        }));
}
