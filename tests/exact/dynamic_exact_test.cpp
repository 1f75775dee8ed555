// op::exact of dynamic.hpp: the serial sum rounded once, in every call that has it, and where some ranks make the
// typed call; and what it refuses.
#include "catch.hpp"

#include "exact/reference.hpp"
#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/dynamic.hpp>
#include <colls/exact.hpp>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

using namespace support;
namespace dynamic = colls::dynamic;
using dynamic::op;
using dynamic::type;

namespace {

template <class T>
constexpr type code_of = std::is_same_v<T, float>         ? type::float32
                         : std::is_same_v<T, double>      ? type::float64
                         : std::is_same_v<T, colls::half> ? type::half
                                                          : type::bfloat16;

/// Within so few binades that colls::exact loses no bit of them.
template <class T>
T number(int rank, std::size_t i) {
    random_source random = stream(static_cast<std::uint64_t>(rank), i);
    const double x = std::ldexp(random.between(1, 1 << 20) + std::ldexp(random.between(0, 1 << 20), -30),
        -20 - random.between(0, std::is_same_v<T, colls::half> ? 8 : 18));
    const double y = random.one_in(2) ? x : -x;
    if constexpr (std::is_same_v<T, double>)
        return y;
    else
        return static_cast<T>(static_cast<float>(y));
}
template <class T>
std::vector<T> addends(int rank, std::size_t count) {
    std::vector<T> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = number<T>(rank, i);
    return x;
}
template <class T>
std::vector<T> sums(int n, std::size_t count) {
    std::vector<T> all(count);
    for (std::size_t i = 0; i < count; ++i) {
        reference::bit_sum sum;
        for (int r = 0; r < n; ++r) sum.add(static_cast<double>(number<T>(r, i)));
        all[i] = static_cast<T>(sum.rounded<T>());
    }
    return all;
}
template <class T>
bool same(std::span<const T> a, std::span<const T> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

template <class T>
void check(colls::communicator& comm, std::span<const T> want) {
    const std::size_t count = want.size();
    const int n = comm.size(), rank = comm.rank();
    const auto at = static_cast<std::size_t>(rank);
    const std::vector<T> in = addends<T>(rank, count);
    const dynamic::const_buffer from{in.data(), count, code_of<T>};
    const auto to = [](std::vector<T>& x) { return dynamic::buffer{x.data(), x.size(), code_of<T>}; };
    std::vector<T> out(count, T(7.0f));
    dynamic::all_reduce(comm, from, to(out), op::exact);
    expect(same<T>(out, want), "all_reduce");
    for (const int root : {0, n - 1}) {
        out.assign(count, T(7.0f));
        dynamic::reduce(comm, from, to(out), op::exact, root);
        if (rank == root) expect(same<T>(out, want), "reduce");
    }
    const colls::buffer_block own = colls::block_of(count, n, rank);
    std::vector<T> block(own.size);
    dynamic::reduce_scatter(comm, from, to(block), op::exact);
    expect(same<T>(block, want.subspan(own.offset, own.size)), "reduce_scatter");
    // Blocks of all lengths: 0 for the second rank, most for the last.
    std::vector<std::size_t> counts(static_cast<std::size_t>(n), count / 8 / static_cast<std::size_t>(n));
    if (n > 1) counts[1] = 0;
    std::size_t before = 0, taken = 0;
    for (std::size_t r = 0; r + 1 < counts.size(); ++r) taken += counts[r];
    counts.back() = count - taken;
    for (std::size_t r = 0; r < at; ++r) before += counts[r];
    block.assign(counts[at], T(7.0f));
    dynamic::reduce_scatter_v(comm, from, to(block), counts, op::exact);
    expect(same<T>(block, want.subspan(before, counts[at])), "reduce_scatter_v");
    block.assign(counts[at], T(7.0f));
    if (rank % 2 == 0)
        colls::reduce_scatter_v(comm, in, block, counts, colls::exact);
    else
        dynamic::reduce_scatter_v(comm, from, to(block), counts, op::exact);
    expect(same<T>(block, want.subspan(before, counts[at])), "reduce_scatter_v, some ranks typed");
    std::vector<T> both = in;
    if (rank % 2 == 0)
        dynamic::all_reduce(comm, to(both), op::exact);
    else
        colls::all_reduce(comm, both, colls::exact);
    expect(same<T>(both, want), "in place, some ranks typed");
}

}  // namespace

TEMPLATE_TEST_CASE("dynamic: op::exact is the serial sum rounded once", "[dynamic][exact]", float, double, colls::half,
    colls::bfloat16) {
    for (const int n : {1, 2, 3, 5, 8, 34}) {
        INFO(n << " ranks");
        const auto want = sums<TestType>(n, 1500);
        CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
            for (const std::size_t count : {0u, 3u, 1500u}) check<TestType>(comm, std::span(want).first(count));
        }));
    }
}

TEST_CASE("dynamic: op::exact on every transport", "[dynamic][exact]") {
    const auto want = sums<float>(3, 1500);
    on_every_transport(3, [&](colls::communicator& comm) { check<float>(comm, want); });
}

TEST_CASE("dynamic: what op::exact refuses, after which the group goes on", "[dynamic][exact]") {
    CHECK_NOTHROW(colls::threads::run(3, [](colls::communicator& comm) {
        std::vector<float> x(4, 1), y(4);
        std::vector<int> k(4, 1);
        const dynamic::buffer floats{x.data(), 4, type::float32}, others{y.data(), 4, type::float32},
            ints{k.data(), 4, type::int32}, doubles{y.data(), 2, type::float64};
        const auto refuses = [&](auto call, const char* why) {
            const std::string text = refusal_of(call);
            expect(says(text, why), "refused by \"" + text + "\" and not by \"" + why + "\"");
        };
        refuses([&] { dynamic::all_reduce(comm, ints, op::exact); }, "exact_t does not take elements of type int");
        refuses([&] { dynamic::all_reduce(comm, floats, doubles, op::exact); }, "both must be of one type");
        refuses([&] { dynamic::start::all_reduce(comm, floats, op::exact).wait(); }, "cannot be started");
        refuses([&] { dynamic::prepare::reduce(comm, floats, others, op::exact, 0).run(); }, "cannot be started");
        refuses([&] { dynamic::inclusive_scan(comm, floats, others, op::exact); }, "no scans");
        refuses([&] { dynamic::reduce(comm, floats, others, op::exact, 3); }, "root");
        refuses([&] { dynamic::all_reduce(comm, floats, op::exact, {.schedule = "ring"}); }, "give none");
        const auto column = dynamic::data_layout::vector(2, 1, 2);
        const dynamic::buffer strided{x.data(), 1, type::float32, &column};
        refuses([&] { dynamic::all_reduce(comm, strided, op::exact); }, "layouts");
        std::vector<float> parts(6, 1);
        const dynamic::buffer in_column{x.data(), 2, type::float32, &column}, all{parts.data(), 6, type::float32},
            plain{y.data(), 2, type::float32};
        refuses([&] { dynamic::all_reduce(comm, in_column, floats, op::exact); }, "layouts");
        refuses([&] { dynamic::all_reduce(comm, floats, in_column, op::exact); }, "layouts");
        refuses([&] { dynamic::reduce(comm, in_column, floats, op::exact, 0); }, "layouts");
        const std::vector<std::size_t> counts{2, 2, 2}, displacements{4, 2, 0};
        refuses([&] { dynamic::reduce_scatter_v(comm, floats, others, counts, op::exact); }, "should hold 6");
        refuses([&] { dynamic::reduce_scatter_v(comm, all, plain, {counts, displacements}, op::exact); },
            "neither layouts nor displacements");
        dynamic::reduce_scatter_v(comm, all, plain, counts, op::exact);
        expect(y[0] == 3 && y[1] == 3, "the same without them");
        dynamic::all_reduce(comm, floats, op::exact);
        expect(x[3] == 3, "a sum afterwards");
        expect(dynamic::reduction(op::exact).name() == "exact_t", "the name");
    }));
}
