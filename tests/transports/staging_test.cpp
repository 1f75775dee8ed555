// What a rank stages stays there for peers that are late, while the rank goes on, or drops the group.
#include "catch.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using numbers = std::vector<std::uint32_t>;

numbers made(std::size_t count, int salt) {
    numbers v(count);
    for (std::size_t i = 0; i < count; ++i)
        v[i] = static_cast<std::uint32_t>(i) * 2654435761u + static_cast<std::uint32_t>(salt);
    return v;
}
void expect(const numbers& got, const numbers& wanted, const char* where, int call) {
    if (got != wanted) throw std::runtime_error(std::string(where) + " is wrong in call " + std::to_string(call));
}

/// One rank says that it has come so far, and the others wait for that. Made before the ranks are forked.
class signal_between {
public:
    signal_between() {
        if (pipe(ends_) != 0) throw std::runtime_error("no pipe");
    }
    ~signal_between() { close(ends_[0]), close(ends_[1]); }
    signal_between(const signal_between&) = delete;
    signal_between& operator=(const signal_between&) = delete;
    void give(int waiters) {
        for (; waiters > 0; --waiters)
            if (write(ends_[1], "!", 1) != 1) throw std::runtime_error("cannot write");
    }
    void wait() {
        char c;
        pollfd here{ends_[0], POLLIN, 0};
        if (poll(&here, 1, 20'000) != 1) throw std::runtime_error("the other rank does not come so far");
        if (read(ends_[0], &c, 1) != 1) throw std::runtime_error("cannot read");
    }

private:
    int ends_[2];
};

/// The kernel's copies would read the callers' buffers, which a rank must not leave.
struct staged_only {
    staged_only() { setenv("COLLS_SINGLE_COPY", "0", 1); }
    ~staged_only() { unsetenv("COLLS_SINGLE_COPY"); }
};

}  // namespace

TEST_CASE("a rank that has staged its data goes on before its peers come") {
    const staged_only setting;
    for (const int n : {2, 3, 5})
        for (const int root : {0, n - 1}) {
            CAPTURE(n, root);
            signal_between over, back;
            colls::processes::run(n, [&](colls::communicator& comm) {
                // A first call measures and plans; then 6 * 80 KB, which the ring has room for.
                constexpr std::size_t count = 20'000;
                numbers x = made(count, 0);
                colls::broadcast(comm, x, root);
                colls::barrier(comm);
                if (comm.rank() != root) over.wait();
                for (int i = 1; i <= 6; ++i) {
                    x = comm.rank() == root ? made(count, i) : numbers(count);
                    colls::broadcast(comm, x, root);
                    expect(x, made(count, i), "broadcast", i);
                    std::fill(x.begin(), x.end(), 0u);  // the caller may write to its buffer
                }
                if (comm.rank() == root) over.give(n - 1);
                // The leaves of a reduce need not wait for its root either.
                if (comm.rank() == root) back.wait();
                numbers sum(comm.rank() == root ? count : 0);
                for (int i = 1; i <= 6; ++i) {
                    x = made(count, i);
                    colls::reduce<colls::direct>(comm, x, sum, colls::sum, root);
                    std::fill(x.begin(), x.end(), 0u);
                    if (comm.rank() != root) continue;
                    numbers wanted = made(count, i);
                    for (std::uint32_t& w : wanted) w *= static_cast<std::uint32_t>(n);
                    expect(sum, wanted, "reduce", i);
                }
                if (comm.rank() == (root + 1) % n) back.give(1);
            });
            SUCCEED();
        }
}

TEST_CASE("a rank that is far ahead waits for its ring, and overwrites nothing that peers have yet to read") {
    const staged_only setting;
    for (const int n : {2, 3, 4}) {
        CAPTURE(n);
        colls::processes::run(n, [&](colls::communicator& comm) {
            std::mt19937 all(7), own(static_cast<unsigned>(comm.rank()));
            for (int i = 0; i < 150; ++i) {
                const int root = static_cast<int>(all() % static_cast<unsigned>(n)) * (i % 50 < 25);
                // Up to 2 MB: more than the ring has room for, in one call or in several.
                const std::size_t count = std::size_t{1} << (10 + all() % 10), more = all() % 1000;
                if (own() % 8 == 0) usleep(static_cast<useconds_t>(own() % 3000));
                numbers x = comm.rank() == root ? made(count + more, i) : numbers(count + more);
                colls::broadcast(comm, x, root);
                expect(x, made(count + more, i), "broadcast", i);
                std::fill(x.begin(), x.end(), 0u);
                if (i % 5 != 0) continue;
                const std::size_t share = count / 4 + 1, members = static_cast<std::size_t>(n);
                const numbers mine = made(share, comm.rank());
                numbers gathered(share * members), wanted;
                colls::all_gather(comm, mine, gathered);
                for (int r = 0; r < n; ++r) {
                    const numbers one = made(share, r);
                    wanted.insert(wanted.end(), one.begin(), one.end());
                }
                expect(gathered, wanted, "all_gather", i);
            }
        });
        SUCCEED();
    }
}

TEST_CASE("operations in flight share the ring") {
    const staged_only setting;
    colls::processes::run(3, [&](colls::communicator& comm) {
        for (int round = 0; round < 20; ++round) {
            std::vector<numbers> x;
            std::vector<colls::operation> started;
            constexpr int calls = 12;
            for (int i = 0; i < calls; ++i)
                x.push_back(comm.rank() == i % 3 ? made(30'000 + 5'000 * static_cast<std::size_t>(i), i)
                                                 : numbers(30'000 + 5'000 * static_cast<std::size_t>(i)));
            for (int i = 0; i < calls; ++i)
                started.push_back(colls::start::broadcast(comm, x[static_cast<std::size_t>(i)], i % 3));
            for (int i = calls; i-- > 0;) {
                started[static_cast<std::size_t>(i)].wait();
                const numbers& got = x[static_cast<std::size_t>(i)];
                expect(got, made(got.size(), i), "broadcast", i);
            }
        }
    });
    SUCCEED();
}

TEST_CASE("a dropped group's ring is not used again before its peers have read it, and then is") {
    const staged_only setting;
    for (const int root : {0, 1}) {
        CAPTURE(root);
        constexpr int n = 3, rounds = 60;
        signal_between dropped;
        colls::processes::run(n, [&](colls::communicator& comm) {
            std::uintptr_t lowest = ~std::uintptr_t{0}, highest = 0;
            for (int i = 0; i < rounds; ++i) {
                constexpr std::size_t count = 30'000;
                {
                    colls::communicator part = comm.split(0, comm.rank());
                    numbers x = comm.rank() == root ? made(count, i) : numbers(count);
                    if (comm.rank() != root) dropped.wait();
                    colls::broadcast(part, x, root);
                    expect(x, made(count, i), "broadcast", i);
                }
                // Memory that might be the ring's is written over while the peers still wait.
                auto more = comm.allocate<std::uint32_t>(std::size_t{1} << 20);
                std::fill(more.begin(), more.end(), 0xdeadbeef);
                const auto at = reinterpret_cast<std::uintptr_t>(more.data());
                lowest = std::min(lowest, at);
                highest = std::max(highest, at);
                if (comm.rank() == root) dropped.give(n - 1);
            }
            colls::barrier(comm);
            // A ring has 2 MB. Those of all rounds would be 120.
            if (highest - lowest > (std::uintptr_t{40} << 20))
                throw std::runtime_error("rings are kept: " + std::to_string(highest - lowest) + " bytes");
        });
        SUCCEED();
    }
}
