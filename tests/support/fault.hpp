// Shared by the tests of failures: the transports between processes, environment variables, memory shared by forked
// processes, what a process leaves behind, and calls with results that follow from a formula.
#pragma once

#include "batch.hpp"

#include <colls/detail/group/backoff.hpp>
#include <colls/transports/shm.hpp>

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace support {

/// The transports between processes: COLLS_TEST_TRANSPORT, or those that need no device.
inline std::vector<std::string> process_transports() {
    const std::string_view named = tested_transport;
    if (named == "shm" || named == "tcp" || named == "verbs" || named == "ofi") return {std::string(named)};
    return {"shm", "tcp"};
}

/// Sets an environment variable, or removes it (null), and restores it when destroyed.
class with_environment {
public:
    with_environment(const char* name, const char* value) : name_(name) {
        const char* before = std::getenv(name);
        had_ = before != nullptr;
        if (had_) before_ = before;
        set(value);
    }
    with_environment(const with_environment&) = delete;
    with_environment& operator=(const with_environment&) = delete;
    ~with_environment() { set(had_ ? before_.c_str() : nullptr); }

private:
    void set(const char* value) const {
        if (value)
            setenv(name_, value, 1);
        else
            unsetenv(name_);
    }
    const char* name_;
    bool had_ = false;
    std::string before_;
};

/// A T in memory that forked processes share. Zeroed.
template <class T>
class common {
    static_assert(std::is_trivially_destructible_v<T>);

public:
    common()
        : at_(static_cast<T*>(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        if (at_ == MAP_FAILED) throw std::bad_alloc();
    }
    common(const common&) = delete;
    common& operator=(const common&) = delete;
    ~common() { munmap(at_, sizeof(T)); }
    T* operator->() const { return at_; }
    T& operator*() const { return *at_; }

private:
    T* at_;
};

// ---- what a process leaves behind -----------------------------------------------------------------------------------

inline std::set<std::string> names_in(const char* folder) {
    std::set<std::string> names;
    if (DIR* d = opendir(folder)) {
        while (const dirent* entry = readdir(d)) names.insert(entry->d_name);
        closedir(d);
    }
    return names;
}

/// Mounts a /dev/shm and a /tmp for this process and its children alone, so that only their files appear there. False
/// without the permission (CAP_SYS_ADMIN).
inline bool has_own_folders() {
    static const bool has =
        unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) == 0 && mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0;
    return has;
}

/// Files that would stay if this process were killed now: those that have a name and that it has open or maps as shared
/// memory. Devices count only while they are mapped. Deleted files, anonymous files (memfd) and /proc do not count.
inline std::set<std::string> named_files() {
    constexpr std::string_view deleted = " (deleted)";
    std::set<std::string> all;
    for (const std::string& fd : names_in("/proc/self/fd")) {
        const std::string link = "/proc/self/fd/" + fd;
        struct stat is{};
        char target[4096];
        const ssize_t n = readlink(link.c_str(), target, sizeof target);
        if (n <= 0 || stat(link.c_str(), &is) != 0 || !S_ISREG(is.st_mode) || is.st_nlink == 0) continue;
        const std::string_view path(target, static_cast<std::size_t>(n));
        if (!path.ends_with(deleted) && !path.starts_with("/proc/") && !path.starts_with("/sys/"))
            all.insert(std::string(path) + " is open");
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        // addresses, rights, offset, device, inode, and a path, which may contain spaces
        char rights[8] = {};
        int at = 0;
        if (std::sscanf(line.c_str(), "%*s %7s %*s %*s %*s %n", rights, &at) != 1 || at == 0 || rights[3] != 's')
            continue;
        const std::string_view path = std::string_view(line).substr(static_cast<std::size_t>(at));
        // A System V segment stays until it is removed, though the kernel always marks it as deleted.
        if (path.starts_with("/SYSV") || (path.starts_with("/") && !path.ends_with(deleted)))
            all.insert(std::string(path) + " is mapped");
    }
    return all;
}

/// Finds what a trial leaves behind. The constructor notes what this process has before the trial: descriptors, named
/// files, and the files in /dev/shm and /tmp; the queries tell what there is beyond that. (A path would not do as a
/// criterion: the test runner's log is open in every test, in a folder of any name.) Processes that lose their parent
/// become children of this one, so that they are found as well.
class remains {
public:
    remains() {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (has_own_folders())  // else other programs create files there
            for (const char* folder : folders) files_.push_back(names_in(folder));
        descriptors_ = names_in("/proc/self/fd").size();
        named_ = named_files();
    }
    /// Empty, or what is left: processes, descriptors, and files in /dev/shm and /tmp.
    std::string left() const {
        std::string text;
        siginfo_t info{};
        if (waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOWAIT | WNOHANG) == 0 || errno != ECHILD)
            text += "a process is left (" + std::to_string(info.si_pid) + "); ";
        if (const std::size_t now = names_in("/proc/self/fd").size(); now != descriptors_)
            text += std::to_string(now) + " descriptors, before " + std::to_string(descriptors_) + "; ";
        for (std::size_t i = 0; i < files_.size(); ++i)
            for (const std::string& name : names_in(folders[i]))
                if (!files_[i].contains(name)) text += std::string(folders[i]) + "/" + name + " is left; ";
        return text;
    }
    /// Empty, or the named files that the calling process, this one or a child, has beyond the noted ones.
    std::string named() const {
        std::string text;
        for (const std::string& file : named_files())
            if (!named_.contains(file)) text += file + "; ";
        return text;
    }
    /// The same, after waiting at most 5 s for what is released asynchronously, as queue pairs are.
    std::string lasting() const {
        std::string text = named();
        for (const double until = colls::detail::seconds_now() + 5;
            !text.empty() && colls::detail::seconds_now() < until; text = named())
            usleep(1'000);
        return text;
    }

private:
    static constexpr const char* folders[] = {"/dev/shm", "/tmp"};
    std::size_t descriptors_ = 0;
    std::set<std::string> named_;
    std::vector<std::set<std::string>> files_;
};

// ---- calls ----------------------------------------------------------------------------------------------------------

/// A sum that may end its process in the middle of a call: `at_the_end` is called at the last of `countdown` uses.
struct mortal_sum {
    static constexpr bool commutative = true;
    static inline long countdown = 0;  ///< uses left; 0: unlimited
    static inline void (*at_the_end)() = nullptr;
    std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
        if (countdown > 0 && --countdown == 0) at_the_end();
        return a + b;
    }
};

/// A call with input and results that follow from its number, so that every rank can check its own result.
struct judged_call {
    shape form;
    std::uint64_t number = 0;

    static constexpr std::size_t element = sizeof(std::uint64_t);

    judged_call() = default;
    /// A call with a whole buffer of about `bytes` bytes.
    judged_call(verb collective, int n, int root, std::size_t bytes, std::uint64_t k) : number(k) {
        form.collective = collective;
        form.n = n;
        form.root = root;
        const std::size_t total = collective == verb::barrier ? 0 : bytes / element;
        if (collective == verb::all_to_all)
            form.counts.assign(form.size() * form.size(), total / form.size());
        else
            form.counts = balanced(total, n);
    }

    /// Element i of rank r's input is offset(r) + i * slope(r), so sums over ranks are linear in i as well.
    std::uint64_t offset(int r) const { return (number * 64 + static_cast<std::uint64_t>(r)) * 0x9e3779b97f4a7c15u; }
    static std::uint64_t slope(int r) { return 2 * static_cast<std::uint64_t>(r) + 3; }

    void fill(int rank, std::uint64_t* in, std::uint64_t* out) const {
        std::uint64_t* const to = form.collective == verb::broadcast ? out : in;
        const std::uint64_t from = offset(rank), step = slope(rank);
        for (std::size_t i = 0; i < form.in_count(rank); ++i) to[i] = from + i * step;
        if (form.collective == verb::broadcast && rank == form.root) return;
        for (std::size_t i = 0; i < form.out_count(rank); ++i) out[i] = 0xbadbadbadbadbadbu;
    }
    /// Whether `out` is the result that the rank should have.
    bool right(int rank, const std::uint64_t* out) const {
        if (!form.writes(rank) && form.collective != verb::broadcast) return true;
        const auto r = static_cast<std::size_t>(rank);
        switch (form.collective) {
            case verb::barrier:
                return true;
            case verb::broadcast:
                return part(out, form.total(), form.root, 0);
            case verb::scatter:
                return part(out, form.block(rank), form.root, form.before(rank));
            case verb::gather:
            case verb::all_gather:
                for (int b = 0; b < form.n; ++b)
                    if (!part(out + form.before(b), form.block(b), b, 0)) return false;
                return true;
            case verb::all_to_all:
                for (int b = 0; b < form.n; ++b) {
                    const std::size_t each = form.counts[0];
                    if (!part(out + static_cast<std::size_t>(b) * each, each, b, r * each)) return false;
                }
                return true;
            case verb::reduce_scatter:
                return folded(out, form.block(rank), form.n, form.before(rank));
            case verb::inclusive_scan:
                return folded(out, form.total(), rank + 1, 0);
            case verb::exclusive_scan:
                return rank == 0 || folded(out, form.total(), rank, 0);
            default:
                return folded(out, form.total(), form.n, 0);
        }
    }
    arguments with(int rank, const std::uint64_t* in, std::uint64_t* out) const {
        arguments a;
        a.collective = form.collective;
        a.in = reinterpret_cast<const std::byte*>(in);
        a.out = reinterpret_cast<std::byte*>(out);
        a.in_count = form.in_count(rank);
        a.out_count = form.collective == verb::broadcast ? form.total() : form.out_count(rank);
        a.root = form.root;
        return a;
    }
    /// Elements of the longer of a rank's buffers.
    std::size_t longest() const { return form.collective == verb::all_to_all ? form.in_count(0) : form.total(); }

private:
    bool part(const std::uint64_t* out, std::size_t count, int of, std::size_t first) const {
        return line_from(out, count, offset(of) + first * slope(of), slope(of));
    }
    bool folded(const std::uint64_t* out, std::size_t count, int ranks, std::size_t first) const {
        std::uint64_t from = 0, step = 0;
        for (int r = 0; r < ranks; ++r) {
            from += offset(r) + first * slope(r);
            step += slope(r);
        }
        return line_from(out, count, from, step);
    }
    static bool line_from(const std::uint64_t* out, std::size_t count, std::uint64_t from, std::uint64_t step) {
        for (std::size_t i = 0; i < count; ++i)
            if (out[i] != from + i * step) return false;
        return true;
    }
};

/// Makes the call in one of three modes, with the sum above.
template <class Way, class Comm>
typename Way::result make(Comm& comm, const judged_call& c, const std::uint64_t* in, std::uint64_t* out) {
    const arguments a = c.with(comm.rank(), in, out);
    if (reduces(a.collective)) return fold_call<Way, std::uint64_t>(comm, a, mortal_sum{});
    return move_call<Way, std::uint64_t>(comm, a);
}

}  // namespace support
