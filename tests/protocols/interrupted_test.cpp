// Signals whose handlers do not restart system calls, as profilers and a program's own timers have: calls of the system
// that wait end early with EINTR, and no rank may take that for an error, for the deadline or for the end of a peer.
// The ranks are interrupted in two ways: by a timer of 1 ms in each process, and by this program's own definitions of
// system calls, which also reach what a timer hits once in a thousand runs.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/launch.hpp"
#include "support/ports.hpp"
#include "support/says.hpp"

#include <colls/bootstrap.hpp>
#include <colls/net/detail/forming/hand_over.hpp>
#include <colls/net/detail/forming/rendezvous.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <type_traits>

using namespace support;

namespace {

enum function {
    in_accept4,
    in_connect,
    in_futex,
    in_nanosleep,
    in_poll,
    in_ppoll,
    in_process_vm_readv,
    in_pwrite,
    in_readv,
    in_recv,
    in_recvmsg,
    in_send,
    in_sendmsg,
    in_usleep,
    in_waitpid,
    functions
};
constexpr int most_processes = 8;

/// What the processes of a test share.
struct board {
    std::atomic<long> interrupted[most_processes];  // by rank; one beyond the ranks: the parent
    std::atomic<long> calls[functions];             // interrupted by this program
    std::atomic<long> accepted;                     // connections
    std::atomic<int> copying;                       // ranks between which the kernel can copy
};
board& shared() {
    static const common<board> all;
    return *all;
}
int own_place = 0;                      // in `interrupted`
std::atomic<bool> interrupting{false};  // by this program
int forks_until_failure = -1;           // negative: none fails
void (*in_child)(int) = nullptr;        // called in a forked process, with its number
int forked = 0;

void note_interruption(function f) {
    ++shared().calls[f];
    ++shared().interrupted[own_place];
}
thread_local auto state = static_cast<std::uint32_t>(getpid());  // of the order in which calls are interrupted
/// Whether this call is to be interrupted: half of them are, in no regular order.
bool interrupts(function f) {
    if (!interrupting) return false;
    state = state * 1664525u + 1013904223u;
    if (state >> 31 == 0) return false;
    note_interruption(f);
    errno = EINTR;
    return true;
}
/// The system's function of that name.
template <class F>
F* system_function(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
// Where there is something to do, the system does it, though a signal is pending. A long wait is always interrupted.
int poll(pollfd* all, nfds_t count, int timeout) {
    static auto* const call = system_function<int(pollfd*, nfds_t, int)>("poll");
    if (!interrupting) return call(all, count, timeout);
    const bool at_once = interrupts(in_poll), is_long = timeout < 0 || timeout > 5;
    const int ready = call(all, count, at_once ? 0 : is_long ? 5 : timeout);
    if (ready != 0 || (!at_once && !is_long)) return ready;
    if (!at_once) note_interruption(in_poll);
    errno = EINTR;
    return -1;
}
int ppoll(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    static auto* const call = system_function<int(pollfd*, nfds_t, const timespec*, const sigset_t*)>("ppoll");
    if (!interrupting) return call(all, count, timeout, mask);
    const bool at_once = interrupts(in_ppoll);
    const timespec none{};
    const int ready = call(all, count, at_once ? &none : timeout, mask);
    if (ready != 0 || !at_once) return ready;
    errno = EINTR;
    return -1;
}
int accept4(int fd, sockaddr* from, socklen_t* length, int flags) {
    static auto* const call = system_function<int(int, sockaddr*, socklen_t*, int)>("accept4");
    if (interrupts(in_accept4)) return -1;
    const int result = call(fd, from, length, flags);
    shared().accepted += result >= 0;
    return result;
}
// An interrupted attempt to connect over TCP goes on.
int connect(int fd, const sockaddr* to, socklen_t length) {
    static auto* const call = system_function<int(int, const sockaddr*, socklen_t)>("connect");
    if (to->sa_family == AF_UNIX) return interrupts(in_connect) ? -1 : call(fd, to, length);
    const int result = call(fd, to, length);
    return (result == 0 || errno == EINPROGRESS) && interrupts(in_connect) ? -1 : result;
}
ssize_t recv(int fd, void* to, size_t bytes, int flags) {
    static auto* const call = system_function<ssize_t(int, void*, size_t, int)>("recv");
    return interrupts(in_recv) ? -1 : call(fd, to, bytes, flags);
}
ssize_t readv(int fd, const iovec* to, int count) {
    static auto* const call = system_function<ssize_t(int, const iovec*, int)>("readv");
    return interrupts(in_readv) ? -1 : call(fd, to, count);
}
// A signal may come with the message: then the message stays there.
ssize_t recvmsg(int fd, msghdr* to, int flags) {
    static auto* const call = system_function<ssize_t(int, msghdr*, int)>("recvmsg");
    pollfd p{fd, POLLIN, 0};
    if (interrupting) system_function<int(pollfd*, nfds_t, int)>("poll")(&p, 1, 1000);
    return interrupts(in_recvmsg) ? -1 : call(fd, to, flags);
}
ssize_t send(int fd, const void* from, size_t bytes, int flags) {
    static auto* const call = system_function<ssize_t(int, const void*, size_t, int)>("send");
    return interrupts(in_send) ? -1 : call(fd, from, bytes, flags);
}
ssize_t sendmsg(int fd, const msghdr* from, int flags) {
    static auto* const call = system_function<ssize_t(int, const msghdr*, int)>("sendmsg");
    return interrupts(in_sendmsg) ? -1 : call(fd, from, flags);
}
ssize_t process_vm_readv(
    pid_t process, const iovec* to, unsigned long count, const iovec* from, unsigned long far, unsigned long flags) {
    static auto* const call =
        system_function<ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long)>(
            "process_vm_readv");
    return interrupts(in_process_vm_readv) ? -1 : call(process, to, count, from, far, flags);
}
// Interrupted after a part, it says how long the part is.
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
    static auto* const call = system_function<ssize_t(int, const void*, size_t, off_t)>("pwrite");
    if (interrupts(in_pwrite)) return -1;
    return call(fd, from, interrupting ? (bytes + 1) / 2 : bytes, at);
}
int nanosleep(const timespec* time, timespec* left) {
    static auto* const call = system_function<int(const timespec*, timespec*)>("nanosleep");
    return interrupts(in_nanosleep) ? -1 : call(time, left);
}
int usleep(useconds_t time) {
    static auto* const call = system_function<int(useconds_t)>("usleep");
    return interrupts(in_usleep) ? -1 : call(time);
}
// For what has no function of its own: waits for a word of memory. (It takes six arguments, whatever the caller gives,
// as the system's function does.)
long syscall(long number, ...) noexcept {
    // No static variable of the function: a thread that waits until another one has initialised it calls `syscall`.
    static constinit std::atomic<long (*)(long, ...)> known{nullptr};
    auto* call = known.load(std::memory_order_relaxed);
    if (call == nullptr) known = call = system_function<long(long, ...)>("syscall");
    long x[6];
    va_list all;
    va_start(all, number);
    for (long& argument : x) argument = va_arg(all, long);
    va_end(all);
    if (number == SYS_futex && x[1] == FUTEX_WAIT && interrupts(in_futex)) return -1;
    return call(number, x[0], x[1], x[2], x[3], x[4], x[5]);
}
pid_t waitpid(pid_t process, int* status, int how) {
    static auto* const call = system_function<pid_t(pid_t, int*, int)>("waitpid");
    return (how & WNOHANG) == 0 && interrupts(in_waitpid) ? -1 : call(process, status, how);
}
pid_t fork() noexcept(noexcept(::fork())) {
    static auto* const call = system_function<pid_t()>("fork");
    if (forks_until_failure == 0) {
        errno = EAGAIN;
        return -1;
    }
    --forks_until_failure;
    const int number = forked++;
    const pid_t child = call();
    if (child == 0 && in_child) in_child(number);
    return child;
}
}  // extern "C"

namespace {

enum class source { timer, program };
source chosen = source::timer;
int latest = 0;  // the rank that comes late

void interrupt_every(suseconds_t microseconds) {
    struct sigaction action{};
    action.sa_handler = [](int) { ++shared().interrupted[own_place]; };
    sigaction(SIGALRM, &action, nullptr);
    const itimerval each{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &each, nullptr);
}
void begin(int place) {
    own_place = place;
    state = static_cast<std::uint32_t>(getpid());
    interrupting = chosen == source::program;
    if (chosen == source::timer) interrupt_every(1000);
}
/// Returns when each other rank has been interrupted some times, in which it waits for this one; after some time in any
/// case, since not all waits are system calls that count.
void come_late(int n, double seconds) {
    long before[most_processes];
    for (int r = 0; r < n; ++r) before[r] = shared().interrupted[r];
    const double until = colls::detail::seconds_now() + seconds;
    for (int r = 0; r < n; ++r)
        while (r != own_place && shared().interrupted[r] < before[r] + 8 && colls::detail::seconds_now() < until)
            system_function<int(pollfd*, nfds_t, int)>("poll")(nullptr, 0, 1);
}
constexpr int ranks = 4, nobody = -1;
void begin_in_child(int rank) {
    begin(rank);
    if (rank == latest) come_late(ranks, 60);
}

/// Interrupts the processes that are forked while it exists, and this process where `own` is true.
class interruptions {
public:
    interruptions(source how, int late, bool own) {
        chosen = how;
        latest = late;
        forked = 0;
        own_place = most_processes - 1;
        in_child = begin_in_child;
        interrupting = own && how == source::program;
        // Less often: some systems begin a fork anew that was interrupted.
        if (own && how == source::timer) interrupt_every(5000);
    }
    interruptions(const interruptions&) = delete;
    interruptions& operator=(const interruptions&) = delete;
    ~interruptions() {
        const itimerval never{};
        setitimer(ITIMER_REAL, &never, nullptr);
        interrupting = false;
        in_child = nullptr;
    }
};

class exchange_by_group final : public colls::member_exchange {
public:
    explicit exchange_by_group(colls::communicator& comm) : comm_(comm) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const auto n = static_cast<std::size_t>(comm_.size());
        colls::all_gather(comm_, std::span(static_cast<const std::byte*>(own), bytes),
            std::span(static_cast<std::byte*>(all), bytes * n));
    }

private:
    colls::communicator& comm_;
};

/// What each rank does: waits of every kind for a rank that comes late. Then the last rank dies, and the others go on.
void work(colls::communicator& comm) {
    const int n = comm.size(), rank = comm.rank(), last = n - 1;
    const auto last_is_late = [&] {
        if (rank == last) come_late(n, 0.02);
    };
    const auto summed = [&](colls::communicator& all, std::size_t count, const char* what) {
        std::vector<int> x(count, all.rank() + 1);
        last_is_late();
        colls::all_reduce(all, x, colls::sum);
        expect(x == std::vector<int>(count, all.size() * (all.size() + 1) / 2), what);
    };
    shared().copying += comm.context().access.copies_between;
    summed(comm, 1, "a small sum");
    summed(comm, 300'000, "a large sum");

    std::vector<int> one(100'000, rank), other(one.size());
    last_is_late();
    auto sending = colls::start::send(comm, one, (rank + 1) % n);
    colls::recv(comm, other, (rank + last) % n);
    sending.wait();
    expect(other == std::vector<int>(one.size(), (rank + last) % n), "a message");

    last_is_late();
    {
        colls::communicator half = comm.split(rank % 2, -rank);
        summed(half, 1000, "a sum of a half");
        std::optional<colls::progress_thread> progress;
        if (rank == 0) progress.emplace(comm);
        std::vector<int> all(one.size() * static_cast<std::size_t>(n));
        auto gathering = colls::start::all_gather(comm, one, all);
        last_is_late();
        gathering.wait();
        for (std::size_t i = 0; i < all.size(); i += 999)
            expect(all[i] == static_cast<int>(i / one.size()), "a gather");
    }
    {
        exchange_by_group exchange(comm);
        colls::communicator again = colls::bootstrap(rank, n, exchange);
        summed(again, 10, "a sum of a group that was formed by an exchange");
        const int output = dup(2), nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nothing, 2);
        colls::dump(again);
        dup2(output, 2);
        last_is_late();
    }
    if (rank == last) {
        come_late(n, 0.02);
        raise(SIGKILL);
    }
    try {
        for (;;) colls::all_reduce(comm, one, colls::max);
    } catch (const colls::error& e) {
        expect(e.code() == colls::errc::peer_failed && e.peer() == last, e.what());
    }
    colls::communicator rest = comm.shrink();
    expect(rest.size() == last, "the size of the rest");
    summed(rest, 1000, "a sum of the rest");
}

/// The error of the run: that the last rank was killed, and nothing else.
std::string outcome_of_processes(const std::string& transport) {
    try {
        run_over(transport, ranks, work);
    } catch (const colls::error& e) {
        return e.what();
    }
    return "no error";
}
std::string outcome_of_world(const char* transport, int per_host) {
    const with_environment over("COLLS_TRANSPORT", transport);
    try {
        launch_world(ranks, per_host, work);
    } catch (const std::runtime_error& e) {
        return e.what();
    }
    return "no error";
}
/// This process has no child, dead or alive.
bool has_no_child() {
    siginfo_t info{};
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == -1 && errno == ECHILD;
}
void clear_counts() {
    for (auto& count : shared().calls) count = 0;
}
/// The numbers of those functions of which this program has interrupted no call: then the test shows nothing.
std::string uninterrupted(std::initializer_list<function> these) {
    std::string text;
    for (const function f : these)
        if (shared().calls[f] == 0) text += std::to_string(f) + " ";
    return text;
}

}  // namespace

TEST_CASE("interrupted: processes form a group, make calls, shrink it and end", "[interrupted]") {
    clear_counts();
    for (const std::string& transport : process_transports()) {
        int copying = 0;
        for (const source how : {source::timer, source::program}) {
            const with_environment copies("COLLS_SINGLE_COPY", "1");
            const interruptions these(how, ranks - 1, true);
            shared().copying = 0;
            const std::string text = outcome_of_processes(transport);
            if (how == source::timer) copying = shared().copying;
            INFO(transport << (how == source::timer ? ", by a timer" : ", by the program"));
            CHECK(lacks(text, {"rank 3's process was killed by signal 9"}) == "");
            CHECK(has_no_child());
            CHECK(shared().copying == copying);
        }
    }
    CHECK(uninterrupted({in_accept4, in_futex, in_nanosleep, in_poll, in_ppoll, in_process_vm_readv, in_recv, in_send,
              in_sendmsg}) == "");
}

TEST_CASE("interrupted: ranks of a world meet, make calls, shrink the group and end", "[interrupted]") {
    clear_counts();
    for (const source how : {source::timer, source::program})
        for (const auto& [transport, per_host, late] :
            {std::tuple("shm", ranks, ranks - 1), {"tcp", ranks, 0}, {"shm", 2, ranks - 1}}) {
            const interruptions these(how, late, false);
            INFO(transport << ", " << per_host << " ranks a host"
                           << (how == source::timer ? ", by a timer" : ", by the program"));
            CHECK(outcome_of_world(transport, per_host) == "1 ranks of a world failed");
        }
    CHECK(uninterrupted({in_accept4, in_poll, in_ppoll, in_recv, in_send, in_sendmsg}) == "");
}

TEST_CASE("interrupted: a descriptor that is handed out reaches every process that fetches it", "[interrupted]") {
    const interruptions these(source::program, nobody, true);
    const colls::detail::descriptor file(memfd_create("handed out", MFD_CLOEXEC));
    REQUIRE(file);
    const auto number = static_cast<std::uint64_t>(getpid()) << 32 | 4711;
    std::array<int, 16> got;
    std::vector<std::jthread> threads;
    for (int& mine : got)
        threads.emplace_back([&mine, number] {
            try {
                mine = colls::detail::fetch(number, 1, 30, 1, 0, [] {})[0].release();
            } catch (const colls::error&) {
                mine = -1;
            }
        });
    CHECK_NOTHROW(colls::detail::hand_out(number, std::array{file.get()}, static_cast<int>(got.size()), 30, 0, [] {}));
    threads.clear();
    struct stat one{}, other{};
    CHECK(fstat(file.get(), &one) == 0);
    for (const int fd : got) {
        CHECK(fstat(fd, &other) == 0);
        CHECK(other.st_ino == one.st_ino);
        close(fd);
    }
}

TEST_CASE("interrupted: a rank that is given twice is refused, and the first one stays", "[interrupted]") {
    const interruptions these(source::program, nobody, true);
    const claimed_ports port;
    std::atomic<int> met{0}, refused{0}, over{0};
    shared().accepted = 0;
    const auto meet_as = [&](int rank) {
        colls::launch l;
        l.rank = rank, l.size = 3, l.port = port.first(), l.token = "the token";
        try {
            colls::detail::meet(l, 100);
            ++met;
        } catch (const colls::error& e) {
            refused += e.code() == colls::errc::invalid_argument;
        }
        ++over;
    };
    std::vector<std::jthread> threads;
    threads.emplace_back(meet_as, 0);
    for (int i = 0; i < 9; ++i) threads.emplace_back(meet_as, 1);
    while (over < 8) usleep(100);
    threads.emplace_back(meet_as, 2);
    threads.clear();
    CHECK(met == 3);
    CHECK(refused == 8);
    CHECK(shared().accepted == 10);  // none was dropped and had to connect again
}

TEST_CASE("interrupted: a run that cannot fork all its processes leaves none of them", "[interrupted]") {
    for (int i = 0; i < 4; ++i) {
        const interruptions these(source::program, nobody, true);
        forks_until_failure = 3;
        std::string text = "no error";
        try {
            colls::processes::run(5, [](colls::communicator& comm) { colls::barrier(comm); });
        } catch (const colls::error& e) {
            text = e.what();
        }
        forks_until_failure = -1;
        CHECK(lacks(text, {"cannot fork rank 3"}) == "");
        CHECK(has_no_child());
    }
}

TEST_CASE("interrupted: a recording is written whole, by one group after another", "[interrupted]") {
    std::string folder = (std::filesystem::temp_directory_path() / "colls-interrupted-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    {
        const with_environment to("COLLS_TRACE", (folder + "/calls.json").c_str());
        const interruptions these(source::program, nobody, true);
        for (int run = 0; run < 3; ++run)
            colls::threads::run(2, [](colls::communicator& comm) {
                for (int i = 0; i < 20; ++i) colls::barrier(comm);
            });
    }
    std::string text;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
        std::ifstream from(file.path());
        text.append(std::istreambuf_iterator<char>(from), {});
    }
    std::filesystem::remove_all(folder);
    int calls = 0;
    for (std::size_t at = 0; (at = text.find("\"name\":\"barrier\"", at)) != text.npos; ++at) ++calls;
    CHECK(calls == 3 * 2 * 20);
    CHECK(text.ends_with("\n]\n"));
}
