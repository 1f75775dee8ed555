// Processes that open an endpoint each, know each other's handles, and say how they ended.
#pragma once

#include "support/fault.hpp"

#include <colls/collectives.hpp>
#include <colls/detail/support/clock.hpp>
#include <colls/elastic.hpp>
#include <colls/operators.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace gathered {

constexpr int most = 12;

/// How one of the processes ended.
struct ending {
    int done = 0;
    int code = -1, peer = -1;  ///< 0: as it should; 100 + errc: by that error; -1: it died, -2: by a check
    char text[480] = {};
};
struct shared {
    std::atomic<int> open{0}, step[8] = {};
    std::atomic<std::uint64_t> history[256] = {};  ///< of each epoch, a hash of its members
    char handles[most][256] = {};
    ending ended[most];
};

/// What one of the processes has.
struct process {
    int number;
    int n;
    shared& all;
    colls::endpoint own;

    std::string handle(int i) const { return all.handles[i]; }
    std::vector<std::string> list(const std::vector<int>& numbers) const {
        std::vector<std::string> handles;
        for (const int i : numbers) handles.push_back(handle(i));
        return handles;
    }
    /// Returns when `count` processes have called it for that step.
    void meet(int step, int count) const {
        all.step[step].fetch_add(1, std::memory_order_acq_rel);
        wait(all.step[step], count);
    }
    static void wait(const std::atomic<int>& for_it, int count) {
        const double until = colls::detail::seconds_now() + 60;
        while (for_it.load(std::memory_order_acquire) < count) {
            if (colls::detail::seconds_now() > until) throw std::runtime_error("others have not come");
            usleep(200);
        }
    }
};

inline void expect(bool is, const char* what) {
    if (!is) throw std::runtime_error(what);
}

/// The map x -> a x + b; one after the other is associative, and does not commute.
struct affine {
    std::uint32_t a, b;
    bool operator==(const affine&) const = default;
};
struct after {
    affine operator()(affine f, affine g) const { return {f.a * g.a, g.a * f.b + g.b}; }
};

/// The ranks are the processes `members`, in that order; small, large and order-sensitive calls are right.
inline void check_group(colls::communicator& comm, const std::vector<int>& members, int own) {
    const int n = static_cast<int>(members.size());
    expect(comm.size() == n && members[static_cast<std::size_t>(comm.rank())] == own, "ranks");
    std::vector<int> all(static_cast<std::size_t>(n));
    colls::all_gather(comm, std::vector<int>{own}, all);
    expect(all == members, "all_gather");
    for (const std::size_t count : {std::size_t{1}, std::size_t{20'001}}) {
        const auto of = [&](int m, std::size_t i) {
            return affine{static_cast<std::uint32_t>(2 * m + 3),
                static_cast<std::uint32_t>(m + 1) + static_cast<std::uint32_t>(i)};
        };
        std::vector<affine> x(count + 2, affine{77, 77});  // a guard on either side
        for (std::size_t i = 0; i < count; ++i) x[i + 1] = of(own, i);
        colls::all_reduce(comm, std::span(x.data() + 1, count), after{});
        expect(x.front() == affine{77, 77} && x.back() == affine{77, 77}, "guards");
        for (std::size_t i = 0; i < count; ++i) {
            affine wanted = of(members[0], i);
            for (int r = 1; r < n; ++r) wanted = after{}(wanted, of(members[static_cast<std::size_t>(r)], i));
            expect(x[i + 1] == wanted, "all_reduce in order");
        }
    }
    std::vector<std::uint64_t> x(1000);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = i * static_cast<std::uint64_t>(own + 1);
    std::uint64_t sum = 0;
    for (const int m : members) sum += static_cast<std::uint64_t>(m + 1);
    colls::all_reduce(comm, x, colls::sum);
    for (std::size_t i = 0; i < x.size(); ++i) expect(x[i] == i * sum, "all_reduce");
    colls::barrier(comm);
}

struct shape {
    const char* name;
    const char* transport;
    int per_host;
};
inline constexpr shape shapes[] = {{"memory", "shm", most}, {"tcp", "tcp", most}, {"hosts", "shm", 2}};

/// Starts the processes; call() in the parent meanwhile; returns when all have ended.
class processes {
public:
    processes(int n, const shape& s, const std::function<void(process&)>& f, const char* timeout = "30") {
        for (int i = 0; i < n; ++i) {
            const pid_t child = fork();
            if (child < 0) throw std::runtime_error("cannot fork");
            if (child == 0) be(i, n, s, f, timeout);
            pids.push_back(child);
        }
    }
    processes(const processes&) = delete;
    processes& operator=(const processes&) = delete;
    ~processes() { wait(); }
    void wait() {
        for (const pid_t p : pids) waitpid(p, nullptr, 0);
        pids.clear();
    }
    /// All end within a minute, or are killed. `stopped`: one that may be stopped, which is killed when the others have
    /// ended.
    void end_with_others(int stopped = -1) {
        const auto one_runs = [&] {
            for (int i = 0; i < static_cast<int>(pids.size()); ++i) {
                siginfo_t info{};
                if (i != stopped &&
                    waitid(P_PID, static_cast<id_t>(pids[static_cast<std::size_t>(i)]), &info,
                        WEXITED | WNOWAIT | WNOHANG) == 0 &&
                    info.si_pid == 0)
                    return true;
            }
            return false;
        };
        for (const double until = colls::detail::seconds_now() + 60;
            one_runs() && colls::detail::seconds_now() < until;)
            usleep(1000);
        for (const pid_t p : pids) kill(p, SIGKILL);
    }
    const ending& of(int i) const { return all->ended[i]; }
    std::string text(int i) const {
        return "process " + std::to_string(i) + " ended with " + std::to_string(of(i).code) + ": " + of(i).text;
    }

    std::vector<pid_t> pids;
    support::common<shared> all;

private:
    [[noreturn]] void be(int i, int n, const shape& s, const std::function<void(process&)>& f, const char* timeout) {
        setenv("COLLS_HOST", ("host " + std::to_string(i / s.per_host)).c_str(), 1);
        setenv("COLLS_TRANSPORT", s.transport, 1);
        setenv("COLLS_TIMEOUT", timeout, 1);
        ending& how = all->ended[i];
        try {
            process p{i, n, *all, colls::endpoint::open()};
            std::strncpy(all->handles[i], p.own.handle().c_str(), sizeof all->handles[i] - 1);
            all->open.fetch_add(1, std::memory_order_acq_rel);
            process::wait(all->open, n);
            f(p);
            how.code = 0;
        } catch (const colls::error& e) {
            how.code = 100 + static_cast<int>(e.code());
            how.peer = e.peer();
            std::strncpy(how.text, e.what(), sizeof how.text - 1);
        } catch (const std::exception& e) {
            how.code = -2;
            std::strncpy(how.text, e.what(), sizeof how.text - 1);
        }
        how.done = 1;
        _exit(0);
    }
};

/// Two groups of n processes from one list of handles, in reverse order, are right; else how one process ended.
inline std::string joined_twice(int n, const shape& s) {
    std::vector<int> order;
    for (int i = n - 1; i >= 0; --i) order.push_back(i);
    processes all(n, s, [&](process& p) {
        for (const char* const uuid : {"a", "b"}) {
            colls::communicator comm = colls::join(p.own, uuid, p.list(order));
            check_group(comm, order, p.number);
        }
    });
    all.wait();
    for (int i = 0; i < n; ++i)
        if (all.of(i).code != 0 || all.of(i).done != 1)
            return std::string(s.name) + ", " + std::to_string(n) + " processes: " + all.text(i);
    return "";
}

constexpr int of(colls::errc code) { return 100 + static_cast<int>(code); }

}  // namespace gathered
