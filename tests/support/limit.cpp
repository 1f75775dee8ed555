// Ends a test program that takes longer than COLLS_TEST_LIMIT seconds, which ctest sets (tests/programs.cmake). Time
// that other programs took from it does not count: so no load of the machine ends it, and where a test waits for ever,
// that is found in minutes.
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using seconds = std::chrono::duration<double>;

/// f(n) for the entries of a folder of /proc that are numbers.
template <class F>
void for_each_number(const std::string& folder, F f) {
    DIR* const entries = opendir(folder.c_str());
    if (entries == nullptr) return;
    while (const dirent* const entry = readdir(entries))
        if (const int n = std::atoi(entry->d_name); n > 0) f(n);
    closedir(entries);
}
/// What a format finds in a file of /proc: how many values.
template <class... Values>
int scan(const std::string& file, const char* format, Values*... values) {
    std::FILE* const in = std::fopen(file.c_str(), "re");
    if (in == nullptr) return 0;
    const int found = std::fscanf(in, format, values...);
    std::fclose(in);
    return found;
}

/// A process and those that descend from it.
std::vector<int> family_of(int process) {
    std::vector<std::pair<int, int>> parents;
    for_each_number("/proc", [&](int p) {
        int parent = 0;  // "PID (NAME) STATE PARENT": the names of tests have no parentheses
        if (scan("/proc/" + std::to_string(p) + "/stat", "%*d (%*[^)]) %*c %d", &parent) == 1)
            parents.emplace_back(p, parent);
    });
    std::vector<int> family{process};
    for (std::size_t i = 0; i < family.size(); ++i)
        for (const auto& [p, parent] : parents)
            if (parent == family[i]) family.push_back(p);
    return family;
}

/// How long a program has had the machine, or could have had it.
class patience {
public:
    explicit patience(int process) : process_(process) {
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0) cores_ = std::max(1, CPU_COUNT(&set));
    }
    /// Adds the time since the last call, without what other programs took: the time that the thread which waited
    /// longest was ready, but no more than the cores worked for others, or not at all.
    void count() {
        const auto now = std::chrono::steady_clock::now();
        const double passed = seconds(now - last_).count();
        last_ = now;
        double ran = 0, waited = 0;
        std::map<int, times> of_tasks;
        for (const int p : family_of(process_)) {
            const std::string tasks = "/proc/" + std::to_string(p) + "/task";
            for_each_number(tasks, [&](int t) {
                unsigned long long run = 0, wait = 0;
                if (scan(tasks + "/" + std::to_string(t) + "/schedstat", "%llu %llu", &run, &wait) != 2) return;
                const times is{static_cast<double>(run) * 1e-9, static_cast<double>(wait) * 1e-9}, was = of_tasks_[t];
                ran += is.run - was.run;
                waited = std::max(waited, is.wait - was.wait);
                of_tasks[t] = is;
            });
        }
        of_tasks_ = std::move(of_tasks);
        const double lost = std::clamp(std::min(waited, passed - ran / cores_), 0.0, passed);
        counted_ += passed - lost;
        lost_ += lost;
    }
    double counted() const { return counted_; }
    double lost() const { return lost_; }

private:
    struct times {
        double run = 0, wait = 0;
    };
    int process_, cores_ = 1;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    std::map<int, times> of_tasks_;
    double counted_ = 0, lost_ = 0;
};

[[noreturn]] void end_like(int status) {
    if (WIFSIGNALED(status)) {
        const rlimit none{};
        setrlimit(RLIMIT_CORE, &none);  // the program has written one
        signal(WTERMSIG(status), SIG_DFL);
        kill(getpid(), WTERMSIG(status));
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/// Before main, and what it initialises: the program goes on in a child, which the parent watches.
[[gnu::constructor(101)]] void watch() {
    const char* const text = std::getenv("COLLS_TEST_LIMIT");
    const double limit = text != nullptr ? std::atof(text) : 0;
    unsetenv("COLLS_TEST_LIMIT");  // of this program alone, not of those that it starts
    if (limit <= 0) return;
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, &before);
    const pid_t parent = getpid(), child = fork();
    if (child <= 0) {
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);
        }
        sigprocmask(SIG_SETMASK, &before, nullptr);
        return;  // also where there is no other process: without a limit
    }
    signal(SIGCHLD, SIG_DFL);  // ignored, it would leave nothing to wait for
    patience counts(child);
    for (;;) {
        int status = 0;
        const timespec second{1, 0};
        sigtimedwait(&ends, nullptr, &second);
        if (waitpid(child, &status, WNOHANG) == child) end_like(status);
        counts.count();
        if (counts.counted() < limit) continue;
        std::fprintf(stderr, "test: ended after %.0f s, without the %.0f s that other programs took\n",
            counts.counted(), counts.lost());
        for (const int p : family_of(child)) kill(p, SIGKILL);
        _exit(124);
    }
}

}  // namespace
