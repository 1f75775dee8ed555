// The library's own code under the interleavings of its ranks: tests/interleaving/scheduler.hpp says how.
#include "catch.hpp"

#include "interleaving/eager.hpp"
#include "interleaving/message.hpp"
#include "interleaving/operation.hpp"
#include "interleaving/small.hpp"
#include "support/random.hpp"

#include <cstdio>
#include <string>
#include <vector>

using namespace interleaving;

namespace {

using kind = eager_kind;

std::string text_of(const std::vector<eager_call>& calls) {
    constexpr const char* names[] = {"barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
        "inclusive_scan", "exclusive_scan", "broadcast", "reduce", "scatter_v", "gather_v", "all_to_all_v"};
    std::string text;
    for (const eager_call& c : calls) {
        text += (text.empty() ? "" : ", ") + std::string(names[static_cast<int>(c.kind)]);
        text += " " + std::to_string(c.root) + (c.is_long ? " long" : "");
    }
    return text;
}

/// Explores calls of the eager path, and counts runs.
struct explorer {
    std::uint64_t runs = 0, programs = 0;
    void operator()(int n, const std::vector<eager_call>& calls, int delays) {
        const outcome o = explore_eager(n, calls, delays);
        runs += o.runs;
        ++programs;
        if (!o.fault.empty()) FAIL(n << " ranks, " << text_of(calls) << ": " << o.fault);
    }
    ~explorer() {
        std::printf("interleavings: %llu of %llu programs\n", static_cast<unsigned long long>(runs),
            static_cast<unsigned long long>(programs));
    }
};

}  // namespace

TEST_CASE("the scheduler: finds races, lost updates and waits that do not end, and nothing else", "[interleaving]") {
    using p = small_program;
    for (const p right : {p::handed_over, p::fenced, p::added, p::polls_two, p::throws_while_held}) {
        INFO("program " << static_cast<int>(right));
        CHECK(explore_small(right, 4).fault == "");
    }
    const auto fault = [](p which, int delays = 2) { return explore_small(which, delays).fault; };
    for (const p racy : {p::flag_first, p::flag_relaxed, p::wait_relaxed})
        CHECK(fault(racy).find("a race") != fault(racy).npos);
    CHECK(fault(p::lost_update).find("wrong") != std::string::npos);
    CHECK(fault(p::crossed).find("waits for ever") != std::string::npos);
    // Only as many departures from the default order are tried as the bound says.
    CHECK(fault(p::late_by_two, 1) == "");
    CHECK(fault(p::late_by_two, 2).find("wrong") != std::string::npos);
}

TEST_CASE("eager: a slot is written again only when all ranks have read it, for every run of calls that reuses it",
    "[interleaving]") {
    explorer explore;
    for (const int n : {2, 3}) {
        const eager_call all{kind::all_reduce},
            kinds[] = {{kind::broadcast, 0}, {kind::broadcast, n - 1, true}, {kind::scan}, {kind::reduce, 0}};
        // The first call has the slot of the fifth. Of the calls between, none or one makes every rank wait for every
        // other.
        for (const eager_call& between : kinds)
            for (const eager_call& first : {all, kinds[0], kinds[1], kinds[2], kinds[3]})
                for (const int full : n == 2 ? std::vector{0, 1, 2, 3} : std::vector{0, 1}) {
                    std::vector<eager_call> calls(9, between);
                    calls[0] = calls[4] = first;
                    if (full > 0) calls[static_cast<std::size_t>(full)] = all;
                    explore(n, calls, 1);
                }
    }
}

TEST_CASE("eager: a full call, and then calls of one root", "[interleaving]") {
    explorer explore;
    for (const kind k : {kind::broadcast, kind::reduce, kind::scan}) {
        std::vector<eager_call> calls(6, {k});
        calls[0] = {kind::all_reduce, 0, true};
        explore(2, calls, 3);
        explore(3, calls, 1);
    }
}

TEST_CASE(
    "eager: calls whose lengths not all ranks know, short ones and those that go on as operations", "[interleaving]") {
    explorer explore;
    for (const int n : {2, 3})
        for (const kind k : {kind::scatter_v, kind::gather_v, kind::all_to_all_v})
            for (const kind other : {kind::scatter_v, kind::gather_v, kind::all_to_all_v})
                for (const bool turns : {false, true}) {
                    std::vector<eager_call> calls(6, {k});
                    for (int i = 0; i < 6; ++i) {
                        eager_call& c = calls[static_cast<std::size_t>(i)];
                        if (i == 1 || i == 5) c.kind = other;
                        c.root = turns ? i % n : 0;
                        c.is_long = i == 2 || i == 5;
                    }
                    explore(n, calls, n == 2 && k == other ? 2 : 1);
                }
    // More than there are places for operations.
    explore(2, std::vector<eager_call>(35, {kind::gather_v}), 1);
}

TEST_CASE("eager: calls of every kind in random order", "[interleaving]") {
    explorer explore;
    support::random_source random(2);
    for (int i = 0; i < 60; ++i) {
        const int n = i % 3 == 0 ? 3 : 2;
        std::vector<eager_call> calls;
        for (int k = 0; k < 8; ++k)
            calls.push_back({static_cast<kind>(random.below(eager_kinds)), random.between(0, n - 1), random.one_in(2)});
        explore(n, calls, 1);
    }
}

TEST_CASE("operations: buffers are accessed between their owner's entry and its exit, whichever rank is late",
    "[interleaving]") {
    using k = operation_kind_of_test;
    std::uint64_t runs = 0;
    const auto check = [&](int n, const std::vector<started_call>& calls, std::size_t in_flight, bool backwards,
                           int delays) {
        const outcome o = explore_operations(n, calls, in_flight, backwards, delays);
        runs += o.runs;
        INFO(n << " ranks, first call " << static_cast<int>(calls[0].kind) << ", in flight " << in_flight);
        CHECK(o.fault == "");
    };
    for (int first = 0; first < operation_kinds; ++first)
        for (const int n : {2, 3})
            for (const std::size_t in_flight : {1u, 2u}) {
                std::vector<started_call> calls;
                for (int i = 0; i < 3; ++i) calls.push_back({static_cast<k>((first + 2 * i) % operation_kinds), i % n});
                check(n, calls, in_flight, in_flight > 1, 1);
            }
    // More than there are places for.
    std::vector<started_call> calls(35, {k::direct_broadcast});
    check(2, calls, 35, false, 1);
    std::printf("interleavings of operations: %llu\n", static_cast<unsigned long long>(runs));
}

TEST_CASE("messages: a piece is copied in order, and its place used again only then, whichever rank is late",
    "[interleaving]") {
    constexpr std::size_t piece = std::size_t{128} << 10;
    std::uint64_t runs = 0;
    const auto check = [&](int n, const std::vector<started_message>& messages, bool reached, int delays) {
        const outcome o = explore_messages(n, messages, reached, delays);
        runs += o.runs;
        INFO(n << " ranks, the first message of " << messages[0].bytes << " bytes, "
               << (reached ? "reached" : "in pieces"));
        CHECK(o.fault == "");
    };
    check(2, {{0, 1, 64}, {0, 1, 0}, {1, 0, 64}, {0, 1, 8}, {0, 1, 64}}, true, 2);
    check(3, {{0, 1, 64}, {1, 2, 64}, {2, 0, 64}, {0, 1, 8}, {0, 2, 16}}, true, 1);
    check(2, {{0, 1, 2 * piece + 8}, {0, 1, 64}, {1, 0, 64}}, false, 1);
    check(2, {{0, 1, 3 * piece}, {0, 1, piece}}, false, 1);
    std::printf("interleavings of messages: %llu\n", static_cast<unsigned long long>(runs));
}
