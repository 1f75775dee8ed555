// A rank that dies while a world is formed, at any of its system calls: each other rank has an error that names it, and
// not by its deadline. The rank is traced (ptrace), and killed at a call.
#include "catch.hpp"

#include "support/forbidden.hpp"
#include "support/ports.hpp"
#include "support/random.hpp"

#include <colls/colls.hpp>
#include <colls/world.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

#if defined(__x86_64__)

using support::long_run;

/// How the ranks of one world ended.
struct ending {
    std::uint32_t done = 0;
    int code = -1, peer = -1;  // of an error
    char text[400] = {};
};
constexpr int most = 8;
ending* endings() {
    static ending* const all = static_cast<ending*>(
        mmap(nullptr, most * sizeof(ending), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return all;
}

struct shape {
    const char* name;
    const char* transport;
    int ranks, per_host;
};
constexpr shape shapes[] = {{"shm", "shm", 3, 3}, {"tcp", "tcp", 3, 3}, {"hosts", "shm", 4, 2}};

/// The process of a rank: forms the world, and makes one call.
[[noreturn]] void be_rank(const shape& s, int r, int port, bool traced, const std::function<void()>& before) {
    const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    set("COLLS_RANK", std::to_string(r));
    set("COLLS_SIZE", std::to_string(s.ranks));
    set("COLLS_MASTER_ADDR", "127.0.0.1");
    set("COLLS_MASTER_PORT", std::to_string(port));
    set("COLLS_HOST", "host " + std::to_string(r / s.per_host));
    set("COLLS_TRANSPORT", s.transport);
    set("COLLS_TIMEOUT", "20");
    if (traced) {
        ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
        raise(SIGSTOP);
    }
    ending& how = endings()[r];
    try {
        before();
        colls::communicator comm = colls::world();
        syscall(SYS_getpgid, 0);  // seen by the tracer: the world stands
        std::vector<int> x(100, r + 1);
        colls::all_reduce(comm, x, colls::sum);
        how.code = x[0] == s.ranks * (s.ranks + 1) / 2 ? 0 : -2;
    } catch (const colls::error& e) {
        how.code = 100 + static_cast<int>(e.code());
        how.peer = e.peer();
        std::strncpy(how.text, e.what(), sizeof how.text - 1);
    } catch (const std::exception& e) {
        std::strncpy(how.text, e.what(), sizeof how.text - 1);
    }
    how.done = 1;
    _exit(0);
}

bool has_ended(pid_t p) {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(p), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == p;
}

/// Runs a world of which `victim` is killed at its system call number `at` after the others know it: after its first
/// message or, for rank 0, once it has answered them all. Returns how many such calls it has made; fewer than `at`: it
/// lives. With `slow`, only sends count, and that rank sleeps from then on, until the others have ended or half a
/// second is over.
int run(const shape& s, int victim, int at, const std::function<void(int)>& before = [](int) {}, int slow = -1) {
    const support::claimed_ports port;
    for (int r = 0; r < s.ranks; ++r) endings()[r] = ending();
    std::vector<pid_t> processes;
    for (int r = 0; r < s.ranks; ++r) {
        const pid_t child = fork();
        if (child < 0) throw std::runtime_error("cannot fork");
        if (child == 0) be_rank(s, r, port.first(), r == victim, [&] { before(r); });
        processes.push_back(child);
    }
    int calls = 0;
    if (victim >= 0) {
        const pid_t traced = processes[static_cast<std::size_t>(victim)];
        int status = 0, accepted = 0;
        bool known = false;
        waitpid(traced, &status, 0);
        ptrace(PTRACE_SETOPTIONS, traced, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
        bool entry = false, over = false;
        for (int signal = 0; !over;) {
            ptrace(PTRACE_SYSCALL, traced, nullptr, signal);
            if (waitpid(traced, &status, 0) != traced || !WIFSTOPPED(status)) break;
            signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
            if (signal != 0) continue;
            entry = !entry;
            user_regs_struct of{};
            ptrace(PTRACE_GETREGS, traced, nullptr, &of);
            if (entry && of.orig_rax == SYS_getpgid) {
                over = true;
            } else if (!entry) {
                accepted += of.orig_rax == SYS_accept4 && static_cast<long long>(of.rax) >= 0;
                known = known || (of.orig_rax == SYS_sendto && static_cast<long long>(of.rax) > 0 &&
                                     (victim > 0 || accepted >= s.ranks - 1));
            } else if (known && (slow < 0 || of.orig_rax == SYS_sendto) && ++calls == at) {
                if (slow >= 0) kill(processes[static_cast<std::size_t>(slow)], SIGSTOP);
                kill(traced, SIGKILL);
            }
        }
        if (over) ptrace(PTRACE_DETACH, traced, nullptr, nullptr);
    }
    if (slow >= 0) {
        const auto ended = [&](int r) {
            return r == slow || r == victim || has_ended(processes[static_cast<std::size_t>(r)]);
        };
        for (int i = 0, all = 0; i < 500 && all < s.ranks; ++i, usleep(1000))
            for (all = 0; all < s.ranks && ended(all); ++all) {}
        kill(processes[static_cast<std::size_t>(slow)], SIGCONT);
    }
    for (const pid_t p : processes) waitpid(p, nullptr, 0);  // ECHILD for the one that the tracer has waited for
    return calls;
}

TEST_CASE("forming: a rank that dies at any system call is named in the others' errors, before their deadlines",
    "[forming]") {
    for (const shape& s : shapes)
        for (const int victim : {0, 1, s.ranks - 1}) {
            const int calls = run(s, victim, 0);
            INFO(s.name << ", rank " << victim << " of " << s.ranks << ", which makes " << calls << " calls");
            REQUIRE(calls > 10);
            for (int r = 0; r < s.ranks; ++r) REQUIRE(endings()[r].code == 0);
            const int every = long_run ? 1 : calls / 5 + 1;
            for (int at = 1; at <= calls; at += every) {
                if (run(s, victim, at) < at) break;  // it waited less often this time
                for (int r = 0; r < s.ranks; ++r) {
                    const ending& how = endings()[r];
                    if (r == victim) continue;
                    INFO("killed at call " << at << "; rank " << r << ": " << how.text);
                    REQUIRE(how.done == 1);
                    CHECK(how.code == 100 + static_cast<int>(colls::errc::peer_failed));
                    CHECK(std::strstr(how.text, ("rank " + std::to_string(victim)).c_str()) != nullptr);
                }
            }
        }
}

TEST_CASE("forming: a rank that wakes when the others have given up hears why", "[forming]") {
    for (const shape& s : shapes) {
        if (!long_run && s.name != std::string("tcp")) continue;
        int at = 1;
        for (; run(s, 0, at, [](int) {}, 1) == at; ++at) {
            const ending& how = endings()[1];
            INFO(s.name << ", rank 0 is killed at its send " << at << "; rank 1: " << how.text);
            REQUIRE(how.done == 1);
            CHECK(how.code == 100 + static_cast<int>(colls::errc::peer_failed));
            CHECK(std::strstr(how.text, "rank 0") != nullptr);
        }
        CHECK(at > s.ranks);
    }
}

TEST_CASE("forming: a limit that one rank meets is named by all ranks, before their deadlines", "[forming]") {
    struct limited {
        int what;
        rlim_t first, last, step;
        const char* named;
    };
    const limited all[] = {{RLIMIT_NOFILE, 4, 24, long_run ? rlim_t{1} : rlim_t{3}, "ulimit -n"},
        {RLIMIT_FSIZE, 1024, 1 << 26, long_run ? rlim_t{1} << 20 : rlim_t{1} << 24, "ulimit -f"}};
    for (const shape& s : shapes)
        for (const limited& l : all)
            for (const int victim : {0, s.ranks - 1})
                for (rlim_t to = l.first + (victim == 0); to <= l.last; to += l.step) {
                    run(s, -1, 0, [&](int r) {
                        const rlimit both{to, to};
                        if (l.what == RLIMIT_NOFILE)
                            for (int fd = 3; fd < 100; ++fd) close(fd);  // what the test itself has open
                        if (r == victim) setrlimit(static_cast<decltype(RLIMIT_NOFILE)>(l.what), &both);
                    });
                    bool formed = false;  // it was enough for that
                    for (int r = 0; r < s.ranks; ++r)
                        formed = formed || endings()[r].code == 0 || std::strstr(endings()[r].text, "in all_reduce");
                    for (int r = 0; r < s.ranks; ++r) {
                        const ending& how = endings()[r];
                        INFO(s.name << ", rank " << victim << " limited to " << to << "; rank " << r << ": "
                                    << how.text);
                        CHECK(how.done == 1);
                        CHECK(how.code != 100 + static_cast<int>(colls::errc::timeout));
                        if (how.code == 0) continue;
                        // In a call the limit ends one connection: the rank at its other end sees that this one is
                        // gone.
                        const bool names = std::strstr(how.text, l.named) != nullptr;
                        CHECK((names || (formed && std::strstr(how.text, "in all_reduce") != nullptr)));
                        CHECK((names || std::strstr(how.text, ("rank " + std::to_string(victim)).c_str()) != nullptr));
                    }
                }
}

TEST_CASE("forming: what a sandbox refuses to a rank, or to all, is named by all ranks, before their deadlines",
    "[forming]") {
    for (const shape& s : shapes)
        for (const bool sockets : {false, true})
            for (const int victim : {-1, 0, s.ranks - 1}) {
                run(s, -1, 0, [&](int r) {
                    if (victim < 0 || r == victim)
                        support::forbid(sockets ? support::no_unix_sockets : support::no_memory_files);
                });
                // Memory is made, and sockets are needed, by the first rank of a host.
                const bool fails = s.name != std::string("tcp") && (sockets || victim != s.ranks - 1);
                int named = 0;
                for (int r = 0; r < s.ranks; ++r) {
                    const ending& how = endings()[r];
                    INFO(s.name << ", " << (sockets ? "sockets" : "memory") << ", victim " << victim << "; rank " << r
                                << ": " << how.text);
                    CHECK(how.done == 1);
                    CHECK(how.code != 100 + static_cast<int>(colls::errc::timeout));
                    CHECK((how.code == 0) == !fails);
                    named += std::strstr(how.text, sockets ? "ranks of this host" : "COLLS_TRANSPORT=tcp") != nullptr ||
                             std::strstr(how.text, "the shared memory of this host") != nullptr;
                }
                CHECK(named >= (fails ? 1 : 0));
            }
}

#endif

}  // namespace
