// What waiting costs where cores are short: all_reduce of ranks that have a core each, that share one, that outnumber
// the cores of a quota, or that share the machine with other programs; and the processor time that a rank spends while
// it waits for a late one. Each run has threads, or processes, of its own, since the scheduler may place them well in
// one run and badly in the next.
#include "machine.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct scenario {
    std::string name;
    int ranks;
    double quota = 0;       ///< cores that a cgroup grants; 0: no limit
    bool one_core = false;  ///< all ranks pinned to one core, after the library has counted cores
    int busy = 0;           ///< other programs that use the cores
    const char* text;
};
const std::vector<scenario> scenarios{
    {.name = "free", .ranks = 2, .text = "two ranks, placed by the scheduler"},
    {.name = "one_core", .ranks = 2, .one_core = true, .text = "two ranks, each pinned to the same core"},
    {.name = "outnumber", .ranks = 4, .text = "four ranks, placed by the scheduler"},
    {.name = "quota", .ranks = 4, .quota = 2, .text = "four ranks, a quota of two cores"},
    {.name = "quota_of_one", .ranks = 2, .quota = 1, .text = "two ranks, a quota of one core"},
    {.name = "load", .ranks = 2, .busy = 10, .text = "two ranks beside ten busy loops"},
};

struct settings {
    std::vector<std::string> where{"free", "one_core", "outnumber", "quota", "quota_of_one", "load"};
    std::vector<std::string> transports{"threads", "shm", "tcp"};
    std::vector<std::size_t> bytes{8, 32768};
    double seconds = 0.2;
    int runs = 6;
    double late = 5;
};

/// What rank 0 writes of a run, into memory that it shares with the driver.
struct result {
    static constexpr std::size_t most = std::size_t{1} << 21;
    std::size_t calls = 0, kept = 0;
    double seconds = 0;  ///< of all calls together
    double processor = 0;
    std::uint32_t ns[most];
};

template <class T>
class shared_memory {
public:
    shared_memory() {
        void* const at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        at_ = new (at) T;
    }
    ~shared_memory() { munmap(at_, sizeof(T)); }
    shared_memory(const shared_memory&) = delete;
    shared_memory& operator=(const shared_memory&) = delete;
    T& operator*() const { return *at_; }
    T* operator->() const { return at_; }

private:
    T* at_;
};

/// A cgroup with a quota, while it exists; with version 1 or 2 of the cpu controller.
class quota {
public:
    explicit quota(double cores) {
        const std::string name = fmt::format("/colls_waiting_{}", getpid());
        const long period = 100'000, most = static_cast<long>(cores * static_cast<double>(period));
        for (const char* const root : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"}) {
            path_ = root + name;
            if (mkdir(path_.c_str(), 0755) != 0) continue;
            write(std::string(root) + "/cgroup.subtree_control", "+cpu");
            if (write(path_ + "/cpu.max", fmt::format("{} {}", most, period)) ||
                write(path_ + "/cpu.cfs_quota_us", std::to_string(most)))
                return;
            rmdir(path_.c_str());
        }
        path_.clear();
    }
    ~quota() {
        if (is_set()) rmdir(path_.c_str());
    }
    quota(const quota&) = delete;
    quota& operator=(const quota&) = delete;
    bool is_set() const { return !path_.empty(); }
    void join() const {
        if (!write(path_ + "/cgroup.procs", std::to_string(getpid()))) throw std::runtime_error("cannot join " + path_);
    }

private:
    static bool write(const std::string& path, const std::string& text) {
        std::FILE* const f = std::fopen(path.c_str(), "r+");
        if (f == nullptr) return false;
        const bool written = std::fputs(text.c_str(), f) >= 0;
        return std::fclose(f) == 0 && written;
    }
    std::string path_;
};

/// Runs f in a process of its own, which ends with this one.
template <class F>
pid_t fork_for(F f) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot fork");
    if (child > 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = 0;
    try {
        f();
    } catch (const std::exception& e) {
        fmt::print(stderr, "waiting: {}\n", e.what());
        status = 1;
    }
    std::fflush(nullptr);
    _exit(status);
}

template <class F>
void run_ranks(const std::string& transport, int n, F f) {
    if (transport == "tcp")
        setenv("COLLS_TRANSPORT", "tcp", 1);
    else
        unsetenv("COLLS_TRANSPORT");
    if (transport == "threads")
        colls::threads::run(n, f);
    else
        colls::processes::run(n, f);
}

/// Calls all_reduce for so many seconds. Rank 0 tells the others in the data when that is over.
void call_repeatedly(colls::communicator& comm, std::size_t bytes, double seconds, double ticks_per_ns, result& to) {
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> in(count), out(count);
    const int n = comm.size();
    for (int i = 0; i < 8; ++i)  // the first call measures the machine
        colls::all_reduce(comm, std::span<const float>(in), std::span<float>(out), colls::sum);
    const std::uint64_t begin = bench::ticks();
    const auto most = static_cast<std::uint64_t>(seconds * 1e9 * ticks_per_ns);
    std::uint64_t now = begin;
    std::size_t calls = 0;
    for (bool over = false; !over; ++calls) {
        for (std::size_t i = 1; i < count; ++i) in[i] = static_cast<float>(calls % 64 + i % 8);
        in[0] = comm.rank() == 0 && now - begin > most;
        const std::uint64_t from = bench::ticks();
        colls::all_reduce(comm, std::span<const float>(in), std::span<float>(out), colls::sum);
        now = bench::ticks();
        if (comm.rank() == 0 && calls < result::most)
            to.ns[calls] = static_cast<std::uint32_t>(std::min(static_cast<double>(now - from) / ticks_per_ns, 4e9));
        over = out[0] > 0;
        for (std::size_t i = 1; i < count; ++i)
            if (out[i] != static_cast<float>(n) * in[i]) throw std::runtime_error("a wrong sum");
    }
    if (comm.rank() != 0) return;
    to.calls = calls;
    to.kept = std::min(calls, result::most);
    to.seconds = static_cast<double>(now - begin) / ticks_per_ns * 1e-9;
}

struct figures {
    double median, p99, mean, worst_mean;  ///< microseconds; worst_mean: of the slowest run
    std::size_t calls;
};
figures measure(const scenario& s, const std::string& transport, std::size_t bytes, const settings& wanted,
    double ticks_per_ns, const quota* limit) {
    shared_memory<result> to;
    std::vector<std::uint32_t> all;
    figures f{0, 0, 0, 0, 0};
    double total = 0;
    for (int run = 0; run < wanted.runs; ++run) {
        const pid_t child = fork_for([&] {
            if (limit) limit->join();
            run_ranks(transport, s.ranks, [&](colls::communicator& comm) {
                if (s.one_core) bench::pin_to(0);
                call_repeatedly(comm, bytes, wanted.seconds, ticks_per_ns, *to);
            });
        });
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) throw std::runtime_error("a run failed");
        all.insert(all.end(), to->ns, to->ns + to->kept);
        total += to->seconds;
        f.calls += to->calls;
        f.worst_mean = std::max(f.worst_mean, to->seconds * 1e6 / static_cast<double>(to->calls));
    }
    const auto at = [&](double part) {
        const auto i = static_cast<std::ptrdiff_t>(part * static_cast<double>(all.size() - 1));
        std::nth_element(all.begin(), all.begin() + i, all.end());
        return all[static_cast<std::size_t>(i)] * 1e-3;
    };
    f.median = at(0.5);
    f.p99 = at(0.99);
    f.mean = total * 1e6 / static_cast<double>(f.calls);
    return f;
}

/// Processor seconds of rank 0 while it waits for rank 1, which comes late.
double waiting_cost(const std::string& transport, double late) {
    shared_memory<result> to;
    const pid_t child = fork_for([&] {
        run_ranks(transport, 2, [&](colls::communicator& comm) {
            const float in[2] = {1, 2};
            float out[2];
            const auto call = [&] {
                colls::all_reduce(comm, std::span<const float>(in), std::span<float>(out), colls::sum);
            };
            const auto used = [] {
                timespec t;
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
                return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
            };
            call();
            if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(late));
            const double before = used();
            call();
            if (comm.rank() == 0) to->processor = used() - before;
        });
    });
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) throw std::runtime_error("a run failed");
    return to->processor;
}

}  // namespace

int main(int argc, char** argv) {
    settings wanted;
    CLI::App app{
        "Times of all_reduce where cores are short, in microseconds: median and 99th percentile of a call, mean of "
        "all, "
        "and mean of the slowest run. A quota can be set by root only."};
    std::vector<std::string> names;
    for (const scenario& s : scenarios) names.push_back(s.name);
    app.add_option("--where", wanted.where, "free, one_core, outnumber, quota, quota_of_one, load")
        ->delimiter(',')
        ->check(CLI::IsMember(names));
    app.add_option("-t,--transports", wanted.transports, "threads, shm, tcp")
        ->delimiter(',')
        ->check(CLI::IsMember({"threads", "shm", "tcp"}));
    app.add_option("-s,--sizes", wanted.bytes, "bytes of an all_reduce")->delimiter(',')->check(CLI::Range(4, 1 << 26));
    app.add_option("--seconds", wanted.seconds, "of a run")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--runs", wanted.runs, "of a cell")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--late", wanted.late, "seconds that a rank is late, for the cost of waiting; 0: not measured")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        const double ticks_per_ns = bench::measure_ticks_per_ns();
        fmt::print("| ranks | transport | bytes | median | p99 | mean | slowest run | calls |\n");
        fmt::print("|---|---|---|---|---|---|---|---|\n");
        for (const scenario& s : scenarios) {
            if (std::find(wanted.where.begin(), wanted.where.end(), s.name) == wanted.where.end()) continue;
            const quota limit(s.quota > 0 ? s.quota : 1);
            if (s.quota > 0 && !limit.is_set()) {
                fmt::print("| {}: not measured, since no quota can be set here | | | | | | | |\n", s.text);
                continue;
            }
            for (const std::string& transport : wanted.transports)
                for (const std::size_t bytes : wanted.bytes) {
                    std::vector<pid_t> busy;
                    for (int i = 0; i < s.busy; ++i)
                        busy.push_back(fork_for([] {
                            for (std::atomic<unsigned> x{0};;) x.fetch_add(1, std::memory_order_relaxed);
                        }));
                    const figures f =
                        measure(s, transport, bytes, wanted, ticks_per_ns, s.quota > 0 ? &limit : nullptr);
                    for (const pid_t b : busy) {
                        kill(b, SIGKILL);
                        waitpid(b, nullptr, 0);
                    }
                    fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {} |\n", s.text, transport, bytes,
                        f.median, f.p99, f.mean, f.worst_mean, f.calls);
                    std::fflush(stdout);
                }
        }
        if (wanted.late > 0) {
            fmt::print("\n| transport | seconds late | processor seconds of the rank that waits |\n|---|---|---|\n");
            for (const std::string& transport : wanted.transports)
                fmt::print("| {} | {} | {:.3f} |\n", transport, wanted.late, waiting_cost(transport, wanted.late));
        }
    } catch (const std::exception& e) {
        fmt::print(stderr, "waiting: {}\n", e.what());
        return 1;
    }
}
