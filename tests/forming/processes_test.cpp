// Ranks that are processes, over shared memory and TCP: messages, split, memory, failures, launch, progress and dumps.
// (Collective calls: collectives_test and random_test, with COLLS_TEST_TRANSPORT.)
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/forbidden.hpp"
#include "support/launch.hpp"
#include "support/random.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/transport/shm/arena.hpp>
#include <colls/transports/shm.hpp>

#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

/// Counters that all processes share.
struct counters {
    std::atomic<int> wrong{0}, done{0};
};
counters& shared_counters() {
    static counters* const c = new (shared_pool::of_test().take(sizeof(counters))) counters;
    c->wrong = c->done = 0;
    return *c;
}

std::vector<int> numbers(int from, std::size_t count, int turn) {
    std::vector<int> v(count);
    std::iota(v.begin(), v.end(), from * 1000 + turn * 7919);
    return v;
}

}  // namespace

TEST_CASE("processes: messages from memory of the group and from other memory", "[processes]") {
    for (const std::string& t : process_transports())
        for (const std::size_t count : {0u, 1u, 13u, 1000u, 32'768u, 32'769u, 100'003u, 1'000'000u}) {
            counters& c = shared_counters();
            run_over(t, 3, [&](colls::communicator& comm) {
                const int n = comm.size(), rank = comm.rank(), right = (rank + 1) % n, left = (rank + n - 1) % n;
                auto reached = comm.allocate<int>(count);
                for (int turn = 0; turn < 6; ++turn) {
                    auto out = numbers(rank, count, turn);
                    if (turn % 2) std::copy(out.begin(), out.end(), reached.data());
                    std::vector<int> in(count + 2, -7);
                    const std::span<int> into(in.data() + 1, count);
                    const std::span<const int> from =
                        turn % 2 ? std::span<const int>(reached) : std::span<const int>(out);
                    auto sending = colls::start::send(comm, from, right);
                    if (turn < 3)
                        colls::recv(comm, into, left);
                    else
                        colls::start::recv(comm, into, left).wait();
                    sending.wait();
                    c.wrong += !std::equal(into.begin(), into.end(), numbers(left, count, turn).begin());
                    c.wrong += in.front() != -7 || in.back() != -7;
                }
                ++c.done;
            });
            INFO(t << ", count " << count);
            CHECK(c.wrong == 0);
            CHECK(c.done == 3);
        }
}

TEST_CASE(
    "processes: messages of one pair keep their order, in both directions and between collectives", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        run_over(t, 2, [&](colls::communicator& comm) {
            const int other = 1 - comm.rank();
            std::vector<std::vector<int>> out, in;
            std::vector<colls::operation> all;
            for (int i = 0; i < 20; ++i) {
                const std::size_t count = static_cast<std::size_t>(i) * 5000;
                out.push_back(numbers(comm.rank(), count, i));
                in.emplace_back(count);
            }
            std::vector<long> sum(70'000, comm.rank() + 1);
            for (int i = 0; i < 20; ++i) {
                const auto k = static_cast<std::size_t>(i);
                if (comm.rank() == 0) all.push_back(colls::start::send(comm, out[k], other));
                all.push_back(colls::start::recv(comm, in[k], other));
                if (comm.rank() == 1) all.push_back(colls::start::send(comm, out[k], other));
                if (i % 5 == 2) colls::all_reduce(comm, sum, colls::max);
            }
            // Completed in an order of its own, after a message of the rank to itself.
            std::vector<int> mine = numbers(9, 100, 1), back(100);
            auto to_self = colls::start::send(comm, mine, comm.rank());
            colls::recv(comm, back, comm.rank());
            to_self.wait();
            c.wrong += mine != back;
            while (!all.empty()) {
                if (comm.rank() == 0) all.back().wait();
                while (!all.back().test()) {}
                all.pop_back();
            }
            for (int i = 0; i < 20; ++i)
                c.wrong += in[static_cast<std::size_t>(i)] != numbers(other, in[static_cast<std::size_t>(i)].size(), i);
            c.wrong += sum != std::vector<long>(70'000, 2);
            ++c.done;
        });
        INFO(t);
        CHECK(c.wrong == 0);
        CHECK(c.done == 2);
    }
}

TEST_CASE("processes: a message of a different length is an error on both ranks", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        run_over(t, 2, [&](colls::communicator& comm) {
            std::vector<int> x(100), y(101);
            try {
                if (comm.rank() == 0)
                    colls::send(comm, x, 1);
                else
                    colls::recv(comm, y, 0);
                ++c.wrong;
            } catch (const colls::error& e) {
                c.wrong += e.code() != colls::errc::mismatch;
                ++c.done;
            }
        });
        INFO(t);
        CHECK(c.wrong == 0);
        CHECK(c.done == 2);
    }
}

TEST_CASE("processes: groups that have been left free their memory", "[processes]") {
    // Kilobytes in use, anonymous and shared.
    const auto used = [] {
        std::FILE* const status = std::fopen("/proc/self/status", "r");
        long all = 0, some = 0;
        for (char text[256]; std::fgets(text, sizeof text, status);)
            if (std::sscanf(text, "RssAnon: %ld", &some) == 1 || std::sscanf(text, "RssShmem: %ld", &some) == 1)
                all += some;
        std::fclose(status);
        return all;
    };
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        run_over(t, 4, [&](colls::communicator& comm) {
            const auto turn = [&] {
                auto half = comm.split(comm.rank() % 2, -comm.rank());
                auto all = comm.split(0, comm.rank());
                std::vector<int> sum(1, comm.rank());
                colls::all_reduce(half, sum, colls::sum);
                c.wrong += sum[0] != (comm.rank() % 2 ? 4 : 2);
                colls::barrier(all);
            };
            for (int i = 0; i < 20; ++i) turn();
            const long before = used();
            for (int i = 0; i < 200; ++i) turn();
            const long grown = used() - before;
            if (grown > 10'000) std::fprintf(stderr, "%s: %ld KB more\n", t.c_str(), grown);
            c.wrong += !sanitized && grown > 10'000;  // each group had at least 150 KB
            ++c.done;
        });
        INFO(t);
        CHECK(c.wrong == 0);
        CHECK(c.done == 4);
    }
}

TEST_CASE("processes: calls in a group, a part of it and a part of that, in flight together", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        run_over(t, 8, [&](colls::communicator& comm) {
            auto half = comm.split(comm.rank() / 4, -comm.rank());
            auto pair = half.split(half.rank() / 2, half.rank());
            auto most = comm.split(comm.rank() == 3 ? -1 : 0, 0);
            c.wrong += half.size() != 4 || pair.size() != 2 || most.size() != (comm.rank() == 3 ? 0 : 7);
            for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{200'000}}) {
                std::vector<long> a(count, comm.rank()), b(count, comm.rank()), all(count, comm.rank());
                // In flight in three groups at once, completed in a different order.
                auto x = colls::start::all_reduce(comm, all, colls::sum);
                auto y = colls::start::all_reduce(half, a, colls::sum);
                auto z = colls::start::all_reduce(pair, b, colls::sum);
                if (comm.rank() % 2) z.wait();
                y.wait();
                z.wait();
                x.wait();
                const long base = comm.rank() / 4 * 4, first = base + (3 - half.rank() / 2 * 2);
                c.wrong += all != std::vector<long>(count, 28) || a != std::vector<long>(count, 4 * base + 6) ||
                           b != std::vector<long>(count, 2 * first - 1);
            }
            ++c.done;
        });
        INFO(t);
        CHECK(c.wrong == 0);
        CHECK(c.done == 8);
    }
}

TEST_CASE("processes: memory of a communicator is reused, and outlives it", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        run_over(t, 2, [&](colls::communicator& comm) {
            random_source random(static_cast<std::uint64_t>(comm.rank()) + 5);
            std::vector<colls::memory<std::uint32_t>> kept;
            for (std::uint32_t turn = 0; turn < 3000; ++turn) {
                if (kept.size() > 20 || (!kept.empty() && random.one_in(2))) {
                    auto& last = kept[random.below(kept.size())];
                    const std::uint32_t value = last.size() ? last[0] : 0;
                    for (const std::uint32_t x : last) c.wrong += x != value;
                    std::swap(last, kept.back());
                    kept.pop_back();
                } else {
                    kept.push_back(comm.allocate<std::uint32_t>(random.below(random.one_in(10) ? 300'000 : 300)));
                    c.wrong += reinterpret_cast<std::uintptr_t>(kept.back().data()) % 128 != 0;
                    for (std::uint32_t& x : kept.back()) x = turn;
                }
            }
            auto last = comm.allocate<int>(1000);
            last[999] = 5;
            comm = {};
            c.wrong += last[999] != 5;
            ++c.done;
        });
        CHECK(c.wrong == 0);
        CHECK(c.done == 2);
    }
}

TEST_CASE("processes: run throws how a rank ended", "[processes]") {
    for (const std::string& t : process_transports()) {
        const auto outcome = [&](auto&& f) {
            try {
                run_over(t, 3, f);
            } catch (const colls::error& e) {
                return std::pair{e.code(), std::string(e.what())};
            }
            return std::pair{colls::errc{}, std::string("no error")};
        };
        const auto works = [](colls::communicator& comm) {
            for (int i = 0; i < 1000; ++i) colls::barrier(comm);
        };
        const auto threw = outcome([&](colls::communicator& comm) {
            if (comm.rank() == 1) throw std::runtime_error("the rank's own reason");
            works(comm);
        });
        CHECK(threw.second.find("the rank's own reason") != std::string::npos);
        CHECK(threw.second.find("rank 1") != std::string::npos);
        const auto killed = outcome([&](colls::communicator& comm) {
            if (comm.rank() == 2) raise(SIGKILL);
            works(comm);
        });
        CHECK(killed.first == colls::errc::peer_failed);
        CHECK(killed.second.find(
                  "rank 2's process was killed by signal 9 (if nobody has killed it, memory has run out") !=
              std::string::npos);
        const auto left = outcome([&](colls::communicator& comm) {
            if (comm.rank() == 0) _exit(7);
            works(comm);
        });
        CHECK(left.first == colls::errc::peer_failed);
        const auto refused = outcome([](colls::communicator& comm) {
            std::vector<int> x(3), y(4);
            colls::all_reduce(comm, x, y, colls::sum);
        });
        CHECK(refused.first == colls::errc::invalid_argument);
        CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left
        CHECK_THROWS_AS(colls::processes::run(0, [](auto&) {}), colls::error);
    }
}

namespace {

/// How many forks are left until the child of one of them exits at once, before it can join. Negative: none does.
std::atomic<int> forks_until_exit{-1};
void count_forks() {
    static const int watching = pthread_atfork(nullptr, nullptr, [] {
        if (forks_until_exit == 0) _exit(9);
    });
    static_cast<void>(watching);
    static const int counting = pthread_atfork([] { --forks_until_exit; }, nullptr, nullptr);
    static_cast<void>(counting);
}
/// Sets the handler of SIGCHLD while it exists.
class with_child_handler {
public:
    explicit with_child_handler(void (*handler)(int)) : before_(signal(SIGCHLD, handler)) {}
    ~with_child_handler() { signal(SIGCHLD, before_); }
    with_child_handler(const with_child_handler&) = delete;
    with_child_handler& operator=(const with_child_handler&) = delete;

private:
    void (*before_)(int);
};
void reap_all_children(int) {
    const int before = errno;
    while (waitpid(-1, nullptr, WNOHANG) > 0) {}
    errno = before;
}
std::string error_of_run(const std::string& transport, int n, void (*f)(colls::communicator&)) {
    std::string text = "none";
    const with_environment timeout("COLLS_TIMEOUT", "100");
    try {
        run_over(transport, n, f);
    } catch (const colls::error& e) {
        text = e.code() == colls::errc::peer_failed ? e.what() : std::string("another code: ") + e.what();
    }
    return text;
}

}  // namespace

TEST_CASE("processes: a process that dies before it has joined is an error of run", "[processes]") {
    count_forks();
    for (const std::string& t : process_transports())
        for (const bool ignored : {false, true})
            for (const int r : {0, 1, 3}) {
                const with_child_handler signals(ignored ? SIG_IGN : SIG_DFL);
                forks_until_exit = r + 1;
                const std::string text = error_of_run(t, 4, [](colls::communicator& comm) { colls::barrier(comm); });
                forks_until_exit = -1;
                INFO(t << ", rank " << r << (ignored ? ", SIGCHLD ignored" : ""));
                CHECK(says(text, "rank " + std::to_string(r)));
                CHECK(says(text, "before it had joined the group"));
            }
}

TEST_CASE("processes: neighbours that an arena gets back are one, in whatever order they come", "[processes]") {
    using colls::processes::detail::arena;
    arena memory(2);
    memory.become_rank(1);
    constexpr std::size_t bytes = 8 * 4096;
    for (const arena::use of : {arena::use::library, arena::use::program}) {
        std::byte* const begin = memory.take(3 * bytes, of);
        memory.give(begin, 3 * bytes);
        std::array<std::size_t, 3> order{0, 1, 2};
        do {
            std::array<std::byte*, 3> parts{};
            for (std::byte*& at : parts) at = memory.take(bytes, of);
            std::sort(parts.begin(), parts.end());
            CHECK((parts[0] == begin && parts[1] == begin + bytes && parts[2] == begin + 2 * bytes));
            for (const std::size_t i : order) memory.give(parts[i], bytes);
            CHECK(memory.take(3 * bytes, of) == begin);
            memory.give(begin, 3 * bytes);
        } while (std::next_permutation(order.begin(), order.end()));
    }
}

TEST_CASE("processes: a failure report that is being written is waited for, and its rank named", "[processes]") {
    // Rank 1 never joins. Rank 0 waits for it, and sees a report that has been begun and is not complete.
    colls::processes::detail::arena memory(2);
    memory.become_rank(0);
    colls::detail::poison_state& report = memory.whole().poison();
    report.state.store(1, std::memory_order_relaxed);
    std::thread reporter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        report.code = static_cast<int>(colls::errc::peer_failed);
        report.rank = report.peer = 1;
        std::strcpy(report.text, "colls: rank 1: its process ended");
        report.state.store(2, std::memory_order_release);
    });
    std::string text = "none";
    try {
        memory.assemble(60);
    } catch (const colls::error& e) {
        CHECK(e.code() == colls::errc::peer_failed);
        CHECK(e.peer() == 1);
        text = e.what();
    }
    reporter.join();
    CHECK(says(text, "rank 1: its process ended"));
}

TEST_CASE("processes: run knows how ranks ended though SIGCHLD is ignored, or its handler reaps all children",
    "[processes]") {
    for (const std::string& t : process_transports())
        for (void (*handler)(int) : {SIG_IGN, &reap_all_children}) {
            const with_child_handler signals(handler);
            INFO(t << (handler == SIG_IGN ? ", ignored" : ", reaped by a handler"));
            CHECK(error_of_run(t, 3, [](colls::communicator& comm) { colls::barrier(comm); }) == "none");
            const std::string killed = error_of_run(t, 3, [](colls::communicator& comm) {
                if (comm.rank() == 2) raise(SIGKILL);
                for (int i = 0; i < 1000; ++i) colls::barrier(comm);
            });
            CHECK(says(killed, "rank 2"));
            const std::string alone = error_of_run(t, 1, [](colls::communicator&) { raise(SIGKILL); });
            CHECK((says(alone, "rank 0's process has died") || says(alone, "was killed by signal 9")));
            const std::string threw = error_of_run(t, 3, [](colls::communicator& comm) {
                if (comm.rank() == 1) throw std::runtime_error("a reason of its own");
                colls::barrier(comm);
            });
            CHECK(says(threw, "a reason of its own"));
        }
}

TEST_CASE("processes: the death of a rank is found though it has forked a child, and calls of the child are refused",
    "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        static std::atomic<int>*child, *allowed;
        child = &c.done;
        allowed = &c.wrong;
        c.wrong = 1;
        const std::string text = error_of_run(t, 4, [](colls::communicator& comm) {
            colls::communicator part = comm.split(0, -comm.rank());
            std::vector<int> x(100'000, 1);
            colls::all_reduce<colls::direct>(comm, x, colls::sum);  // connects all ranks
            if (comm.rank() == 2) {
                const pid_t forked = fork();
                if (forked == 0) {
                    // The child's copies of the communicators refuse calls, and do no harm when destroyed.
                    const auto is_refused = [](auto call) {
                        try {
                            call();
                        } catch (const colls::error& e) {
                            return e.code() == colls::errc::invalid_argument && says(e.what(), "forked from the rank");
                        }
                        return false;
                    };
                    const bool refused = is_refused([&] { colls::barrier(comm); }) &&
                                         is_refused([&] { auto of_parent = comm.allocate<int>(1000); });
                    { const colls::communicator left = std::move(part); }
                    *allowed = refused ? 0 : 1;
                    for (;;) pause();
                }
                *child = forked;
            }
            if (comm.rank() == 2)
                for (int i = 0; i < 10'000 && *allowed != 0; ++i) usleep(1'000);
            colls::barrier(part);
            colls::barrier(comm);
            if (comm.rank() == 2) raise(SIGKILL);
            for (;;) colls::all_reduce(comm, x, colls::max);
        });
        kill(c.done, SIGKILL);
        INFO(t << ": " << text);
        CHECK(c.wrong == 0);  // the child's call was refused
        CHECK(says(text, "rank 2's process was killed by signal 9"));
    }
}

namespace {

/// What f returns in a process of its own.
template <class F>
int in_other_process(F f) {
    const pid_t child = fork();
    if (child == 0) {
        int status = 100;
        try {
            status = f();
        } catch (const std::exception& e) {
            std::fprintf(stderr, "%s\n", e.what());
        }
        _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
/// Calls in memory of the group, and in other memory; then rank 2 leaves, and the others shrink the group.
void work_and_shrink(colls::communicator& comm) {
    std::vector<int> x(100'000, 1);
    auto y = comm.allocate<int>(x.size());
    std::copy(x.begin(), x.end(), y.data());
    colls::all_reduce(comm, x, colls::sum);
    colls::all_reduce(comm, y, colls::sum);
    try {
        colls::barrier(
            comm);  // all have the sums; the first to shrink breaks the group for a rank that is still in here
    } catch (const colls::error&) {}
    if (comm.rank() == 2) return;
    comm = comm.shrink();
    colls::all_reduce(comm, y, colls::sum);
    if (x.back() != 3 || y.data()[0] != 6 || comm.size() != 2) throw std::runtime_error("a wrong result");
}
/// This process gets a network with ::1 and no other address. False: it may not have one.
bool enter_network_without_v4() {
    if (unshare(CLONE_NEWNET) != 0) return false;
    const colls::detail::descriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(fd.get(), SIOCSIFFLAGS, &loopback) != 0) return false;
    loopback.ifr_addr = {.sa_family = AF_INET, .sa_data = {}};
    if (ioctl(fd.get(), SIOCSIFADDR, &loopback) != 0) return false;
    const auto listens_at = [](auto at, socklen_t bytes) {
        const colls::detail::descriptor s(
            socket(reinterpret_cast<sockaddr*>(&at)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        return bind(s.get(), reinterpret_cast<sockaddr*>(&at), bytes) == 0;
    };
    sockaddr_in v4{};
    v4.sin_family = AF_INET, v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6, v6.sin6_addr = in6addr_loopback;
    return !listens_at(v4, sizeof v4) && listens_at(v6, sizeof v6);
}

}  // namespace

TEST_CASE("processes: a system that refuses memfd_create, or every file in memory", "[processes]") {
    for (const std::string& t : process_transports())
        for (const bool all : {false, true}) {
            INFO(t << (all ? ", no file at all" : ""));
            CHECK(in_other_process([&] {
                forbid(all ? no_memory_files : std::vector<forbidden_call>{{SYS_memfd_create}});
                run_over(t, 3, work_and_shrink);
                return 0;
            }) == 0);
        }
}

TEST_CASE("processes: a network with no address but ::1", "[processes]") {
    const int status = in_other_process([] {
        if (!enter_network_without_v4()) return 1;
        run_over("tcp", 3, work_and_shrink);
        // A world finds rank 0 there, too.
        setenv("COLLS_SIZE", "2", 1);
        setenv("COLLS_MASTER_PORT", "29999", 1);
        const auto be_rank = [](const char* rank) {
            setenv("COLLS_RANK", rank, 1);
            for (const char* transport : {"shm", "tcp"}) {
                setenv("COLLS_TRANSPORT", transport, 1);
                auto comm = colls::world();
                int x = 1;
                colls::all_reduce(comm, std::span(&x, 1), colls::sum);
                if (x != 2) return 2;
            }
            return 0;
        };
        const pid_t other = fork();
        if (other == 0) _exit(in_other_process([&] { return be_rank("1"); }));
        const int own = be_rank("0");
        int theirs = -1;
        waitpid(other, &theirs, 0);
        return own != 0 ? own : theirs == 0 ? 0 : 3;
    });
    if (status == 1)
        WARN("left out: not allowed to have a network of its own");
    else
        CHECK(status == 0);
}

TEST_CASE("processes: world() without a launcher has one rank", "[processes]") {
    for (const char* name : {"COLLS_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) unsetenv(name);
    auto comm = colls::world();
    CHECK(comm.size() == 1);
    std::vector<float> x(1000, 3);
    colls::all_reduce(comm, x, colls::sum);
    CHECK(x == std::vector<float>(1000, 3));
}

TEST_CASE("processes: world() of processes launched by environment variables", "[processes]") {
    for (const std::string& t : process_transports())
        for (const int n : {2, 5}) {
            counters& c = shared_counters();
            setenv("COLLS_TRANSPORT", t.c_str(), 1);
            setenv("MASTER_ADDR", "127.0.0.1", 1);
            const claimed_ports port;
            setenv("MASTER_PORT", std::to_string(port.first()).c_str(), 1);
            setenv("WORLD_SIZE", std::to_string(n).c_str(), 1);
            std::vector<pid_t> children;
            for (int r = 0; r < n; ++r) {
                const pid_t child = fork();
                if (child > 0) {
                    children.push_back(child);
                    continue;
                }
                setenv("RANK", std::to_string(r).c_str(), 1);
                int status = 1;
                try {
                    auto comm = colls::world();
                    auto reached = comm.allocate<double>(50'000);
                    for (double& x : reached) x = r + 1;
                    colls::all_reduce(comm, reached, colls::sum);
                    std::vector<double> any(50'000, r + 1);
                    colls::all_reduce(comm, any, colls::sum);
                    for (const double x : reached) c.wrong += x != n * (n + 1) / 2;
                    for (const double x : any) c.wrong += x != n * (n + 1) / 2;
                    c.wrong += comm.rank() != r || comm.size() != n;
                    status = 0;
                } catch (const std::exception& e) {
                    std::fprintf(stderr, "rank %d: %s\n", r, e.what());
                }
                _exit(status);
            }
            for (const char* name : {"COLLS_TRANSPORT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"}) unsetenv(name);
            for (const pid_t child : children) {
                int status = 0;
                waitpid(child, &status, 0);
                CHECK(status == 0);
            }
            CHECK(c.wrong == 0);
        }
}

TEST_CASE("processes: a progress thread advances operations while its rank computes", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        run_over(t, 3, [&](colls::communicator& comm) {
            std::vector<long> x(300'000, comm.rank() + 1), sum(x.size()), message(50'000, comm.rank()), got(50'000);
            auto half = comm.split(0, -comm.rank());
            for (int turn = 1; turn <= 5; ++turn) {
                std::fill(sum.begin(), sum.end(), 0);
                if (comm.rank() == 0) {
                    colls::progress_thread progress(comm);
                    auto a = colls::start::all_reduce<colls::ring>(comm, x, sum, colls::sum);
                    auto b = colls::start::all_gather(half, std::span(x).first(100), std::span(message).first(300));
                    auto d = colls::start::send(comm, got, 1);
                    // This rank calls nothing of the library until the others have their results.
                    const double until = colls::detail::seconds_now() + 250;  // less than the deadline of the others
                    while (c.done != 2 * turn && colls::detail::seconds_now() < until) usleep(100);
                    c.wrong += c.done != 2 * turn;
                    d.wait();
                    b.wait();
                    a.wait();
                } else {
                    auto a = colls::start::all_reduce<colls::ring>(comm, x, sum, colls::sum);
                    auto b = colls::start::all_gather(half, std::span(x).first(100), std::span(message).first(300));
                    if (comm.rank() == 1) colls::recv(comm, got, 0);
                    b.wait();
                    a.wait();
                    ++c.done;
                }
                c.wrong += sum != std::vector<long>(sum.size(), 6);
                colls::barrier(comm);
            }
        });
        INFO(t);
        CHECK(c.wrong == 0);
    }
}

namespace {

/// What a rank prints to stderr, for another one that asks for its dump by a signal, and for the test.
class printed {
public:
    printed() : file_(memfd_create("printed", MFD_CLOEXEC)) { REQUIRE(file_ >= 0); }
    ~printed() { close(file_); }
    printed(const printed&) = delete;
    printed& operator=(const printed&) = delete;

    /// By this rank, from now on.
    void take_stderr() const { dup2(file_, 2); }
    std::string text() const {
        std::string all(1 << 16, '\0');
        all.resize(static_cast<std::size_t>(std::max<ssize_t>(0, pread(file_, all.data(), all.size(), 0))));
        return all;
    }
    /// Asks the process for dumps until they have said all this: under load a rank may not have waited for long yet, or
    /// still be in an earlier call.
    void ask_until(pid_t process, const std::vector<std::string>& said) const {
        const auto is_said = [&](const std::string& s) { return text().find(s) != std::string::npos; };
        for (int i = 0; i < 200 && !std::all_of(said.begin(), said.end(), is_said); ++i) {
            kill(process, SIGUSR1);
            usleep(300'000);
        }
    }

private:
    const int file_;
};

}  // namespace

TEST_CASE("processes: a dump says in which call each rank is, and for what it waits", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        const printed dumps;
        std::vector<std::string> waits{"rank 0 of 3: 2 calls begun", "for rank 2", ": waits for rank 2 in all_reduce"};
        if (t == "shm") {  // rank 1 has come, and rank 2 has not
            waits.emplace_back("): waits for rank 2 in all_reduce; in call 1 (all_reduce, direct), chunk 0 of ");
            waits.emplace_back("): waits for no rank\n");
        }
        run_over(t, 3, [&](colls::communicator& comm) {
            std::vector<int> x(40'000, 1);
            colls::all_reduce(comm, x, colls::max);
            if (comm.rank() == 2) {
                // Asks rank 0 for a dump by a signal, while both others wait for this rank.
                while (c.done == 0)
                    usleep(1'000);  // rank 0's process; kill(0, ...) would signal the whole process group
                dumps.ask_until(static_cast<pid_t>(c.done.load()), waits);
            } else if (comm.rank() == 0) {
                dumps.take_stderr();
                c.done = getpid();
            }
            colls::all_reduce<colls::direct>(comm, x, colls::max);
            if (comm.rank() == 0) colls::dump(comm);
        });
        const std::string text = dumps.text();
        INFO(t << ": " << text);
        CHECK(lacks(text, {"waits in all_reduce"}) == "");
        for (const std::string& s : waits) CHECK(lacks(text, {s}) == "");
        CHECK(text.find("its latest calls:\ncolls:     call 0") != std::string::npos);
        CHECK(text.find(": all_reduce of 40000 int, max_t, by direct\n") != std::string::npos);
    }
}

TEST_CASE("processes: a dump follows the waits from rank to rank", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        const printed dumps;
        const std::string chain = "colls:   rank 1 waits for rank 2, which waits for rank 3, which ";
        run_over(t, 4, [&](colls::communicator& comm) {
            std::vector<int> x(40'000, comm.rank());
            // Rank 0 waits for rank 1, that for rank 2, that for rank 3, and that is in no call.
            if (comm.rank() == 1) {
                dumps.take_stderr();
                c.done = getpid();
            }
            if (comm.rank() == 3) {
                while (c.done == 0) usleep(1'000);
                dumps.ask_until(static_cast<pid_t>(c.done.load()), {chain, ": waits for rank 1 in send"});
            }
            if (comm.rank() == 1 || comm.rank() == 2) colls::recv(comm, x, comm.rank() + 1);
            if (comm.rank() == 3 || comm.rank() == 2) colls::send(comm, x, comm.rank() - 1);
            c.wrong += (comm.rank() == 1 || comm.rank() == 2) && x[0] != 3;
            if (comm.rank() == 0) colls::send(comm, x, 1);
            if (comm.rank() == 1) colls::recv(comm, x, 0);
            colls::barrier(comm);
            if (comm.rank() == 1) std::fprintf(stderr, "over\n");
            if (comm.rank() == 1 && t == "shm") colls::dump(comm);
            colls::barrier(comm);
        });
        const std::string text = dumps.text();
        INFO(t << ": " << text);
        CHECK(c.wrong == 0);
        REQUIRE(text.find(chain) != std::string::npos);
        const std::string last = text.substr(text.find(chain) + chain.size());
        CHECK(last.rfind(t == "shm" ? "waits for no rank\n" : "does not answer: it is in no call, or slow\n", 0) == 0);
        CHECK(text.find(": waits for rank 3 in recv") != std::string::npos);
        CHECK(text.find(": waits for rank 1 in send") != std::string::npos);
        // What is over is forgotten.
        const std::string after = text.substr(std::min(text.size(), text.find("over\n")));
        CHECK(after.find("in recv") == std::string::npos);
        CHECK(after.find("in send") == std::string::npos);
    }
}

TEST_CASE("processes: a dump beside calls that are ahead of this rank's leaves the group whole", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        const printed dumps;
        CHECK_NOTHROW(run_over(t, 2, [&](colls::communicator& comm) {
            std::vector<int> x(1000, 1), own(500, comm.rank()), y(1000);
            if (comm.rank() == 0) {  // waits in call 0, and has begun another one
                auto first = colls::start::all_reduce(comm, x, colls::sum);
                auto second = colls::start::all_gather(comm, own, y);
                first.wait();
                second.wait();
            } else {
                dumps.take_stderr();
                for (int i = 0; i < 6000 && dumps.text().find("waits for rank 1 in all_reduce") == std::string::npos;
                    ++i)
                    colls::dump(comm), usleep(10'000);
                auto first = colls::start::all_reduce(comm, x, colls::sum);
                auto second = colls::start::all_gather(comm, own, y);
                first.wait();
                second.wait();
            }
            c.wrong += x != std::vector<int>(1000, 2) || y[0] != 0 || y[999] != 1;
        }));
        INFO(t << ": " << dumps.text());
        CHECK(c.wrong == 0);
        CHECK(dumps.text().find("waits for rank 1 in all_reduce") != std::string::npos);
    }
}

TEST_CASE("processes: started without standard descriptors, the library takes none of them", "[processes]") {
    const std::string trace = "/tmp/colls-processes_test-" + std::to_string(getpid()) + ".json";
    // In each rank: descriptors 0 to 2 are still closed after calls; the first files that it opens itself would be
    // these.
    const auto rank = [](colls::communicator& comm) {
        const auto none_taken = [] {
            // One that is kept stays taken. A sanitizer takes two for a moment, to see whether memory may be read.
            const double until = colls::detail::seconds_now() + 5;
            for (const int fd : {0, 1, 2})
                while (fcntl(fd, F_GETFD) != -1) {
                    if (colls::detail::seconds_now() > until) throw std::runtime_error("one is taken");
                    usleep(100);
                }
        };
        std::vector<int> x(1000, comm.rank() + 1);
        colls::all_reduce(comm, x, colls::sum);
        colls::communicator half = comm.split(comm.rank() % 2, comm.rank());
        colls::all_reduce(half, x, colls::sum);
        none_taken();
    };
    for (const char* const how : {"threads", "shm", "tcp", "world", "world of two hosts"}) {
        INFO(how);
        const std::string_view asked = how;
        std::fflush(nullptr);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const auto close_them = [](int) {
                for (const int fd : {0, 1, 2}) close(fd);
            };
            setenv("COLLS_TRACE", trace.c_str(), 1);
            int status = 1;
            try {
                if (asked.substr(0, 5) == "world") {
                    launch_world(4, asked == "world" ? 4 : 2, rank, close_them);
                } else {
                    close_them(0);
                    run_over(std::string(asked), 4, rank);
                }
                status = 0;
            } catch (const std::exception&) {}
            _exit(status);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    }
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator("/tmp"))
        if (file.path().string().rfind(trace.substr(0, trace.size() - 4), 0) == 0)
            std::filesystem::remove(file.path(), ignored);
}

TEST_CASE("processes: an error has the same round on every rank", "[processes]") {
    for (const std::string& t : process_transports()) {
        counters& c = shared_counters();
        std::string text;
        try {
            run_over(t, 4, [&](colls::communicator& comm) {
                std::vector<int> x(1000, comm.rank()), all(4000);
                colls::all_gather<colls::ring>(comm, x, all);
                comm.set_timeout(std::chrono::milliseconds(500));
                if (comm.rank() == 3)
                    for (int i = 0; i < 10'000 && c.done < 3; ++i) usleep(1'000);
                try {
                    colls::all_gather<colls::ring>(comm, x, all);
                } catch (const colls::error& e) {
                    // The text of each has that of the rank that gave up, which names the round.
                    const std::string_view said = e.what();
                    c.wrong += e.round() < 0 || said.find("round " + std::to_string(e.round())) == said.npos;
                    ++c.done;
                    if (comm.rank() != 3) throw;
                }
            });
        } catch (const colls::error& e) {
            text = e.what();
        }
        INFO(t << ": " << text);
        CHECK(c.done == 4);
        CHECK(c.wrong == 0);
    }
}
