// Operations that coroutines await: results, the order in which coroutines are resumed, errors, coroutines that are
// destroyed, and memory.
#include "catch.hpp"

#include "support/allocations.hpp"
#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/interop/coroutine.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <span>
#include <vector>

using namespace support;
namespace interop = colls::interop;
using interop::loop;
using interop::resume_order;
using interop::task;

namespace {

/// What rank `rank` contributes to call `call`.
std::vector<long> numbers(int rank, std::size_t count, int call) {
    std::vector<long> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = 1000 * call + 17 * rank + static_cast<long>(i % 101);
    return x;
}
std::vector<long> sum_of(int ranks, std::size_t count, int call) {
    std::vector<long> x(count, 0);
    for (int r = 0; r < ranks; ++r) {
        const auto own = numbers(r, count, call);
        for (std::size_t i = 0; i < count; ++i) x[i] += own[i];
    }
    return x;
}

/// Three calls, one after the other, each compared with loops over ranks and elements.
task<> three_calls(colls::communicator& comm, std::size_t count, int salt) {
    const int n = comm.size(), rank = comm.rank();
    auto x = numbers(rank, count, salt);
    co_await colls::start::all_reduce(comm, x, colls::sum);
    expect(x == sum_of(n, count, salt), "all_reduce of call " + std::to_string(salt));

    const int root = salt % n;
    auto y = numbers(rank, count, salt + 1);
    co_await colls::start::broadcast(comm, y, root);
    expect(y == numbers(root, count, salt + 1), "broadcast of call " + std::to_string(salt));

    const auto own = numbers(rank, count, salt + 2);
    std::vector<long> all(count * static_cast<std::size_t>(n)), want;
    for (int r = 0; r < n; ++r) {
        const auto of = numbers(r, count, salt + 2);
        want.insert(want.end(), of.begin(), of.end());
    }
    co_await colls::start::all_gather(comm, own, all);
    expect(all == want, "all_gather of call " + std::to_string(salt));
}

colls::errc code_of(const std::exception_ptr& failure) {
    try {
        if (failure) std::rethrow_exception(failure);
    } catch (const colls::error& e) {
        return e.code();
    }
    return {};
}

}  // namespace

TEST_CASE("coroutines: many on one communicator give the results of a serial reference", "[interop]") {
    for (const int n : {1, 2, 3, 5})
        on_every_transport(n, [](colls::communicator& comm) {
            std::vector<task<>> tasks;
            const std::size_t counts[] = {0, 1, 7, 1000, 20'001};
            for (int i = 0; i < 40; ++i) tasks.push_back(three_calls(comm, counts[i % 5], 10 * i));
            interop::run(tasks);
        });
}

TEST_CASE("coroutines: resumed as they finish, each on a communicator of its own", "[interop]") {
    for (const int n : {2, 3})
        on_every_transport(n, [](colls::communicator& comm) {
            std::vector<colls::communicator> own;
            for (int i = 0; i < 6; ++i) own.push_back(comm.split(0, comm.rank()));
            std::vector<task<>> tasks;
            for (int i = 0; i < 6; ++i)
                tasks.push_back(three_calls(own[static_cast<std::size_t>(i)], i % 2 ? 3 : 50'000, 10 * i));
            loop l(resume_order::as_finished);
            interop::run(l, tasks);
        });
}

TEST_CASE(
    "coroutines: by default they are resumed in the order in which their waits began, on every rank", "[interop]") {
    colls::threads::run(3, [](colls::communicator& comm) {
        std::vector<int> log;
        const auto two = [&](int id, std::size_t count) -> task<> {
            auto x = numbers(comm.rank(), count, id);
            co_await colls::start::all_reduce(comm, x, colls::sum);
            log.push_back(id);
            co_await colls::start::all_reduce(comm, x, colls::sum);
            log.push_back(100 + id);
        };
        std::vector<task<>> tasks;
        std::vector<int> want;
        for (int i = 0; i < 20; ++i) {
            tasks.push_back(two(i, i % 3 == 0 ? 100'000 : 1));
            want.push_back(i);
        }
        for (int i = 0; i < 20; ++i) want.push_back(100 + i);
        interop::run(tasks);
        expect(log == want, "resumed in another order");
    });
}

namespace {

/// Rank 0's first coroutine waits for a message that rank 1 sends only after the second one has gone on.
void wait_in_a_cross(colls::communicator& comm, resume_order order) {
    int a = 0, b = 0, c = 7;
    const auto first = [&]() -> task<> { co_await colls::start::recv(comm, std::span(&a, 1), 1); };
    const auto second = [&]() -> task<> {
        co_await colls::start::recv(comm, std::span(&b, 1), 2);
        co_await colls::start::send(comm, std::span(&c, 1), 1);
    };
    loop l(order);
    if (comm.rank() == 0) {
        interop::run(l, first(), second());
        expect(a == 5 && b == 6, "the messages are others");
    } else if (comm.rank() == 1) {
        int x = 0, y = 5;
        colls::recv(comm, std::span(&x, 1), 0);
        expect(x == 7, "the message is another");
        colls::send(comm, std::span(&y, 1), 0);
    } else {
        int x = 6;
        colls::send(comm, std::span(&x, 1), 0);
    }
}

}  // namespace

TEST_CASE("coroutines: as_finished resumes what is over, before waits that began earlier", "[interop]") {
    on_every_transport(3, [](colls::communicator& comm) { wait_in_a_cross(comm, resume_order::as_finished); });
}

TEST_CASE("coroutines: waits have the deadline of the communicator", "[interop]") {
    for (const resume_order order : {resume_order::as_started, resume_order::as_finished})
        colls::threads::run(2, [&](colls::communicator& comm) {
            comm.set_timeout(std::chrono::milliseconds(200));
            if (comm.rank() == 1) {
                // Comes too late.
                while (true) try {
                        std::this_thread::sleep_for(std::chrono::milliseconds(20));
                        (void)colls::probe_any(comm);
                    } catch (const colls::error&) {
                        return;
                    }
            }
            int x = 1;
            const auto waits = [&]() -> task<> { co_await colls::start::recv(comm, std::span(&x, 1), 1); };
            loop l(order);
            std::vector<task<>> tasks;
            tasks.push_back(waits());
            try {
                interop::run(l, tasks);
                expect(false, "there is no deadline");
            } catch (const colls::error& e) {
                expect(e.code() == colls::errc::timeout, std::string("another error: ") + e.what());
            }
        });
}

TEST_CASE("coroutines: a call that is refused throws in its coroutine, and the others go on", "[interop]") {
    on_every_transport(2, [](colls::communicator& comm) {
        std::string said;
        const auto wrong = [&]() -> task<> {
            std::vector<int> x(3);
            try {
                co_await colls::start::broadcast(comm, x, 7);
            } catch (const colls::error& e) {
                said = e.what();
            }
            co_await colls::start::broadcast(comm, x, 1);
        };
        interop::run(three_calls(comm, 10, 1), wrong(), three_calls(comm, 10, 2));
        expect(says(said, "root 7 is out of range"), "it says: " + said);
    });
}

TEST_CASE("coroutines: run waits for all, and throws what the first of its tasks has thrown", "[interop]") {
    on_every_transport(2, [](colls::communicator& comm) {
        int over = 0;
        const auto throws = [&](int at) -> task<> {
            int x = 1;
            co_await colls::start::all_reduce(comm, std::span(&x, 1), colls::sum);
            ++over;
            throw std::out_of_range("task " + std::to_string(at));
        };
        std::string said;
        try {
            interop::run(three_calls(comm, 10, 1), throws(1), throws(2), three_calls(comm, 5000, 2));
        } catch (const std::out_of_range& e) {
            said = e.what();
        }
        expect(said == "task 1" && over == 2, "it throws: " + said);
        int x = 1;
        colls::all_reduce(comm, std::span(&x, 1), colls::sum);
        expect(x == 2, "the group goes on");
    });
}

TEST_CASE("coroutines: co_await throws the error of an operation that fails", "[interop]") {
    for (const resume_order order : {resume_order::as_started, resume_order::as_finished})
        for (const int n : {2, 3})
            colls::threads::run(n, [&](colls::communicator& comm) {
                if (comm.rank() == 1) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(10));
                    return comm.abort("no more");
                }
                std::vector<std::vector<long>> x(5, std::vector<long>(30'000));
                int caught = 0;
                const auto one = [&](int i) -> task<> {
                    try {
                        co_await colls::start::all_reduce(comm, x[static_cast<std::size_t>(i)], colls::sum);
                    } catch (const colls::error& e) {
                        if (says(e.what(), "no more")) ++caught;
                        throw;
                    }
                };
                std::vector<task<>> tasks;
                for (int i = 0; i < 5; ++i) tasks.push_back(one(i));
                loop l(order);
                try {
                    interop::run(l, tasks);
                    expect(false, "no error");
                } catch (const colls::error& e) {
                    expect(e.code() == colls::errc::peer_failed, std::string("another error: ") + e.what());
                }
                expect(caught == 5, std::to_string(caught) + " of 5 have caught it");
                for (const auto& t : tasks) expect(code_of(t.failure()) == colls::errc::peer_failed, "no failure");
            });
}

TEST_CASE(
    "coroutines: one that is destroyed while it waits waits for its operation, and the rest goes on", "[interop]") {
    for (const resume_order order : {resume_order::as_started, resume_order::as_finished})
        on_every_transport(3, [&](colls::communicator& comm) {
            std::vector<std::vector<long>> x(3);
            bool went_on[3] = {};
            const auto one = [&](std::size_t i) -> task<> {
                co_await colls::start::all_reduce(comm, x[i], colls::sum);
                went_on[i] = true;
            };
            for (std::size_t i = 0; i < 3; ++i) x[i] = numbers(comm.rank(), 2000, static_cast<int>(i));
            for (const std::size_t gone : {0u, 1u, 2u}) {
                loop l(order);
                std::vector<task<>> tasks;
                for (std::size_t i = 0; i < 3; ++i) {
                    x[i] = numbers(comm.rank(), 2000, static_cast<int>(i));
                    went_on[i] = false;
                    tasks.push_back(one(i));
                    tasks.back().start(l);
                }
                tasks.erase(tasks.begin() + static_cast<std::ptrdiff_t>(gone));
                l.run();
                for (std::size_t i = 0; i < 3; ++i) {
                    expect(x[i] == sum_of(3, 2000, static_cast<int>(i)), "the sum is another");
                    // As they finish, it may have gone on before it was destroyed.
                    if (i != gone || order == resume_order::as_started)
                        expect(went_on[i] == (i != gone), "it went on, or another did not");
                }
            }
        });
}

TEST_CASE("coroutines: one destroys another that waits in the same loop", "[interop]") {
    for (const resume_order order : {resume_order::as_started, resume_order::as_finished})
        for (const int victim : {0, 1, 2, 3})
            colls::threads::run(2, [&](colls::communicator& comm) {
                std::vector<colls::communicator> own;
                for (int i = 0; i < 4; ++i) own.push_back(comm.split(0, comm.rank()));
                std::vector<std::optional<task<>>> tasks(4);
                int ended = 0;
                bool all_started = false;
                const auto one = [&](int i) -> task<> {
                    long x = 1;
                    co_await colls::start::all_reduce(own[static_cast<std::size_t>(i)], std::span(&x, 1), colls::sum);
                    if (i == victim) co_return;
                    ++ended;
                    if (all_started) tasks[static_cast<std::size_t>(victim)].reset();
                };
                loop l(order);
                for (int i = 0; i < 4; ++i) tasks[static_cast<std::size_t>(i)].emplace(one(i));
                for (auto& t : tasks) t->start(l);
                all_started = true;
                l.run();
                expect(ended == 3, std::to_string(ended) + " have ended");
            });
}

TEST_CASE("coroutines: the operations of plans, operations with names, and empty ones", "[interop]") {
    on_every_transport(3, [](colls::communicator& comm) {
        auto x = numbers(comm.rank(), 300, 1);
        auto plan = colls::prepare::all_reduce(comm, x, colls::max);
        const auto body = [&]() -> task<int> {
            for (int i = 0; i < 5; ++i) {
                std::ranges::copy(numbers(comm.rank(), 300, i), x.begin());
                co_await plan.start();
                expect(x == numbers(2, 300, i), "the maximum is another");
            }
            colls::operation named = plan.start();
            co_await named;
            expect(named.empty(), "it is not over");
            co_await named;
            co_await colls::operation();
            co_return 11;
        };
        auto t = body();
        loop l;
        t.start(l);
        l.run();
        expect(t.done() && t.get() == 11, "it returns something else");
    });
}

namespace {

task<long> sum_over_ranks(colls::communicator& comm, long x) {
    co_await colls::start::all_reduce(comm, std::span(&x, 1), colls::sum);
    co_return x;
}
task<std::vector<long>> sums(colls::communicator& comm) {
    std::vector<long> all;
    for (long i = 0; i < 3; ++i) all.push_back(co_await sum_over_ranks(comm, i));
    if (all.size() != 3) throw std::logic_error("never");
    co_return all;
}
task<> fails_within(colls::communicator& comm) {
    co_await sum_over_ranks(comm, 1);
    throw std::out_of_range("within");
}
task<std::string> catches(colls::communicator& comm) {
    try {
        co_await fails_within(comm);
    } catch (const std::out_of_range& e) {
        co_return e.what();
    }
    co_return "nothing";
}

/// A coroutine type that knows nothing of the library.
struct foreign {
    struct promise_type {
        foreign get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { throw; }
    };
    std::coroutine_handle<promise_type> h;
};

}  // namespace

TEST_CASE("coroutines: tasks await tasks, with results and exceptions", "[interop]") {
    colls::threads::run(4, [](colls::communicator& comm) {
        auto t = sums(comm);
        auto u = catches(comm);
        loop l;
        t.start(l);
        u.start(l);
        l.run();
        expect(t.get() == std::vector<long>{0, 4, 8}, "the sums are others");
        expect(u.get() == "within", "nothing was caught");
    });
}

TEST_CASE("coroutines: without a loop co_await waits; another coroutine type is resumed by a loop", "[interop]") {
    colls::threads::run(3, [](colls::communicator& comm) {
        long x = 1;
        const auto body = [&]() -> foreign {
            co_await colls::start::all_reduce(comm, std::span(&x, 1), colls::sum);
            x += 10;
        };
        foreign f = body();
        expect(f.h.done() && x == 13, "it did not wait");
        f.h.destroy();
        std::vector<long> many(100'000, 1);
        const auto named = [&]() -> foreign {
            colls::operation o = colls::start::all_reduce(comm, many, colls::sum);
            co_await o;
            expect(o.empty(), "it did not wait for an operation with a name");
        };
        f = named();
        f.h.destroy();
        loop l;
        l.within([&] { f = body(); });
        expect(!f.h.done(), "it waited");
        while (l.poll()) std::this_thread::yield();
        expect(f.h.done() && x == 49, "it was not resumed");
        f.h.destroy();
    });
}

TEST_CASE("coroutines: one runs a loop of its own, and then waits in the outer one again", "[interop]") {
    colls::threads::run(3, [](colls::communicator& comm) {
        long x = 1;
        bool went_on = false;
        const auto outer = [&]() -> task<> {
            co_await colls::start::all_reduce(comm, std::span(&x, 1), colls::sum);
            interop::run(three_calls(comm, 100, 1), three_calls(comm, 10, 2));
            co_await colls::start::all_reduce(comm, std::span(&x, 1), colls::sum);
            expect(went_on, "it waited in no loop");
        };
        const auto another_group = [&]() -> task<> {
            long y = 1;
            co_await colls::start::all_reduce(comm, std::span(&y, 1), colls::sum);
            went_on = true;
        };
        interop::run(outer(), another_group());
        expect(x == 9, "the sum is another");
    });
}

TEST_CASE("coroutines: run refuses to wait for what is no operation", "[interop]") {
    colls::threads::run(2, [](colls::communicator& comm) {
        const auto stuck = []() -> task<> { co_await std::suspend_always{}; };
        const std::string said = refusal_of([&] { interop::run(three_calls(comm, 3, 1), stuck()); });
        expect(says(said, "not an operation of this rank"), "it says: " + said);
    });
}

TEST_CASE("coroutines: 100 operations in flight allocate nothing", "[interop]") {
#if defined(__GLIBC__) && !defined(TESTS_SANITIZED)
    for (const resume_order order : {resume_order::as_started, resume_order::as_finished})
        colls::threads::run(2, [&](colls::communicator& comm) {
            std::vector<colls::communicator> lane;
            for (int i = 0; i < 100; ++i) lane.push_back(comm.split(0, comm.rank()));
            std::vector<std::vector<long>> x(100, std::vector<long>(500, 1));
            std::size_t waiting = 0, most = 0;
            const auto one = [&](std::size_t i, int calls) -> task<> {
                for (int k = 0; k < calls; ++k) {
                    colls::operation o = colls::start::all_reduce(lane[i], x[i], colls::max);
                    most = std::max(most, ++waiting);
                    co_await o;
                    --waiting;
                }
            };
            for (const bool counted : {false, true}) {
                std::vector<task<>> tasks;
                for (std::size_t i = 0; i < 100; ++i) tasks.push_back(one(i, 6));
                loop l(order);
                colls::barrier(comm);
                allocations = 0;
                colls::barrier(comm);
                counting = counted;
                interop::run(l, tasks);
                counting = false;
                colls::barrier(comm);
                expect(allocations == 0, std::to_string(allocations) + " allocations");
            }
            colls::barrier(comm);
            { const std::vector<int> seen((counting = true, 100)); }  // the counter counts
            counting = false;
            colls::barrier(comm);
            expect(allocations == comm.size(), "the counter does not count");
            // As they finish, some may be over when they have just been started.
            expect(most == 100 || order == resume_order::as_finished, std::to_string(most) + " were in flight");
        });
#endif
}
