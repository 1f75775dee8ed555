// The parts of colls_perf: sizes, factors, data and their check, which must find what is wrong.
#include "catch.hpp"

#include <input.hpp>
#include <perf/chart.hpp>
#include <perf/measure.hpp>
#include <perf/report.hpp>
#include <perf/run.hpp>
#include <perf/schedule_list.hpp>
#include <perf/trial.hpp>

#include <colls/transports/threads.hpp>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>

using namespace perf;

namespace {

std::vector<buffer_pair> pairs_for(colls::communicator& comm, std::size_t bytes, int count = 1) {
    std::vector<buffer_pair> pairs;
    for (int k = 0; k < count; ++k) pairs.push_back({guarded(comm, bytes, 64, false), guarded(comm, bytes, 64, false)});
    return pairs;
}

/// Wrong elements on all ranks, where each rank makes its calls by perform(communicator, trial).
template <class F>
std::size_t wrong(int n, const call_kind& kind, std::size_t bytes, F perform) {
    std::atomic<std::size_t> all{0};
    colls::threads::run(n, [&](colls::communicator& comm) {
        const shape s = shape_of(kind.what, bytes, kind.type->size, n);
        auto pairs = pairs_for(comm, s.bytes());
        trial t(comm, kind, s, pairs);
        all += t.wrong_after(7, [&] { perform(comm, t); });
        colls::barrier(comm);
    });
    return all;
}
void write_expected(colls::communicator& comm, const trial& t, const element_type& type) {
    for (const call& c : t.calls()) type.run(comm, c);
}
const element_type& float_type() { return *type_named("float"); }

}  // namespace

TEST_CASE("perf: the bound counts what must be copied, in whole buffers", "[perf]") {
    for (const job j : {job::broadcast, job::all_gather, job::all_to_all, job::all_to_all_v})
        CHECK(least_copies(j, 4) == 3. / 4);
    for (const job j : {job::scatter, job::gather}) CHECK(least_copies(j, 4) == 3. / 16);
    for (const job j : {job::reduce, job::reduce_scatter}) CHECK(least_copies(j, 4) == 5. / 8);
    CHECK(least_copies(job::all_reduce, 4) == 1);
    CHECK(least_copies(job::barrier, 4) == 0);
    CHECK(bus_factor(job::all_reduce, 4) == 3. / 2);
    CHECK(bus_factor(job::all_gather, 4) == 3. / 4);
    CHECK(bus_factor(job::broadcast, 4) == 1);
}

TEST_CASE("perf: a chart leaves out what has no bytes or no time", "[perf]") {
    const auto measured = [](std::size_t bytes, double seconds) {
        row r;
        r.what = job::all_reduce;
        r.type = "float";
        r.ranks = 2;
        r.size = shape_of(job::all_reduce, bytes, 4, 2);
        r.out_of_place.emplace();
        r.out_of_place->time.seconds = seconds;
        return r;
    };
    const options o;
    row empty = measured(16, 1e-6);
    empty.size.whole = 0;
    const row small = measured(1024, 1e-6), large = measured(4096, 2e-6);
    const std::string alone = draw(o, {small, large}, {});
    CHECK((draw(o, {empty, small, large}, {}) == alone));
    CHECK((draw(o, {small, measured(2048, 0), large}, {}) == alone));
    CHECK((draw(o, {small, measured(2048, 3e-6), large}, {}) != alone));
}

TEST_CASE("tools: the distance of two words is the least number of letters to change", "[perf]") {
    CHECK(input::distance("", "") == 0);
    CHECK(input::distance("abc", "") == 3);
    CHECK(input::distance("", "abc") == 3);
    CHECK(input::distance("ring", "ring") == 0);
    CHECK(input::distance("ring", "rings") == 1);
    CHECK(input::distance("aring", "ring") == 1);
    CHECK(input::distance("kitten", "sitting") == 3);
    CHECK(input::distance("abcd", "bcda") == 2);
    CHECK(input::distance("abc", "xyz") == 3);
}

TEST_CASE("perf: bus bandwidth factors are those of nccl-tests", "[perf]") {
    CHECK(bus_factor(job::all_reduce, 4) == Approx(1.5));  // 2 (n - 1) / n
    CHECK(bus_factor(job::all_reduce, 2) == Approx(1));
    for (const job j : {job::all_gather, job::reduce_scatter, job::all_to_all, job::scatter, job::gather})
        CHECK(bus_factor(j, 4) == Approx(0.75));  // (n - 1) / n
    for (const job j : {job::broadcast, job::reduce, job::send_recv}) CHECK(bus_factor(j, 4) == 1);

    row r;
    r.what = job::all_reduce;
    r.ranks = 4;
    r.size = shape_of(job::all_reduce, 1 << 20, 4, 4);
    CHECK(r.bus_bandwidth(1e-3) == Approx(1.5 * 1048576 / 1e-3));
}

TEST_CASE("perf: sizes and counts are those of nccl-tests", "[perf]") {
    const shape all_reduce = shape_of(job::all_reduce, 1000, 4, 3);
    CHECK((all_reduce.count == 250 && all_reduce.in == 250 && all_reduce.out == 250 && all_reduce.bytes() == 1000));
    const shape gather = shape_of(job::all_gather, 1000, 4, 3);  // 83 elements a rank, cut to a multiple of 16 bytes
    CHECK((gather.count == 80 && gather.in == 80 && gather.out == 240 && gather.bytes() == 960));
    const shape scatter = shape_of(job::reduce_scatter, 1000, 8, 3);
    CHECK((scatter.count == 40 && scatter.in == 120 && scatter.out == 40));
    CHECK(shape_of(job::all_to_all, 8, 4, 3).bytes() == 12);  // one element a rank at the least
    CHECK(shape_of(job::barrier, 1000, 4, 3).bytes() == 0);
    for (const int n : {1, 2, 3, 7})
        for (const std::size_t count : {std::size_t{1}, std::size_t{5}, std::size_t{1000}})
            for (int r = 0; r < n; ++r) {
                std::size_t sent = 0, received = 0;
                for (int q = 0; q < n; ++q) sent += sent_by(r, q, n, count), received += sent_by(q, r, n, count);
                CHECK((sent == count * static_cast<std::size_t>(n) && received == sent));
            }
}

TEST_CASE("perf: collectives are known by the names of nccl-tests and of MPI", "[perf]") {
    for (const char* name : {"all_reduce", "allreduce", "AllReduce", "all_reduce_perf", "all-reduce"})
        CHECK(job_named(name) == job::all_reduce);
    CHECK(job_named("alltoall") == job::all_to_all);
    CHECK(job_named("sendrecv") == job::send_recv);
    CHECK(job_named("perf") == std::nullopt);
    CHECK(job_named("allreduc") == std::nullopt);
}

TEST_CASE("perf: the check of data accepts right results, of every call, type and operator", "[perf]") {
    constexpr reduction ops[] = {reduction::sum, reduction::prod, reduction::min, reduction::max, reduction::avg};
    for (const int n : {1, 2, 5}) {
        std::mutex mutex;
        std::string failures;
        colls::threads::run(n, [&](colls::communicator& comm) {
            auto pairs = pairs_for(comm, 20'000);
            for (int j = 0; j < job_count; ++j)
                for (const element_type& type : element_types())
                    for (const reduction op : ops)
                        for (const bool in_place : {false, true}) {
                            const job what = static_cast<job>(j);
                            if (type.name == "uint16" || (!reduces(what) && op != reduction::sum)) continue;
                            if (in_place ? !runs_in_place(what) : !runs_out_of_place(what)) continue;
                            if (op == reduction::avg && (what == job::inclusive_scan || what == job::exclusive_scan))
                                continue;
                            const reduction used = reduces(what) ? op : reduction::none;
                            trial t(comm, {what, &type, used, n - 1, in_place, -1, 1},
                                shape_of(what, 777, type.size, n), pairs);
                            const std::size_t found = t.wrong_after(3, [&] { write_expected(comm, t, type); });
                            const std::lock_guard lock(mutex);
                            if (found > 0)
                                failures += std::string(name_of(what)) + " " + std::string(type.name) + " " +
                                            std::string(name_of(used)) + (in_place ? " in place\n" : "\n");
                        }
        });
        CHECK(failures == "");
    }
}

TEST_CASE("perf: the check of data counts each wrong element, and each guard byte", "[perf]") {
    const call_kind kind{job::all_reduce, &float_type(), reduction::sum, 0, false, -1, 0};
    const auto spoiled = [&](auto spoil) {
        return wrong(3, kind, 4000, [&](colls::communicator& comm, trial& t) {
            write_expected(comm, t, float_type());
            if (comm.rank() == 1) spoil(t.calls().front());
        });
    };
    CHECK(spoiled([](const call&) {}) == 0);
    CHECK(spoiled([](const call& c) { c.out[40] ^= std::byte{1}; }) == 1);
    CHECK(spoiled([](const call& c) { c.out[40] ^= std::byte{1}, c.out[43] ^= std::byte{1}; }) == 1);
    CHECK(spoiled([](const call& c) { c.out[4] ^= std::byte{1}, c.out[3999] ^= std::byte{1}; }) == 2);
    CHECK(spoiled([](const call& c) { c.out[4000] ^= std::byte{1}; }) == 1);   // behind the output
    CHECK(spoiled([](const call& c) { c.out[-1] ^= std::byte{1}; }) == 1);     // before it
    CHECK(spoiled([](const call& c) { c.in[4255] ^= std::byte{1}; }) == 1);    // the last guard byte of the input
    CHECK(spoiled([](const call& c) { c.in[8] ^= std::byte{1}; }) == 1);       // the input itself
    CHECK(spoiled([](const call& c) { std::memset(c.out, 0, 4000); }) > 800);  // nearly all: some sums are 0
}

TEST_CASE("perf: the check of data finds wrong operators, lost and repeated ranks, and wrong blocks", "[perf]") {
    const auto broken = [](const call_kind& kind, auto make) {
        return wrong(3, kind, 4000, [&](colls::communicator& comm, trial& t) {
            call c = t.calls().front();
            make(comm, c);
        });
    };
    const element_type& type = float_type();
    for (const job j : {job::all_reduce, job::reduce, job::reduce_scatter, job::inclusive_scan})
        for (const reduction op : {reduction::sum, reduction::prod, reduction::min, reduction::max, reduction::avg}) {
            if (op == reduction::avg && j == job::inclusive_scan) continue;
            const call_kind kind{j, &type, op, 0, false, -1, 0};
            const reduction other = op == reduction::sum ? reduction::max : reduction::sum;
            CAPTURE(name_of(j), name_of(op));
            CHECK(broken(kind, [&](auto& comm, call c) { c.op = op, type.run(comm, c); }) == 0);
            CHECK(broken(kind, [&](auto& comm, call c) { c.op = other, type.run(comm, c); }) > 100);
        }
    const call_kind sums{job::all_reduce, &type, reduction::sum, 0, false, -1, 0};
    CHECK(broken(sums, [&](auto& comm, call c) {  // rank 2 contributes nothing
        if (comm.rank() == 2) std::memset(c.in, 0, 4000);
        type.run(comm, c);
    }) > 2000);
    CHECK(broken(sums, [&](auto& comm, call c) {  // rank 1 contributes what it had in the call before
        std::vector<std::byte> twice(4000);
        type.run(comm, c);
        std::memcpy(twice.data(), c.out, 4000);
        c.in = twice.data();
        type.run(comm, c);
    }) > 2000);
    const call_kind gathers{job::all_gather, &type, reduction::none, 0, false, -1, 0};
    CHECK(broken(gathers, [&](auto& comm, call c) {  // two blocks change places
        type.run(comm, c);
        for (std::size_t i = 0; i < c.in_count * 4; ++i) std::swap(c.out[i], c.out[c.in_count * 4 + i]);
    }) > 1900);
    const call_kind reduces_to_0{job::reduce, &type, reduction::sum, 0, false, -1, 0};
    CHECK(broken(reduces_to_0, [&](auto& comm, call c) {  // a rank that is not the root gets the result
        type.run(comm, c);
        if (comm.rank() == 2) c.out[0] = std::byte{1};
    }) == 1);
}

TEST_CASE("perf: the check of order finds operands that are swapped", "[perf]") {
    for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{8}}) {
        const element_type& type = unsigned_of(size);
        const call_kind kind{job::all_reduce, &type, reduction::compose, 0, false, -1, 0};
        CHECK(wrong(4, kind, 4000, [&](auto& comm, trial& t) { write_expected(comm, t, type); }) == 0);
        // Ranks 0 and 1 contribute what is the other's.
        CHECK(wrong(4, kind, 4000, [&](auto& comm, trial& t) {
            const call c = t.calls().front();
            if (comm.rank() < 2) type.contribute(c.in, 0, c.in_count, reduction::compose, 1 - comm.rank(), 4, 7);
            type.run(comm, c);
            if (comm.rank() < 2) type.contribute(c.in, 0, c.in_count, reduction::compose, comm.rank(), 4, 7);
        }) > 1000);
    }
}

TEST_CASE("perf: every family's schedule of scatter and gather runs by its name", "[perf]") {
    int run = 0;
    for (const auto what : {job::scatter, job::gather})
        for (const std::string& name : schedule_names()) {
            const int index = index_of(name, *collective_of(what));
            if (index < 0) continue;
            CAPTURE(name, name_of(what));
            REQUIRE(provides(name, *collective_of(what)));
            const call_kind kind{what, &float_type(), reduction::none, 2, true, index, 0};
            CHECK(wrong(5, kind, 4000, [&](auto& comm, trial& t) { write_expected(comm, t, float_type()); }) == 0);
            ++run;
        }
    CHECK(run >= 4);
    CHECK_FALSE(provides("ring", colls::collective::scatter));
    CHECK_FALSE(supports("swing", colls::collective::all_reduce, 3));
    CHECK(supports("swing", colls::collective::all_reduce, 4));
    CHECK(fewest_rounds(colls::collective::all_reduce, 5) == 1);
}

TEST_CASE("perf: a run whose library is wrong says so, in its rows and by its status", "[perf]") {
    // A type whose calls are right, but for an element of rank 1's output when it has been asked for that.
    static std::atomic<bool> spoils{false};
    static const element_type& right = float_type();
    static const element_type broken{"float", right.size,
        [](colls::communicator& comm, const call& c) {
            right.run(comm, c);
            if (spoils && comm.rank() == 1) c.out[4] ^= std::byte{1};
        },
        right.start, right.contribute, right.fold};
    options o;
    o.jobs = {job::all_reduce};
    o.types = {&broken};
    o.min_bytes = o.max_bytes = 1000;
    o.transport = "threads";
    o.json = (std::filesystem::temp_directory_path() / ("perf_test_" + std::to_string(getpid()) + ".json")).string();
    for (const bool wrong : {false, true}) {
        spoils = wrong;
        std::array<int, 3> status{};
        colls::threads::run(3, [&](auto& comm) { status[static_cast<std::size_t>(comm.rank())] = run(comm, o); });
        for (const int each : status) CHECK(each == (wrong ? wrong_data : fine));
        std::ifstream in(o.json);
        const nlohmann::json all = nlohmann::json::parse(in);
        for (const char* half : {"out_of_place", "in_place"}) CHECK(all["rows"][0][half]["wrong"] == (wrong ? 1 : 0));
        CHECK(all["out_of_bounds"] == (wrong ? 2 : 0));
    }
    std::filesystem::remove(o.json);
}

TEST_CASE("perf: -a takes rank 0, the mean, the least and the greatest", "[perf]") {
    const std::vector<double> times{3, 1, 8};
    CHECK(over_ranks(times, 0) == 3);
    CHECK(over_ranks(times, 1) == 4);
    CHECK(over_ranks(times, 2) == 1);
    CHECK(over_ranks(times, 3) == 8);
}

TEST_CASE("perf: percentiles are those of the nearest rank", "[perf]") {
    std::vector<double> hundred;
    for (int i = 100; i >= 1; --i) hundred.push_back(i);
    CHECK(percentile(hundred, 0.5) == 50);
    CHECK(percentile(hundred, 0.99) == 99);
    CHECK(percentile({3}, 0.99) == 3);
    CHECK(percentile({3, 1}, 0.5) == 1);
    CHECK(percentile({3, 1, 2}, 0.5) == 2);
}
