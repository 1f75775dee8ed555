// colls::sharded: where each shard lies, that shards are even, and that units come back whole from any cut.
#include "catch.hpp"

#include <colls/patterns/sharded.hpp>

#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

using namespace support;

namespace {

using sizes = std::vector<std::size_t>;

/// Empty, smaller than a group, equal to it, indivisible and divisible units.
const std::vector<sizes> cuts = {
    {}, {0}, {1}, {5}, {1, 1, 1, 1}, {0, 3, 0, 2, 7}, {10, 1, 100, 9, 0, 3}, {1000, 1, 999, 1, 1, 6'789}};

std::string text_of(const sizes& units) {
    std::string text = "units";
    for (const std::size_t u : units) text += " " + std::to_string(u);
    return text;
}
/// An integer that identifies the element and the rank that contributes it.
long value(std::size_t element, int rank) { return static_cast<long>(element) * 8 + rank; }

}  // namespace

TEST_CASE("sharded: shards cover each unit and each rank's memory in order", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7})
        for (const sizes& units : cuts) {
            INFO(n << " ranks, " << text_of(units));
            CHECK_NOTHROW(colls::threads::run(n, [&](colls::communicator& comm) {
                const colls::sharded layout(comm, units);
                const std::size_t total = std::accumulate(units.begin(), units.end(), std::size_t{0});
                expect(layout.units() == units.size() && layout.size() == total, "units and size");
                std::vector<std::size_t> used(static_cast<std::size_t>(n));
                std::size_t at = 0;
                for (std::size_t u = 0; u < units.size(); ++u) {
                    expect(layout.unit(u) == colls::buffer_block{at, units[u]}, "a unit in the space");
                    at += units[u];
                    std::size_t next = 0;
                    for (int r = 0; r < n; ++r) {
                        auto& local = used[static_cast<std::size_t>(r)];
                        const colls::buffer_block shard = layout.shard(u, r);
                        expect(shard.offset == next, "a shard does not follow the one before");
                        expect(layout.local(u, r) == colls::buffer_block{local, shard.size}, "a shard in memory");
                        expect(layout.counts(u)[static_cast<std::size_t>(r)] == shard.size, "a count");
                        next += shard.size;
                        local += shard.size;
                    }
                    expect(next == units[u], "the shards are not the unit");
                    expect(layout.shard(u) == layout.shard(u, comm.rank()), "this rank's shard");
                    expect(layout.local(u) == layout.local(u, comm.rank()), "this rank's shard in memory");
                    const auto [least, most] = std::ranges::minmax(layout.counts(u));
                    expect(most - least <= 1, "shards of a unit differ by more than one");
                }
                for (int r = 0; r < n; ++r)
                    expect(used[static_cast<std::size_t>(r)] == layout.local_size(r), "what a rank owns");
                expect(layout.local_size(0) - layout.local_size(n - 1) <= 1, "ranks differ by more than one element");
            }));
        }
}

TEST_CASE("sharded: small units go to different ranks", "[patterns]") {
    colls::threads::run(3, [](colls::communicator& comm) {
        const colls::sharded layout(comm, sizes{1, 1, 1, 2, 2});
        for (std::size_t u = 0; u < 3; ++u)
            for (int r = 0; r < 3; ++r)
                expect(layout.shard(u, r).size == (static_cast<std::size_t>(r) == u ? 1u : 0u), "units of one");
        expect(layout.counts(3) == sizes{1, 1, 0} && layout.counts(4) == sizes{1, 0, 1}, "units of two");
    });
}

TEST_CASE("sharded: all_gather after reduce_scatter is the sum over the ranks", "[patterns]") {
    for (const int n : {1, 2, 3, 5, 7})
        on_every_transport(n, [n](auto& comm) {
            for (const sizes& units : cuts) {
                const colls::sharded layout(comm, units);
                std::vector<long> in(layout.size()), out(layout.size(), -1), mine(layout.local_size());
                for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(i, comm.rank());
                std::vector<colls::operation> started;
                for (std::size_t u = 0; u < units.size(); ++u)
                    started.push_back(layout.start_reduce_scatter(
                        u, layout.unit_part(u, in), layout.local_part(u, mine), colls::sum));
                colls::wait_all(started);
                started.clear();
                for (std::size_t u = 0; u < units.size(); ++u)
                    started.push_back(layout.template start_all_gather<colls::ring>(
                        u, layout.local_part(u, mine), layout.unit_part(u, out)));
                colls::wait_all(started);
                for (std::size_t i = 0; i < out.size(); ++i) {
                    long sum = 0;
                    for (int r = 0; r < n; ++r) sum += value(i, r);
                    expect(out[i] == sum, text_of(units) + ": element " + std::to_string(i));
                }

                // In place: the shard is a part of the unit.
                for (std::size_t u = 0; u < units.size(); ++u) {
                    const auto whole = layout.unit_part(u, in);
                    const auto shard = layout.shard_part(u, whole);
                    layout.start_reduce_scatter(u, whole, shard, colls::sum).wait();
                    layout.start_all_gather(u, shard, whole).wait();
                }
                expect(in == out, text_of(units) + ": in place");
            }
        });
}

TEST_CASE("sharded: refuses units, ranks and buffers that do not exist", "[patterns]") {
    colls::communicator nothing;
    CHECK(refusal_of([&] { colls::sharded(nothing, sizes{1}); }) != "none");
    colls::threads::run(2, [](colls::communicator& comm) {
        const colls::sharded layout(comm, sizes{5, 6});
        std::vector<int> eleven(11), five(5);
        const auto says = [](const std::string& text, const std::string& part) {
            expect(lacks(text, {part}).empty(), lacks(text, {part}));
        };
        says(refusal_of([&] { layout.unit(2); }), "there is no unit 2: there are 2");
        says(refusal_of([&] { layout.shard(2); }), "there is no unit 2");
        says(refusal_of([&] { layout.local(7); }), "there is no unit 7");
        says(refusal_of([&] { layout.shard(0, 2); }), "block 2 is out of range");
        says(refusal_of([&] { layout.unit_part(0, five); }), "5 elements was given for the flat space, which has 11");
        says(refusal_of([&] { layout.shard_part(0, eleven); }), "11 elements was given for the unit, which has 5");
        says(refusal_of([&] { layout.local_part(0, eleven); }), "11 elements was given for what this rank owns");
        says(refusal_of([&] { layout.start_all_gather(2, five, eleven).wait(); }), "there is no unit 2");
        says(refusal_of([&] { layout.start_all_gather(0, five, eleven).wait(); }), "all_gather");
        const std::size_t half = std::size_t{1} << 63;
        says(refusal_of([&] { colls::sharded(comm, sizes{half, 5, half}); }), "more than 2^63 elements");
        std::vector<int> shard(layout.shard(0).size), unit(5, comm.rank());
        layout.start_reduce_scatter(0, unit, shard, colls::sum).wait();  // the group still works
        expect(shard == std::vector<int>(shard.size(), 1), "the sum after the refusals");
    });
}
