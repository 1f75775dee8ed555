// The names that programs rely on: each is used here as a program uses it. A change that breaks this file breaks them.
#include "catch.hpp"

#include <colls/bootstrap.hpp>
#include <colls/colls.hpp>
#include <colls/exact.hpp>
#include <colls/schedules/bine.hpp>
#include <colls/schedules/bruck.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/double_tree.hpp>
#include <colls/schedules/halving_doubling.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/host_hierarchy.hpp>
#include <colls/schedules/pat.hpp>
#include <colls/schedules/pipelined_broadcast.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/swing.hpp>
#include <colls/schedules/tree.hpp>
#include <colls/testing/schedule.hpp>
#include <colls/testing/transport.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/tcp.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

using colls::collective;

struct own_all_gather {
    static constexpr collective implements = collective::all_gather;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
        return colls::step{
            .send = {to, colls::block(rank)}, .recv = {from, colls::block_range(from, 1), colls::action::copy}};
    }
};

static_assert(colls::schedule<own_all_gather>);
static_assert(colls::proven<own_all_gather, 9> && colls::proven_at<own_all_gather, 12>);
static_assert(colls::verify<own_all_gather>(5).ok());
static_assert(colls::none == -1 && colls::action::reduce != colls::action::copy);
static_assert(colls::proven<colls::reversed<own_all_gather>, 6>);
using own_all_reduce = colls::compose<colls::reversed<own_all_gather>, own_all_gather>;
static_assert(colls::proven<own_all_reduce, 6> && colls::proven<colls::folded<own_all_reduce>, 6>);
static_assert(colls::cost_of<own_all_gather>(8).rounds == 7 && colls::cost_of<own_all_gather>(8).blocks_sent == 7);
static_assert(colls::proven<colls::hierarchical<colls::ring, colls::ring>, 4>);
static_assert(colls::schedule<colls::striped<own_all_gather, own_all_gather>>);
static_assert(colls::one_expression<colls::recursive_doubling::all_reduce>);
static_assert(colls::single_fold<colls::direct::reduce_scatter> && !colls::one_expression<own_all_reduce>);

/// Ranks the other way round.
struct mirror {
    static constexpr int role(int rank, int n) { return n - 1 - rank; }
    static constexpr int rank(int role, int n) { return n - 1 - role; }
};
static_assert(colls::proven<colls::permuted<own_all_gather, mirror>, 5>);

template <class... F>
constexpr bool families = (colls::family<F> && ...);
static_assert(families<colls::ring, colls::circulant<>, colls::halving_doubling, colls::recursive_doubling,
    colls::tree<>, colls::tree<4>, colls::double_tree, colls::direct, colls::bruck<>, colls::bruck<3>, colls::swing,
    colls::bine, colls::pat<>, colls::pat<2>, colls::pipelined_broadcast>);

constexpr std::array collectives = {collective::broadcast, collective::scatter, collective::gather,
    collective::all_gather, collective::reduce, collective::reduce_scatter, collective::all_reduce,
    collective::all_to_all, collective::barrier, collective::inclusive_scan, collective::exclusive_scan};

}  // namespace

TEST_CASE("fixed names: proof and cost", "[fixed_names]") {
    const colls::report r = colls::verify<own_all_gather>(7);
    CHECK(r.ok());
    CHECK(
        std::tuple(r.rank, r.round, r.port, r.block) == std::tuple(colls::none, colls::none, colls::none, colls::none));
    CHECK(static_cast<int>(r.law) == 0);
    CHECK_FALSE(r.text().empty());
    const colls::cost c = colls::cost_of<own_all_gather>(8);
    CHECK(std::tuple(c.rounds, c.blocks_sent, c.blocks_received, c.ports) == std::tuple(7, 7L, 7L, 1));
    CHECK(c.scratch >= 0);
    CHECK(c.seconds({.alpha = 1, .beta = 0, .gamma = 0}, 8) == 7);
    CHECK(collectives.size() == 11);
}

TEST_CASE("fixed names: calls", "[fixed_names]") {
    constexpr int n = 3;
    std::atomic<int> wrong = 0;
    const auto expect = [&](bool holds) { wrong += !holds; };
    colls::threads::run(n, [&](auto& comm) {
        const int rank = comm.rank();
        expect(comm.size() == n);
        const std::vector<int> one(1, rank + 1), three(n, rank + 1), nothing;
        std::vector<int> x(n, rank + 1), block(1), all(n);
        colls::all_reduce(comm, x, colls::sum);
        expect(x == std::vector<int>(n, 6));
        colls::all_reduce<colls::ring>(comm, three, x, colls::max);
        expect(x == std::vector<int>(n, 3));
        colls::all_reduce<own_all_reduce>(comm, three, x, colls::commutative([](int a, int b) { return a + b; }));
        expect(x == std::vector<int>(n, 6));
        colls::reduce_scatter(comm, three, block, colls::min);
        expect(block[0] == 1);
        colls::all_gather<own_all_gather>(comm, one, all);
        expect(all == std::vector<int>({1, 2, 3}));
        colls::broadcast(comm, block, 1);
        colls::reduce(comm, three, x, colls::prod, 0);
        if (rank == 0) expect(x == std::vector<int>(n, 6));
        colls::gather(comm, one, all, 2);
        colls::scatter(comm, all, block, 2);
        if (rank == 2) expect(all == std::vector<int>({1, 2, 3}));
        expect(block[0] == rank + 1);
        std::iota(x.begin(), x.end(), 10 * rank);
        colls::all_to_all(comm, x, all);
        expect(all == std::vector<int>({rank, 10 + rank, 20 + rank}));
        colls::barrier(comm);
        colls::inclusive_scan(comm, one, block, colls::sum);
        expect(block[0] == (rank + 1) * (rank + 2) / 2);
        colls::exclusive_scan(comm, one, block, colls::sum);
        const std::array<int, n> counts = {1, 1, 1};
        colls::gather_v(comm, one, all, counts, 0);
        colls::scatter_v(comm, all, block, counts, 0);
        colls::all_gather_v(comm, one, all, counts);
        colls::reduce_scatter_v(comm, three, block, counts, colls::bit_or);
        colls::all_to_all_v(comm, x, all, counts, counts);
        if (rank == 0) colls::send(comm, one, 1);
        if (rank == 1) colls::recv(comm, block, 0);

        colls::operation started = colls::start::all_reduce(comm, x, colls::bit_and);
        started.test();
        started.wait_for(std::chrono::microseconds(1));
        started.wait();
        colls::plan prepared = colls::prepare::all_reduce(comm, x, colls::bit_xor);
        prepared.run();
        prepared.start().wait();
        std::vector<double> d(4, 1.0);
        colls::all_reduce(comm, d, colls::avg);
        colls::all_reduce(comm, d, colls::premul_sum(2.0));
        expect(d == std::vector<double>(4, 6.0));

        auto part = comm.split(rank % 2, rank);
        expect(part.size() == (rank % 2 ? 1 : 2));
        auto memory = comm.template allocate<float>(16);
        colls::all_reduce<colls::automatic>(comm, memory, colls::sum);
        colls::all_reduce(comm, std::span<float>(memory.data(), memory.size()), colls::sum, colls::ring{});
    });
    CHECK(wrong == 0);
}

TEST_CASE("fixed names: messages, several operations, exact and reproducible sums", "[fixed_names]") {
    std::atomic<int> wrong = 0;
    const auto expect = [&](bool holds) { wrong += !holds; };
    colls::threads::run(2, [&](auto& comm) {
        const int rank = comm.rank(), peer = 1 - rank;
        const std::vector<int> out(1, rank);
        std::vector<int> in(1);
        colls::exchange(comm, out, peer, in, peer);
        expect(in[0] == peer);
        if (rank == 0) colls::send(comm, out, 1);
        if (rank == 1) expect(colls::recv_any(comm, in) == 0);
        std::vector<float> x(2, 0.5f), y(2, 0.5f);
        auto a = colls::start::all_reduce(comm, x, colls::sum), b = colls::start::all_reduce(comm, y, colls::sum);
        colls::wait_all(a, b);
        std::vector<colls::operation> none;
        expect(colls::wait_any(none) == colls::none);
        colls::all_reduce<colls::reproducible>(comm, x, colls::sum);
        colls::all_reduce(comm, y, colls::exact);
        expect(x[1] == 2 && y[1] == 2);
        colls::exact_sum<double> total;
        total += 0.25;
        colls::all_reduce(comm, std::span(&total, 1), colls::sum);
        expect(total.value() == 0.5);
        std::vector<colls::value_index<double>> least(1, {.value = 1.0 + rank, .index = rank});
        colls::all_reduce(comm, least, colls::minloc);
        expect(least[0].index == 0);
        colls::all_reduce(comm, least, colls::maxloc);
    });
    CHECK(wrong == 0);
    void (colls::communicator::* const abort)(std::string_view) = &colls::communicator::abort;
    CHECK(abort != nullptr);
    colls::communicator (*const bootstrap)(
        int, int, colls::key_value_store&, std::string_view, const colls::bootstrap_options&) = &colls::bootstrap;
    CHECK(bootstrap != nullptr);
    CHECK(colls::family<colls::host_hierarchy<colls::ring>>);
}

TEST_CASE("fixed names: errors, processes and world", "[fixed_names]") {
    try {
        colls::threads::run(2, [](auto& comm) {
            std::vector<int> x(1);
            colls::broadcast(comm, x, 7);
        });
        FAIL("a root that is out of range was accepted");
    } catch (const colls::error& e) {
        const std::runtime_error& base = e;
        CHECK(std::string(base.what()).find("root 7") != std::string::npos);
        CHECK(e.code() == colls::errc::invalid_argument);
        CHECK(std::tuple(e.peer(), e.round()) == std::tuple(colls::none, colls::none));
        CHECK(e.rank() >= 0);
    }
    CHECK_NOTHROW(colls::processes::run(2, [](auto& comm) { colls::barrier(comm); }));
    colls::communicator (*const world)() = &colls::world;
    CHECK(world != nullptr);
    colls::communicator (colls::communicator::* const shrink)() = &colls::communicator::shrink;
    CHECK(shrink != nullptr);
}
