// Failures while groups are split and shrunk: no rank waits in one group for a rank that shrinks another one, and every
// error names the cause.
#include "catch.hpp"

#include "support/batch.hpp"
#include "support/broken_transports.hpp"
#include "support/every_transport.hpp"
#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>

#include <dirent.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace support;

namespace {

/// How many ranks of a test came to each point. Shared by all ranks.
struct counters {
    std::atomic<int> ready, completed, failed_joins, shrunk, pairs_that_work;
    std::atomic<int> right_errors, wrong;
    /// Waits outside of the library, for half of the deadline at most.
    void wait_until(const std::function<bool()>& is) {
        for (const double until = colls::detail::seconds_now() + deadline / 2; !is();) {
            if (colls::detail::seconds_now() > until) {
                wrong += 1;
                return;
            }
            std::this_thread::yield();
        }
    }
    static constexpr int deadline = 20;
};

/// A group backend that joins new groups or, with `fails`, does not when all others have joined, as if memory had run
/// out.
struct joining_backend : passing_backend {
    joining_backend(shared_backend to, counters& c, bool f) : passing_backend(std::move(to)), count(c), fails(f) {}
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) override {
        if (fails && from.by_messages) {  // destroying what has joined would tell `leave`
            count.wait_until([&] { return count.ready == from.size - 1; });
            throw std::bad_alloc();
        }
        auto part = to_->attach(from, place, rank, members);
        if (fails) throw std::bad_alloc();
        count.ready += 1;
        return part;
    }
    shared_backend whole() { return to_; }
    counters& count;
    const bool fails;
};

/// One that makes no new group, as if memory had run out.
struct full_backend : passing_backend {
    using passing_backend::passing_backend;
    std::uint64_t create(int) override { throw std::bad_alloc(); }
    shared_backend whole() { return to_; }
};

/// Runs f on n ranks. The error of run is ignored: ranks are killed or throw on purpose.
template <class F>
void run_ignoring_error(const std::string& transport, int n, F f) {
    try {
        run_over(transport, n, f);
    } catch (const std::exception&) {}
}

}  // namespace

TEST_CASE("split: a rank that cannot join the new group is named in the others' errors, and shrink still works",
    "[regroup]") {
    const with_environment deadline("COLLS_TIMEOUT", std::to_string(counters::deadline).c_str());
    for (const std::string& transport : every_transport())
        for (const auto& [ranks, fails] : {std::pair{2, 1}, {3, 2}, {5, 0}}) {
            const int n = ranks, failing = fails;
            common<counters> shared;
            counters& count = *shared;
            run_ignoring_error(transport, n, [&](colls::communicator& comm) {
                auto& backend = comm.context().backend;
                backend = std::make_shared<joining_backend>(backend, count, comm.rank() == failing);
                try {
                    colls::communicator part = comm.split(0, comm.rank());
                    count.wrong += 1;
                } catch (const std::bad_alloc&) {
                    count.failed_joins += comm.rank() == failing;
                    // The others do not wait for this rank, which knows nothing of the new group.
                    count.wait_until([&] { return count.right_errors + count.wrong == n - 1; });
                } catch (const colls::error& e) {
                    const bool right = e.code() == colls::errc::peer_failed && e.peer() == failing &&
                                       says(e.what(), "no more memory") &&
                                       !says(e.what() + 1, "colls: ");  // a quoted text comes without its prefix
                    (right ? count.right_errors : count.wrong) += 1;
                    if (!right) std::fprintf(stderr, "%s\n", e.what());
                }
                backend = static_cast<joining_backend&>(*backend).whole();
                colls::communicator left = comm.shrink();
                colls::barrier(left);
                count.shrunk += left.size() == n;
            });
            INFO(transport << ", rank " << failing << " of " << n);
            CHECK(count.failed_joins == 1);
            CHECK(count.right_errors == n - 1);
            CHECK(count.shrunk == n);
            CHECK(count.wrong == 0);
        }
}

TEST_CASE("split: a rank that has no memory for the new group is named in the others' errors", "[regroup]") {
    const with_environment deadline("COLLS_TIMEOUT", std::to_string(counters::deadline).c_str());
    for (const std::string& transport : every_transport()) {
        constexpr int n = 3;
        common<counters> shared;
        counters& count = *shared;
        run_ignoring_error(transport, n, [&](colls::communicator& comm) {
            auto& backend = comm.context().backend;
            backend = std::make_shared<full_backend>(backend);
            try {
                colls::communicator part = comm.split(0, comm.rank());
                count.wrong += 1;
            } catch (const std::bad_alloc&) {
                count.wait_until([&] { return count.right_errors + count.wrong == n - 1; });
            } catch (const colls::error& e) {
                const bool right =
                    e.code() == colls::errc::peer_failed && e.peer() == 0 && says(e.what(), "no more memory");
                (right ? count.right_errors : count.wrong) += 1;
            }
            backend = static_cast<full_backend&>(*backend).whole();
        });
        INFO(transport);
        CHECK(count.right_errors == n - 1);
        CHECK(count.wrong == 0);
    }
}

TEST_CASE("split: a rank that breaks a part, and leaves it before another one comes, is heard of there", "[regroup]") {
    // Ranks 0 and 3 of nine have no connection for split groups: a split has none between them.
    constexpr int n = 9;
    const with_environment deadline("COLLS_TIMEOUT", std::to_string(counters::deadline).c_str());
    for (const std::string& transport : every_transport()) {
        common<counters> shared;
        counters& count = *shared;
        run_ignoring_error(transport, n, [&](colls::communicator& comm) {
            {
                colls::communicator part = comm.split(0, comm.rank());
                if (comm.rank() == 3) part.abort("the oven is cold");
                if (comm.rank() == 0) {
                    count.wait_until([&] { return count.ready == n - 1; });
                    try {
                        std::vector<int> x(1);
                        colls::recv(part, x, 3);
                    } catch (const colls::error& e) {
                        count.right_errors += says(e.what(), "the oven is cold");
                    }
                }
            }
            count.ready += 1;
            colls::barrier(comm);  // rank 3 waits here, and is in no other group
            count.completed += 1;
        });
        INFO(transport);
        CHECK(count.right_errors == 1);
        CHECK(count.completed == n);
        CHECK(count.wrong == 0);
    }
}

TEST_CASE("shrink: a rank that waits in another group for a rank that shrinks gets an error that names the cause",
    "[regroup]") {
    for (const std::string& transport : every_transport())
        for (const bool message : {false, true}) {
            common<counters> shared;
            counters& count = *shared;
            run_ignoring_error(transport, 4, [&](colls::communicator& comm) {
                colls::communicator part = comm.split(comm.rank() < 3 ? 0 : 1, comm.rank());
                colls::communicator pair = comm.split(comm.rank() < 2 ? 0 : 1, comm.rank());
                colls::barrier(comm);
                count.ready += 1;
                while (count.ready < 4) std::this_thread::yield();  // all have left that barrier
                if (comm.rank() == 3) {
                    if (transport == "threads") throw std::runtime_error("rank 3 gives up");
                    raise(SIGKILL);
                }
                if (comm.rank() == 0) {
                    // Rank 0 gets the error in the whole group and shrinks that; ranks 1 and 2 wait for rank 0 in the
                    // part.
                    try {
                        colls::barrier(comm);
                        colls::barrier(comm);
                    } catch (const colls::error&) {}
                } else {
                    try {
                        std::vector<int> x(1);
                        if (message)
                            colls::recv(part, x, comm.rank() - 1);
                        else
                            colls::barrier(part);
                        count.completed += 1;
                    } catch (const colls::error& e) {
                        const bool right = e.code() == colls::errc::peer_failed && says(e.what(), "rank 3");
                        (right ? count.right_errors : count.wrong) += 1;
                        if (!right) std::fprintf(stderr, "%s\n", e.what());
                    }
                }
                colls::communicator left = comm.shrink();
                colls::barrier(left);
                count.shrunk += left.size() == 3;
                // A group in which no rank waited still works.
                if (left.rank() < 2) {
                    colls::barrier(pair);
                    count.pairs_that_work += 1;
                }
            });
            INFO(transport << (message ? ", a message" : ", a collective"));
            CHECK(count.right_errors == 2);
            CHECK(count.completed == 0);
            CHECK(count.wrong == 0);
            CHECK(count.shrunk == 3);
            CHECK(count.pairs_that_work == 2);
        }
}

TEST_CASE("split: a new group that breaks at once leaves its parent whole", "[regroup]") {
    for (const std::string& transport : every_transport()) {
        common<counters> shared;
        counters& count = *shared;
        run_ignoring_error(transport, 5, [&](colls::communicator& comm) {
            for (int turn = 0; turn < 60; ++turn) {
                colls::communicator part = comm.split(0, comm.rank());
                try {
                    if (comm.rank() == turn % 5) part.abort("at once");
                    for (;;) colls::barrier(part);
                } catch (const colls::error& e) {
                    count.right_errors += says(e.what(), "at once");
                }
            }
            colls::barrier(comm);
            ++count.completed;
        });
        INFO(transport);
        CHECK(count.right_errors == 300);
        CHECK(count.completed == 5);
    }
}

TEST_CASE("shrink: of a shrunk group, until two ranks of five are left", "[regroup]") {
    for (const std::string& transport : every_transport()) {
        common<counters> shared;
        counters& count = *shared;
        run_ignoring_error(transport, 5, [&](colls::communicator& comm) {
            int members = 5, calls = 0;           // how many ranks have made the call after a shrink
            for (const int victim : {1, 0, 2}) {  // its rank in the group of that time
                if (comm.rank() == victim) {
                    // No rank is in that call any more.
                    const double until = colls::detail::seconds_now() + 100;
                    while (count.ready < calls && colls::detail::seconds_now() < until) std::this_thread::yield();
                    if (transport == "threads") throw std::runtime_error("a rank gives up");
                    raise(SIGKILL);
                }
                try {
                    for (;;) colls::barrier(comm);
                } catch (const colls::error& e) {
                    count.right_errors += e.code() == colls::errc::peer_failed && e.peer() == victim;
                }
                comm = comm.shrink();
                calls += --members;
                std::vector<int> x(1000, comm.rank());
                colls::all_reduce(comm, x, colls::sum);
                ++count.ready;
                count.shrunk += comm.size() == members && x == std::vector<int>(1000, members * (members - 1) / 2);
            }
            ++count.completed;
        });
        INFO(transport);
        CHECK(count.right_errors == 4 + 3 + 2);
        CHECK(count.shrunk == 4 + 3 + 2);
        CHECK(count.completed == 2);
    }
}

TEST_CASE("shrink: a second one of a group is refused, and leaves the first one's group whole", "[regroup]") {
    for (const std::string& transport : every_transport()) {
        common<counters> shared;
        counters& count = *shared;
        run_ignoring_error(transport, 3, [&](colls::communicator& comm) {
            colls::communicator left = comm.shrink();
            colls::barrier(left);
            try {
                colls::communicator again = comm.shrink();
                count.wrong += 1;
            } catch (const colls::error& e) {
                (e.code() == colls::errc::invalid_argument ? count.right_errors : count.wrong) += 1;
            }
            colls::barrier(left);
            count.ready += 1;
            while (count.ready < 3) std::this_thread::yield();  // none is still in that call
            left = left.shrink();
            colls::barrier(left);
            count.shrunk += left.size() == 3;
        });
        INFO(transport);
        CHECK(count.right_errors == 3);
        CHECK(count.shrunk == 3);
        CHECK(count.wrong == 0);
    }
}

TEST_CASE("shrink: of a whole group ends the calls in which others wait, and keeps all ranks", "[regroup]") {
    for (const std::string& transport : every_transport()) {
        common<counters> shared;
        counters& count = *shared;
        run_over(transport, 3, [&](colls::communicator& comm) {
            comm.set_timeout(std::chrono::seconds(100));
            std::vector<int> x(1000, comm.rank() + 1);
            colls::all_reduce(comm, x, colls::sum);
            count.ready += 1;
            while (comm.rank() == 1 && count.ready < 3) std::this_thread::yield();  // none is still in that call
            if (comm.rank() != 1) try {
                    colls::all_reduce(comm, x, colls::sum);
                } catch (const colls::error& e) {
                    count.right_errors +=
                        e.code() == colls::errc::peer_failed && says(e.what(), "rank 1 shrinks the group");
                }
            comm = comm.shrink();
            std::fill(x.begin(), x.end(), comm.rank());
            colls::all_reduce(comm, x, colls::sum);
            count.shrunk += comm.size() == 3 && x == std::vector<int>(1000, 3);
        });
        INFO(transport);
        CHECK(count.right_errors == 2);
        CHECK(count.shrunk == 3);
    }
}

namespace {

int open_descriptors() {
    int n = 0;
    DIR* const d = opendir("/proc/self/fd");
    while (readdir(d) != nullptr) ++n;
    closedir(d);
    return n;
}
struct splits_seen {
    std::atomic<int> more, wrong, heard, other_errors;
};

}  // namespace

TEST_CASE("split: groups kept over TCP take no descriptors, and each hears of a rank that is killed", "[regroup]") {
    constexpr int n = 5, groups = 60;
    common<splits_seen> shared;
    splits_seen& seen = *shared;
    run_ignoring_error("tcp", n, [&](colls::communicator& comm) {
        std::vector<colls::communicator>
            kept;  // the whole group in other orders, of which each splits into two once more
        std::vector<colls::communicator> parts;
        int after_first = 0;
        for (int g = 0; g < groups; ++g) {
            kept.push_back(comm.split(0, (comm.rank() * 2 + g) % n));
            parts.push_back(kept.back().split(kept.back().rank() % 2, -kept.back().rank()));
            if (g == n) after_first = open_descriptors();
        }
        seen.more += open_descriptors() - after_first;
        // Calls of all groups under way at once, waited for in an order that differs from rank to rank.
        std::vector<std::vector<long>> x(2 * groups);
        std::vector<colls::operation> started;
        for (int i = 0; i < 2 * groups; ++i) {
            auto& group = i < groups ? kept[static_cast<std::size_t>(i)] : parts[static_cast<std::size_t>(i - groups)];
            auto& values = x[static_cast<std::size_t>(i)];
            values.assign(i % 7 == 0 ? 20'000 : 3, 1L << comm.rank());
            started.push_back(colls::start::all_reduce(group, values, colls::sum));
        }
        for (int i = 0; i < 2 * groups; ++i)
            started[static_cast<std::size_t>((i * 7 + comm.rank() * 11) % (2 * groups))].wait();
        for (int i = 0; i < 2 * groups; ++i) {
            long want = 0;  // of the members, each the power of two of its number in the world
            for (int r = 0; r < n; ++r) {
                const int g = i % groups;
                const auto place = [&](int rank) { return (rank * 2 + g) % n; };
                if (i < groups || place(r) % 2 == place(comm.rank()) % 2) want |= 1L << r;
            }
            for (const long value : x[static_cast<std::size_t>(i)]) seen.wrong += value != want;
        }
        try {
            colls::barrier(comm);
        } catch (const colls::error&) {}  // rank 3 had died before its last message was sent
        if (comm.rank() == 3) raise(SIGKILL);
        for (colls::communicator& group : kept) {
            try {
                for (int i = 0; i < 3; ++i) colls::barrier(group);
                ++seen.other_errors;
            } catch (const colls::error& e) {
                (e.code() == colls::errc::peer_failed && e.peer() != colls::none ? seen.heard : seen.other_errors) += 1;
            }
        }
    });
    CHECK(seen.more == 0);
    CHECK(seen.wrong == 0);
    CHECK(seen.heard == (n - 1) * groups);
    CHECK(seen.other_errors == 0);
}

namespace {

/// For a rank that is stopped in the middle of a copy, and woken when the others have shrunk the group.
struct stop_state {
    std::atomic<pid_t> process[2];
    std::atomic<int> filled, woken, left_out, wrong, completed;
    std::atomic<int> too_slow;  ///< the machine: another rank missed the deadline
};

void wait_for(const std::atomic<int>& count, int value) {
    for (const double until = colls::detail::seconds_now() + 30; count < value;) {
        if (colls::detail::seconds_now() > until) throw std::runtime_error("a rank does not come");
        std::this_thread::yield();
    }
}
bool is_stopped(pid_t process) {
    std::ifstream in("/proc/" + std::to_string(process) + "/stat");
    std::string stat;
    std::getline(in, stat);
    const std::size_t after = stat.rfind(')');
    return after != stat.npos && stat.compare(after, 3, ") T") == 0;
}
/// Makes the call again and again until it throws. `block`: what process `victim` stores into this rank's memory in
/// it; when its first element has come, and not its last, the process is stopped.
template <class F>
void stop_in(std::span<int> block, pid_t victim, stop_state& state, F call) {
    const std::atomic_ref first(block.front()), last(block.back());
    bool stopped = false;
    for (bool failed = false; !failed;) {
        std::fill(block.begin(), block.end(), -1);
        std::atomic<bool> over = false;
        std::thread watch([&] {
            while (!over && first == -1) {}
            if (first == -1) return;
            kill(victim, SIGSTOP);
            while (!is_stopped(victim)) std::this_thread::yield();
            stopped = last == -1;
            if (!stopped) kill(victim, SIGCONT);
        });
        try {
            call();
        } catch (const colls::error&) {
            failed = true;
        }
        over = true;
        watch.join();
    }
    state.too_slow += !stopped;
}
/// On rank 0: no process stays stopped, whatever the test throws.
struct waker {
    stop_state* state;
    ~waker() {
        if (state == nullptr) return;
        for (const auto& p : state->process)
            if (p != 0) kill(p, SIGCONT);
    }
};
/// Repeats a test on which the machine was too slow.
template <class F>
void run_stops(int n, stop_state& state, F f) {
    for (int trial = 0; trial < 3 && (trial == 0 || state.too_slow > 0); ++trial) {
        for (std::atomic<int>* x :
            {&state.filled, &state.woken, &state.left_out, &state.wrong, &state.completed, &state.too_slow})
            *x = 0;
        run_ignoring_error("shm", n, f);
    }
}
/// The ranks that are left shrink the group.
colls::communicator shrink_to(colls::communicator& comm, int size, stop_state& state) {
    colls::communicator left = comm.shrink();
    left.context().env.timeout = 100;
    try {
        if (left.size() == size) return colls::barrier(left), std::move(left);
    } catch (const colls::error& e) {  // a rank that came late to the shrink's end breaks the new group
        if (!says(e.what(), "has not come to its end within the deadline")) throw;
    }
    ++state.too_slow;
    throw std::runtime_error("a rank is missing");
}
/// What the rank does that is stopped.
template <class F>
void be_stopped(colls::communicator& comm, stop_state& state, F call) {
    try {
        for (;;) call();
    } catch (const colls::error& e) {
        const bool right = says(e.what(), "the others have shrunk the group without this rank");
        if (!right) std::fprintf(stderr, "%s\n", e.what());
        state.left_out += right;
    }
    try {
        comm = comm.shrink();
    } catch (const colls::error& e) {
        state.left_out += says(e.what(), "came too late");
    }
    ++state.woken;
}

constexpr std::size_t stop_count = std::size_t{1} << 20;
constexpr double stop_deadline = 0.6;  // of the calls in which a rank is stopped

/// An all_gather, in which each rank stores its block into the memory of every other one.
struct gathered_memory {
    colls::memory<int> in, out;
    explicit gathered_memory(colls::communicator& comm)
        : in(comm.allocate<int>(stop_count)),
          out(comm.allocate<int>(stop_count * static_cast<std::size_t>(comm.size()))) {
        std::fill_n(in.data(), stop_count, comm.rank());
    }
    std::span<int> block(int rank) { return {out.data() + stop_count * static_cast<std::size_t>(rank), stop_count}; }
    void call(colls::communicator& comm) {
        colls::all_gather<colls::direct>(comm, std::span<const int>(in.data(), stop_count),
            std::span<int>(out.data(), stop_count * static_cast<std::size_t>(comm.size())));
    }
    /// Rank 0 stops the last rank in a call; the others shrink the group.
    colls::communicator lose_last(colls::communicator& comm, pid_t victim, stop_state& state) {
        comm.context().env.timeout = stop_deadline;
        if (comm.rank() == 0)
            stop_in(block(comm.size() - 1), victim, state, [&] { call(comm); });
        else
            try {
                for (;;) call(comm);
            } catch (const colls::error&) {}
        return shrink_to(comm, comm.size() - 1, state);
    }
    void fill(int value) {
        std::fill_n(in.data(), in.size(), value);
        std::fill_n(out.data(), out.size(), -value);
    }
    bool holds(int value) {
        return std::count(in.data(), in.data() + in.size(), value) == static_cast<std::ptrdiff_t>(in.size()) &&
               std::count(out.data(), out.data() + out.size(), -value) == static_cast<std::ptrdiff_t>(out.size());
    }
};

}  // namespace

TEST_CASE("shrink: ranks that wake in the middle of a copy write to no memory that the others use", "[regroup]") {
    common<stop_state> shared;
    stop_state& state = *shared;
    run_stops(4, state, [&](colls::communicator& comm) {
        const int rank = comm.rank();
        const waker at_end{rank == 0 ? &state : nullptr};
        if (rank >= 2) state.process[rank - 2] = getpid();
        gathered_memory memory(comm);
        colls::barrier(comm);
        const auto call = [&] { memory.call(comm); };
        if (rank == 3) return be_stopped(comm, state, call);
        comm = memory.lose_last(comm, state.process[1], state);
        call();  // the memory is still memory of all three
        for (int r = 0; r < 3; ++r)
            state.wrong += std::count(memory.block(r).begin(), memory.block(r).end(), r) !=
                           static_cast<std::ptrdiff_t>(stop_count);
        if (rank == 2) return be_stopped(comm, state, call);
        comm = memory.lose_last(comm, state.process[0], state);
        gathered_memory more(comm);
        memory.fill(10 + rank), more.fill(20 + rank);
        colls::barrier(comm);
        if (rank == 0)
            for (const auto& p : state.process) kill(p, SIGCONT);
        wait_for(state.woken, 2);
        state.wrong += !memory.holds(10 + rank) || !more.holds(20 + rank);
        call();
        ++state.completed;
    });
    CHECK(state.too_slow == 0);
    CHECK(state.left_out == 4);
    CHECK(state.wrong == 0);
    CHECK(state.completed == 2);
}

TEST_CASE("shrink: of a split group, with memory that ranks outside of that group use, too", "[regroup]") {
    common<stop_state> shared;
    stop_state& state = *shared;
    run_stops(4, state, [&](colls::communicator& comm) {
        const int rank = comm.rank();
        const waker at_end{rank == 0 ? &state : nullptr};
        if (rank == 2) state.process[0] = getpid();
        gathered_memory memory(comm);
        // Rank 3 is in no group that breaks, and shares one with ranks 0 and 1.
        colls::communicator part = comm.split(rank == 3, rank), live = comm.split(rank == 2, rank),
                            pair = comm.split(rank / 2, rank);
        const auto call = [&] { memory.call(part); };
        if (rank == 2) return be_stopped(part, state, call);
        if (rank < 2) {
            part = memory.lose_last(part, state.process[0], state);
            memory.fill(10 + rank);
            colls::barrier(part);
            if (rank == 0) kill(state.process[0], SIGCONT);
            wait_for(state.woken, 1);
            state.wrong += !memory.holds(10 + rank);
        }
        ++state.filled;
        wait_for(state.filled, 3);
        colls::communicator later = live.split(0, rank);
        for (colls::communicator* g : {&live, &later, &part, &pair, &live}) {
            if (rank == 3 && g != &live && g != &later) continue;
            std::fill_n(memory.in.data(), stop_count, 100 * g->size() + rank);
            memory.call(*g);
            for (int r = 0; r < g->size(); ++r) {
                const int expected = 100 * g->size() + (r == 2 ? 3 : r);
                state.wrong += std::count(memory.block(r).begin(), memory.block(r).end(), expected) !=
                               static_cast<std::ptrdiff_t>(stop_count);
            }
        }
        ++state.completed;
    });
    CHECK(state.too_slow == 0);
    CHECK(state.left_out == 2);
    CHECK(state.wrong == 0);
    CHECK(state.completed == 3);
}

TEST_CASE("shrink: a rank that wakes between two copies by the kernel makes no other one", "[regroup]") {
    const with_environment copies("COLLS_SINGLE_COPY", "1");
    common<stop_state> shared;
    stop_state& state = *shared;
    run_stops(3, state, [&](colls::communicator& comm) {
        const int rank = comm.rank();
        const waker at_end{rank == 0 ? &state : nullptr};
        if (rank == 2) state.process[0] = getpid();
        constexpr std::size_t count = 8 * stop_count;
        std::vector<int> in(count, rank), out(rank == 0 ? 3 * count : 0);
        colls::barrier(comm);
        comm.context().env.timeout = stop_deadline;
        const auto call = [&] { colls::gather<colls::direct>(comm, std::span<const int>(in), std::span<int>(out), 0); };
        if (rank == 2) return be_stopped(comm, state, call);
        if (rank == 0)
            stop_in(std::span(out).last(count), state.process[0], state, call);
        else
            try {
                for (;;) call();
            } catch (const colls::error&) {}
        comm = shrink_to(comm, 2, state);
        std::fill(out.begin(), out.end(), 10);
        if (rank == 0) kill(state.process[0], SIGCONT);
        wait_for(state.woken, 1);
        state.wrong += std::count(out.begin(), out.end(), 10) != static_cast<std::ptrdiff_t>(out.size());
        ++state.completed;
    });
    CHECK(state.too_slow == 0);
    CHECK(state.left_out == 2);
    CHECK(state.wrong == 0);
    CHECK(state.completed == 2);
}
