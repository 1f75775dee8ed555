// Communicators, operations, plans, memory and progress threads may be destroyed in any order, also in a broken group;
// and calls that the state of an object does not allow are rejected.
#include "catch.hpp"

#include "support/batch.hpp"
#include "support/every_transport.hpp"
#include "support/own_transport.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>
#include <colls/transports/threads.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace support;

namespace {

// The library's own objects are not initialised yet.
const int sum_before_main = [] {
    std::atomic<int> sum{0};
    run_by_messages(3, [&](colls::communicator& comm) {
        std::vector<int> data{comm.rank() + 1, 0};
        colls::all_reduce<colls::ring>(comm, data, colls::sum);
        sum += data[0];
    });
    return sum.load();
}();

}  // namespace

TEST_CASE("lifetime: calls by messages before main", "[lifetime]") { CHECK(sum_before_main == 18); }

TEST_CASE("lifetime: an operation completes after its communicator has been replaced", "[lifetime]") {
    on_every_transport(3, [](colls::communicator& comm) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
            colls::communicator part = comm.split(0, comm.rank());
            std::vector<int> data(count, comm.rank());
            auto started = colls::start::all_reduce(part, data, colls::sum);
            part = comm.split(0, -comm.rank());
            colls::barrier(part);
            part = {};
            started.wait();
            expect(data == std::vector<int>(count, 3), "the operation's result is wrong");
        }
        colls::barrier(comm);
    });
}

TEST_CASE("lifetime: plans, operations, memory and progress threads outlive their communicator", "[lifetime]") {
    on_every_transport(3, [](colls::communicator& comm) {
        std::optional<colls::communicator> part(comm.split(0, comm.rank()));
        colls::memory<int> data = part->allocate<int>(50'000);
        std::optional<colls::plan> plan(colls::prepare::all_reduce(*part, data, colls::sum));
        std::optional<colls::progress_thread> helper(*part);
        part.reset();
        for (int turn = 0; turn < 3; ++turn) {
            std::fill(data.begin(), data.end(), turn);
            plan->run();
            expect(data[49'999] == 3 * turn, "a plan's result is wrong");
        }
        std::fill(data.begin(), data.end(), 5);
        colls::operation started = plan->start();
        plan.reset();
        helper.reset();
        started.wait();
        expect(data[7] == 15, "the result is wrong where the plan has gone before its operation");
        colls::barrier(comm);
    });
}

TEST_CASE("lifetime: a rank leaves its group when the last object that holds it is destroyed", "[lifetime]") {
    std::atomic<int> named{0};
    colls::threads::run(2, [&](colls::communicator& comm) {
        std::optional<colls::communicator> part(comm.split(0, comm.rank()));
        std::vector<int> data(5, 1);
        if (comm.rank() == 0) {
            colls::plan held = colls::prepare::all_reduce(*part, data, colls::sum);
            part.reset();
            held.run();
        } else {
            colls::all_reduce(*part, data, colls::sum);
            try {
                colls::all_reduce(*part, data, colls::sum);
            } catch (const colls::error& failure) {
                named += failure.code() == colls::errc::peer_failed && failure.peer() == 0;
            }
        }
        colls::barrier(comm);
    });
    CHECK(named == 1);
}

TEST_CASE("lifetime: a broken group shrinks while one of its operations is in scope", "[lifetime]") {
    if (sanitized_threads) return;
    for (const std::string& transport : process_transports())
        for (const bool waits_first : {false, true})
            for (const std::size_t count : {std::size_t{3}, std::size_t{200'000}}) {
                common<std::array<std::atomic<int>, 6>> counted;
                auto& right = *counted;
                try {
                    run_over(transport, 4, [&](colls::communicator& comm) {
                        std::vector<int> data(count, 1), once_more(count, 1);
                        auto plan = colls::prepare::all_reduce(comm, once_more, colls::sum);
                        plan.run();
                        const colls::progress_thread helper(comm);
                        right[3] += 1;
                        while (right[3] < 4) std::this_thread::yield();  // no rank is in the plan's call any more
                        auto started = colls::start::all_reduce(comm, data, colls::sum);
                        right[4] += 1;
                        while (right[4] < 4) std::this_thread::yield();
                        if (comm.rank() == 2) raise(SIGKILL);
                        try {
                            if (waits_first) started.wait();
                            colls::barrier(comm);
                            colls::barrier(comm);
                            right[1] += 1;
                        } catch (const colls::error&) {
                            if (waits_first) right[2] += started.test();  // it is over, by an error or before it
                            comm = comm.shrink();
                            right[5] += comm.context()
                                            .operations.cycle->gate.is_shared();  // the progress thread serves it, too
                            std::vector<int> again(count, 1);
                            colls::all_reduce(comm, again, colls::sum);
                            right[0] += again == std::vector<int>(count, 3);
                        }
                        try {
                            plan.run();
                            right[1] += 1;
                        } catch (const colls::error&) {}
                        colls::barrier(comm);
                    });
                } catch (const colls::error& failure) {
                    INFO(failure.what());
                    CHECK(failure.peer() == 2);
                }
                INFO(transport << ", waits first: " << waits_first << ", count " << count);
                CHECK(right[0] == 3);
                CHECK(right[1] == 0);
                CHECK(right[5] == 3);
                CHECK(right[2] == (waits_first ? 3 : 0));
            }
}

TEST_CASE("lifetime: an exception that leaves a rank's function does not wait for its operations", "[lifetime]") {
    std::vector<std::string> thrown;
    for (const bool message : {false, true}) {
        std::atomic<int> heard{0};
        try {
            colls::threads::run(3, [&](colls::communicator& comm) {
                std::vector<int> data(50'000, 1);
                if (comm.rank() == 0) {
                    auto started =
                        message ? colls::start::send(comm, data, 1) : colls::start::all_reduce(comm, data, colls::sum);
                    throw std::out_of_range("my own business");
                }
                try {
                    colls::recv(comm, data, 3 - comm.rank());  // which is never sent
                } catch (const colls::error& failure) {
                    heard += failure.code() == colls::errc::peer_failed &&
                             says(failure.what(), "an exception left its function");
                }
            });
        } catch (const std::out_of_range& failure) {
            thrown.push_back(failure.what());
        }
        CHECK(heard == 2);
    }
    CHECK(thrown == std::vector<std::string>(2, "my own business"));
}

TEST_CASE("lifetime: an exception of a rank that has left its group is that of run", "[lifetime]") {
    for (const std::string& transport : every_transport()) {
        std::string thrown;
        try {
            run_over(transport, 3, [](colls::communicator& comm) {
                colls::barrier(comm);
                const bool throws = comm.rank() == 1;
                comm = {};
                if (throws) throw std::out_of_range("my own business");
            });
        } catch (const std::exception& failure) {
            thrown = failure.what();
        }
        INFO(transport << ": " << thrown);
        CHECK(says(thrown, "my own business"));
    }
}

namespace {

/// Tells that the rank's thread has ended, and so that `run` knows how.
struct end_of_thread {
    std::atomic<bool>* over = nullptr;
    ~end_of_thread() {
        if (over != nullptr) *over = true;
    }
};
thread_local end_of_thread at_end;

}  // namespace

TEST_CASE("lifetime: of what ranks throw the first that no other rank caused is that of run", "[lifetime]") {
    // By rank, each once the one before has thrown: its text, and whether another rank caused it.
    using thrown = std::vector<std::pair<const char*, bool>>;
    const auto of_run = [](const thrown& all) {
        std::array<std::atomic<bool>, 4> over{};
        try {
            colls::threads::run(static_cast<int>(all.size()) + 1, [&](colls::communicator& comm) {
                if (comm.rank() == 0) return;  // on the test's own thread
                const auto own = static_cast<std::size_t>(comm.rank());
                at_end.over = &over[own];
                while (own > 1 && !over[own - 1]) std::this_thread::yield();
                const auto& [what, caused_by_other] = all[own - 1];
                if (caused_by_other) throw colls::error(colls::errc::peer_failed, what);
                throw std::runtime_error(what);
            });
        } catch (const std::runtime_error& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    CHECK(of_run({}) == "");
    CHECK(of_run({{"a", false}, {"b", false}}) == "a");
    CHECK(of_run({{"a", false}, {"b", true}}) == "a");
    CHECK(of_run({{"a", true}, {"b", true}}) == "a");
    CHECK(of_run({{"a", true}, {"b", false}, {"c", false}}) == "b");
    CHECK(of_run({{"a", true}, {"b", false}, {"c", true}}) == "b");
}

TEST_CASE("plan: rejects start and run while its operation is not over", "[lifetime]") {
    on_every_transport(2, [](colls::communicator& comm) {
        std::vector<int> data(1000, 1);
        auto plan = colls::prepare::all_reduce(comm, data, colls::sum);
        for (int turn = 0; turn < 2; ++turn) {
            data.assign(1000, 1);
            auto started = plan.start();
            expect(says(refusal_of([&] { plan.start().wait(); }), "the plan's operation is not over"),
                "a second start is not refused");
            expect(says(refusal_of([&] { plan.run(); }), "the plan's operation is not over"),
                "a run after start is not refused");
            started.wait();
            expect(data == std::vector<int>(1000, 2), "the result is wrong");
        }
        data.assign(1000, 1);
        plan.run();
        expect(data == std::vector<int>(1000, 2), "the result is wrong after that");
    });
}

TEST_CASE("lifetime: moved-from objects reject calls", "[lifetime]") {
    colls::threads::run(2, [](colls::communicator& comm) {
        std::vector<int> data(10, 1);
        auto plan = colls::prepare::all_reduce(comm, data, colls::sum);
        colls::plan moved = std::move(plan);
        expect(says(refusal_of([&] { plan.run(); }), "moved from"), "run of a plan that was moved from");
        expect(says(refusal_of([&] { plan.start().wait(); }), "moved from"), "start of a plan that was moved from");
        moved.run();
        plan = std::move(moved);
        expect(says(refusal_of([&] { moved.run(); }), "moved from"), "run of a plan that was assigned from");
        plan.run();
        plan = colls::prepare::all_reduce(comm, data, colls::sum);
        colls::operation started = plan.start();
        colls::operation same = std::move(started);
        expect(started.test(), "an operation that was moved from is over");
        same.wait();
        colls::communicator part = comm.split(0, 0);
        colls::communicator its = std::move(part);
        expect(says(refusal_of([&] { colls::barrier(part); }), "belongs to no group"),
            "a communicator that was moved from");
        colls::barrier(its);
    });
}

TEST_CASE("progress_thread: one serves all groups of a rank, a second one is rejected", "[lifetime]") {
    colls::threads::run(2, [](colls::communicator& comm) {
        colls::communicator part = comm.split(0, 0);
        {
            const colls::progress_thread helper(part);
            expect(says(refusal_of([&] { const colls::progress_thread second(comm); }), "already serves"),
                "a second one is not refused");
        }
        const colls::progress_thread next(comm);
        colls::barrier(comm);
    });
}

TEST_CASE("progress_thread: one may be made where another one could not be started", "[lifetime]") {
    pthread_attr_t usual, huge;
    REQUIRE(pthread_getattr_default_np(&usual) == 0);
    pthread_attr_init(&huge);
    REQUIRE(pthread_attr_setstacksize(&huge, std::size_t{1} << 60) == 0);
    int refused = 0, made = 0;
    colls::threads::run(1, [&](colls::communicator& comm) {
        pthread_setattr_default_np(&huge);
        try {
            const colls::progress_thread none(comm);
        } catch (const std::system_error&) {
            ++refused;
        }
        pthread_setattr_default_np(&usual);
        const colls::progress_thread helper(comm);
        ++made;
    });
    CHECK(refused == 1);
    CHECK(made == 1);
}

TEST_CASE("allocate: throws std::bad_alloc for more bytes than an address space holds", "[lifetime]") {
    on_every_transport(2, [](colls::communicator& comm) {
        const auto refused = [&](auto of, std::size_t count) {
            try {
                auto m = comm.allocate<decltype(of)>(count);
                return m.size() == 0;
            } catch (const std::bad_alloc&) {
                return true;
            }
        };
        expect(refused(double{}, (std::size_t{1} << 61) + 1), "8 bytes for 2^61 + 1 elements");
        expect(refused(char{}, SIZE_MAX), "SIZE_MAX bytes");
        expect(refused(char{}, SIZE_MAX / 2), "SIZE_MAX / 2 bytes");
        expect(refused(int{}, SIZE_MAX / 4), "SIZE_MAX / 4 int");
        colls::memory<int> fits = comm.allocate<int>(100);
        std::fill(fits.begin(), fits.end(), 1);
        colls::all_reduce(comm, fits, colls::sum);
        expect(fits[99] == 2, "after refusals the result is wrong");
    });
}

TEST_CASE("operator: one that communicates on its own group gets an error, and so do the other ranks", "[lifetime]") {
    for (const std::size_t count : {std::size_t{3}, std::size_t{60'000}})
        for (const bool with_helper : {false, true}) {
            std::atomic<int> refused{0}, told{0};
            const auto ask = [&](colls::communicator& comm) {
                std::vector<int> data(count, 1), own(1);
                std::optional<colls::progress_thread> helper;
                if (with_helper) helper.emplace(comm);
                const auto asks = colls::commutative([&](int a, int b) {
                    if (comm.rank() == 1) colls::all_reduce(comm, own, colls::sum);
                    return a + b;
                });
                try {
                    colls::all_reduce<colls::direct>(comm, data, asks);
                } catch (const colls::error& failure) {
                    refused += failure.code() == colls::errc::invalid_argument &&
                               says(failure.what(), "an operator calls the library");
                    told += failure.code() == colls::errc::peer_failed &&
                            says(failure.what(), "an operator calls the library");
                }
            };
            colls::threads::run(3, [&](colls::communicator& comm) { ask(comm); });
            INFO("count " << count << ", helper " << with_helper);
            CHECK(refused == 1);
            CHECK(told == 2);
        }
}

TEST_CASE("operator: may communicate on another group", "[lifetime]") {
    std::atomic<int> right{0};
    colls::threads::run(2, [&](colls::communicator& comm) {
        int data[2] = {1, 1};
        colls::all_reduce(comm, data, colls::commutative([](int a, int b) {
            std::atomic<int> sum{0};
            colls::threads::run(2, [&](colls::communicator& inner) {
                int x[1] = {inner.rank() == 0 ? a : b};
                colls::all_reduce(inner, x, colls::sum);
                if (inner.rank() == 0) sum = x[0];
            });
            return sum.load();
        }));
        right += data[0] == 2 && data[1] == 2;
    });
    CHECK(right == 2);
}

TEST_CASE("operator: its exception breaks the group for all ranks", "[lifetime]") {
    std::atomic<int> told{0};
    try {
        colls::threads::run(3, [&](colls::communicator& comm) {
            std::vector<int> data(4000, comm.rank());
            try {
                colls::all_reduce<colls::direct>(comm, data, colls::commutative([](int a, int b) {
                    if (a == 2 || b == 2) throw colls::error(colls::errc::unsupported, "two is too much");
                    return a + b;
                }));
                colls::barrier(comm);
            } catch (const colls::error& failure) {
                if (says(failure.what(), "two is too much")) ++told;
                throw;
            }
        });
    } catch (const colls::error&) {}
    CHECK(told == 3);
}

TEST_CASE("operator: its rank leaves a long call soon after the group has broken", "[lifetime]") {
    static std::atomic<int> folds;
    folds = 0;
    constexpr std::size_t count = 1 << 20;
    try {
        colls::threads::run(2, [&](colls::communicator& comm) {
            const auto& broken = comm.context().memory.poison().state;
            const auto op = colls::commutative([&](int a, int b) {
                if (++folds == 1)
                    while (broken.load() != 2) usleep(1'000);
                return a + b;
            });
            // Rank 1, the root, folds without any wait.
            std::vector<int> in(count, 1), out(count);
            auto started = colls::start::reduce<colls::direct>(comm, in, out, op, 1);
            while (comm.rank() == 0 && folds == 0) usleep(1'000);
            if (comm.rank() == 0) comm.abort("on purpose");
            started.wait();
        });
    } catch (const colls::error& e) {
        CHECK(says(e.what(), "on purpose"));
    }
    CHECK(folds > 0);
    CHECK(folds < static_cast<int>(count) / 2);
}

TEST_CASE("operator: what its leaf or its copy throws breaks the group for all ranks", "[lifetime]") {
    struct odd_sum {
        int odd, rank;
        odd_sum(int which, int own) : odd(which), rank(own) {}
        odd_sum(const odd_sum& other) : odd(other.odd), rank(other.rank) {
            if (odd == 1 && rank == 1) throw std::runtime_error("it cannot be copied");
        }
        int operator()(int a, int b) const { return a + b; }
        int leaf(int x) const {
            if (odd == 0 && rank == 1) throw std::runtime_error("it has no leaf");
            return x;
        }
    };
    const with_environment deadline("COLLS_TIMEOUT", "20");
    for (const std::string& transport : every_transport())
        for (const auto& [odd, starts] : {std::pair{0, false}, {0, true}, {1, true}}) {
            common<std::atomic<int>> told;
            try {
                run_over(transport, 3, [&](colls::communicator& comm) {
                    std::vector<int> data(100, comm.rank());
                    const odd_sum op(odd, comm.rank());
                    try {
                        if (starts)
                            colls::start::all_reduce(comm, data, op).wait();
                        else
                            colls::all_reduce(comm, data, op);
                        colls::barrier(comm);
                    } catch (const std::exception& failure) {
                        *told += says(failure.what(), odd == 0 ? "it has no leaf" : "it cannot be copied");
                        while (comm.rank() == 1 && *told < 3 && comm.context().memory.state(0).gone == 0) usleep(1'000);
                        throw;
                    }
                });
            } catch (const std::exception&) {}
            INFO(transport << ", " << odd << ", started: " << starts);
            CHECK(*told == 3);
        }
}

TEST_CASE("send and recv: a message of a rank to itself needs the other half to be started", "[lifetime]") {
    on_every_transport(2, [](colls::communicator& comm) {
        const int self = comm.rank();
        for (const std::size_t count : {std::size_t{4}, std::size_t{300'000}}) {
            std::vector<int> out(count, self + 1), in(count), second(count);
            expect(
                says(refusal_of([&] { colls::send(comm, out, self); }), "start the receive first"), "a send to itself");
            expect(says(refusal_of([&] { colls::recv(comm, in, self); }), "start the send first"),
                "a receive from itself");
            {
                auto coming = colls::start::recv(comm, in, self);
                colls::send(comm, out, self);
                coming.wait();
                expect(in == out, "what a rank sent to itself is wrong");
                expect(says(refusal_of([&] { colls::send(comm, out, self); }), "start the receive first"),
                    "a second send to itself");
            }
            {
                auto going = colls::start::send(comm, out, self);
                colls::recv(comm, second, self);
                going.wait();
                expect(second == out, "what a rank received from itself is wrong");
            }
        }
        colls::barrier(comm);
    });
}

TEST_CASE("environment: rejects a variable with an invalid value, and names it", "[lifetime]") {
    const auto refused = [](const char* name, const char* value) {
        setenv(name, value, 1);
        const std::string with_threads =
            refusal_of([] { colls::threads::run(2, [](colls::communicator& comm) { colls::barrier(comm); }); });
        const std::string with_processes =
            refusal_of([] { colls::processes::run(2, [](colls::communicator& comm) { colls::barrier(comm); }); });
        unsetenv(name);
        INFO(name << "=" << value << "\n" << with_threads << "\n" << with_processes);
        CHECK(says(with_threads, std::string(name) + " is " + value));
        CHECK(says(with_processes, std::string(name) + " is " + value));
    };
    for (const char* value : {"abc", "-1", "0", "nan", "infinite", "1e10", "3s"}) refused("COLLS_TIMEOUT", value);
    refused("COLLS_TRANSPORT", "tpc");
    refused("COLLS_DEBUG", "infos");
    refused("COLLS_SCHEDULE", "rng");
    for (const auto& [name, value] : {std::pair{"COLLS_TIMEOUT", "2.5"}, {"COLLS_TIMEOUT", "inf"},
             {"COLLS_TIMEOUT", ""}, {"COLLS_DEBUG", "warn"}, {"COLLS_TRANSPORT", "shm"}}) {
        setenv(name, value, 1);
        colls::threads::run(2, [](colls::communicator& comm) { colls::barrier(comm); });
        unsetenv(name);
    }
}
