// Groups of one rank that several of its threads use, each group by a thread of its own; and two threads in one group,
// which is refused.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/launch.hpp"
#include "support/own_transport.hpp"
#include "support/says.hpp"
#include "support/several_threads.hpp"

#include <colls/colls.hpp>
#include <colls/detail/group/thread_gate.hpp>
#include <colls/extend/host_map.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

constexpr int rounds = sanitized ? 1 : 3;

}  // namespace

TEST_CASE("threads: each of three threads of a rank calls with a group of its own", "[several_threads]") {
    for (const bool helped : {false, true}) {
        for (const int n : {2, 3, 5})
            on_every_transport(n, [&](colls::communicator& comm) { call_in_threads(comm, rounds, helped); });
        if (!sanitized_threads)
            CHECK_NOTHROW(
                launch_world(4, 2, [&](colls::communicator& comm) { call_in_threads(comm, rounds, helped); }));
    }
}

TEST_CASE("threads: a group is split by one thread while another one calls", "[several_threads]") {
    on_every_transport(3, [](colls::communicator& comm) {
        colls::communicator other = comm.split(0, comm.rank());
        in_threads({[&] {
                        for (int round = 0; round < 3 * rounds; ++round) {
                            colls::communicator part = comm.split(round % 2 == 0 ? 0 : comm.rank() % 2, -comm.rank());
                            make_calls(part, static_cast<std::uint64_t>(round), 3);
                        }
                    },
            [&] { make_calls(other, 77, 20 * rounds); }});
        colls::barrier(comm);
    });
}

// While a thread waits in its call, others make the calls that its peers wait for first.
TEST_CASE("threads: ranks make the calls of two groups in opposite orders", "[several_threads]") {
    on_every_transport(2, [](colls::communicator& comm) {
        colls::communicator a = comm.split(0, comm.rank()), b = comm.split(0, comm.rank());
        for (int round = 0; round < rounds; ++round) {
            std::atomic<bool> over{false};
            std::vector<int> x(1000, 1), y(1000, 2);
            if (comm.rank() == 0) {
                // Its call with `a` waits until the other rank has completed the one with `b`.
                in_threads({[&] { colls::all_reduce(a, x, colls::sum); },
                    [&] {
                        std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        colls::all_reduce(b, y, colls::sum);
                    }});
            } else {
                in_threads({[&] {
                                while (!over) std::this_thread::yield();
                                colls::all_reduce(a, x, colls::sum);
                            },
                    [&] {
                        colls::all_reduce(b, y, colls::sum);
                        over = true;
                    }});
            }
            expect(x == std::vector<int>(1000, 2) && y == std::vector<int>(1000, 4), "a sum is wrong");
        }
    });
}

TEST_CASE("threads: two threads in calls with one group are refused on all ranks", "[several_threads]") {
    for (const std::string& transport : every_transport()) {
        INFO(transport);
        CHECK_NOTHROW(run_over(transport, 2, [](colls::communicator& comm) {
            colls::communicator group = comm.split(0, comm.rank());
            std::string first, second;
            const auto text_of = [](auto call) -> std::string {
                try {
                    call();
                } catch (const colls::error& failure) {
                    return failure.what();
                }
                return "none";
            };
            if (comm.rank() == 0) {
                std::atomic<bool> begun{false};
                in_threads({[&] {
                                begun = true;
                                first = text_of([&] { colls::barrier(group); });
                            },
                    [&] {
                        while (!begun) std::this_thread::yield();
                        // Until the first one waits, this one may be the one that makes the call.
                        std::this_thread::sleep_for(std::chrono::milliseconds(50));
                        second = text_of([&] { colls::barrier(group); });
                    }});
            } else {
                colls::barrier(comm);  // the other rank comes after its two threads
                first = second = text_of([&] {
                    colls::barrier(group);  // it may have had all it needed
                    colls::barrier(group);
                });
            }
            if (comm.rank() == 0) colls::barrier(comm);
            for (const std::string& text : {first, second})
                expect(text.find("two threads are in calls with the same group") != std::string::npos,
                    "rank " + std::to_string(comm.rank()) + ": " + text);
        }));
    }
}

TEST_CASE(
    "threads: an operation that ends while another thread is in a call with its group is over", "[several_threads]") {
    on_every_transport(2, [](colls::communicator& comm) {
        colls::communicator group = comm.split(0, comm.rank());
        if (comm.rank() == 0) {
            std::vector<int> x(100'000, 1);
            std::optional<colls::operation> started(colls::start::all_reduce(group, x, colls::sum));
            in_threads({[&] {
                            try {
                                colls::barrier(group);
                            } catch (const colls::error&) {}
                        },
                [&] {
                    while (!group.context().in_call()) std::this_thread::yield();
                    started.reset();
                    expect(group.context().operations.in_flight.empty(), "it is still in flight");
                }});
        }
        colls::barrier(comm);
    });
}

TEST_CASE("threads: abort by another thread ends a call that waits", "[several_threads]") {
    on_every_transport(2, [](colls::communicator& comm) {
        colls::communicator group = comm.split(0, comm.rank());
        if (comm.rank() == 0) {
            std::string text;
            in_threads({[&] {
                            try {
                                std::vector<int> x(100'000, 1);
                                colls::all_reduce(group, x, colls::sum);
                            } catch (const colls::error& failure) {
                                text = failure.what();
                            }
                        },
                [&] {
                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                    group.abort("it takes too long");
                }});
            expect(text.find("it takes too long") != std::string::npos, "the call's error: " + text);
            colls::barrier(comm);
        } else {
            colls::barrier(comm);
            std::string text;
            try {
                colls::barrier(group);
            } catch (const colls::error& failure) {
                text = failure.what();
            }
            expect(text.find("it takes too long") != std::string::npos, "the peer's error: " + text);
        }
    });
}

TEST_CASE("threads: a group that breaks leaves the calls of another thread whole", "[several_threads]") {
    on_every_transport(3, [](colls::communicator& comm) {
        for (int round = 0; round < rounds; ++round) {
            colls::communicator breaks = comm.split(0, comm.rank()), stays = comm.split(0, comm.rank());
            in_threads({[&] {
                            std::vector<int> x(5000, 1);
                            try {
                                auto started = colls::start::all_reduce(breaks, x, colls::sum);
                                if (comm.rank() == 1) breaks.abort("on purpose");
                                started.wait();
                                colls::barrier(breaks);
                                colls::barrier(breaks);
                            } catch (const colls::error&) {}
                            breaks = breaks.shrink();
                            make_calls(breaks, static_cast<std::uint64_t>(round), 4);
                        },
                [&] { make_calls(stays, static_cast<std::uint64_t>(round), 16); }});
        }
        colls::barrier(comm);
    });
}

TEST_CASE("threads: operations, plans and memory may end in another thread", "[several_threads]") {
    on_every_transport(2, [](colls::communicator& comm) {
        colls::communicator busy = comm.split(0, comm.rank());
        in_threads({[&] {
                        for (int round = 0; round < 4 * rounds; ++round) {
                            std::optional<colls::communicator> part(comm.split(0, comm.rank()));
                            std::vector<int> x(3000, 1);
                            std::optional<colls::memory<int>> memory(part->allocate<int>(3000));
                            auto plan = colls::prepare::all_reduce(*part, *memory, colls::sum);
                            auto started = colls::start::all_reduce(*part, x, colls::sum);
                            part.reset();
                            std::thread([&, own = std::move(plan), operation = std::move(started)]() mutable {
                                operation.wait();
                                auto ends = std::move(own);
                                memory.reset();
                            }).join();
                            expect(x == std::vector<int>(3000, 2), "a sum is wrong");
                        }
                    },
            [&] { make_calls(busy, 5, 15 * rounds); }});
        colls::barrier(comm);
    });
}

TEST_CASE("threads: groups of a transport of one's own", "[several_threads]") {
    for (const int n : {2, 3}) {
        std::atomic<int> right{0};
        run_by_messages(n, [&](colls::communicator& comm) {
            std::vector<colls::communicator> parts = parts_of(comm, 3, 3);
            std::vector<std::function<void()>> calls;
            for (std::size_t i = 0; i < parts.size(); ++i)
                calls.emplace_back([&, i] { make_calls(parts[i], mix(9, i), 6 * rounds); });
            in_threads(calls);
            ++right;
        });
        CHECK(right == n);
    }
}

// A child has one thread alone: what others held when it was forked would stay closed there for ever.
TEST_CASE("threads: a process forks while others use what it has once", "[several_threads]") {
    const auto use = [](int i) { return colls::host_map(std::vector<int>{0, i % 64, i % 7}).hosts(); };
    std::atomic<bool> over{false};
    std::vector<std::thread> others;
    for (int t = 0; t < 2; ++t)
        others.emplace_back([&] {
            for (int i = 0; !over.load(std::memory_order_relaxed); ++i) use(i);
        });
    int status = 0;
    for (int i = 0; status == 0 && i < 100; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            use(i);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child) status = -1;
    }
    over.store(true, std::memory_order_relaxed);
    for (std::thread& t : others) t.join();
    CHECK(status == 0);
}

TEST_CASE("gate: one thread at a time is inside, whoever owns it", "[several_threads]") {
    colls::detail::group_cycle cycle;
    long inside = 0, entered = 0;  // not atomic, on purpose
    std::atomic<bool> twice{false};
    const auto enter = [&](int times, bool waits) {
        for (int i = 0; i < times; ++i) {
            const colls::detail::gate_lock lock(&cycle);
            const auto work = [&] {
                if (++inside != 1) twice = true;
                ++entered;
                --inside;
            };
            work();
            if (!waits || i % 3 != 0) continue;
            if (i % 2 == 0)
                colls::detail::gate_lock::let_others_in();
            else
                const colls::detail::gate_lock::open_gate others_may_come;
            work();
        }
    };
    constexpr int times = sanitized ? 3'000 : 20'000;
    enter(times, false);  // this thread owns it, until the first of the others comes
    for (int round = 0; round < 4; ++round) {
        in_threads(
            {[&] { enter(times, true); }, [&] { enter(times, round % 2 == 0); }, [&] { enter(times / 10, true); }});
        enter(100 << (4 * round), true);  // alone again, until it owns the gate
    }
    CHECK_FALSE(twice);
    CHECK(inside == 0);
    CHECK(entered > 8 * times);
}
