// Failures while groups are split and shrunk: no rank waits in one group for a rank that shrinks another one, and every
// error names the cause.
#include "catch.hpp"

#include "support/batch.hpp"
#include "support/broken_transports.hpp"
#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>

#include <dirent.h>
#include <atomic>
#include <csignal>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

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
        for (const auto& [n, failing] : {std::pair{2, 1}, {3, 2}, {5, 0}}) {
            common<counters> shared;
            counters& count = *shared;
            run_ignoring_error(transport, n, [&, n = n, failing = failing](colls::communicator& comm) {
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
        colls::barrier(comm);
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
