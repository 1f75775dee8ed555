// A thread that learns on the host that a rank of another process cannot come any more, and ends the waits of kernels.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/group/local_ranks.hpp>
#include <colls/net/detail/connection/socket.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <csignal>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace colls::inline v1::cuda::detail {

using v1::detail::descriptor;

/// A process as another one of the host names it: its number, which means the same in processes of one name space only.
struct process_name {
    std::uint64_t space = 0;
    std::int64_t number = 0;
    bool operator==(const process_name&) const = default;
};
inline process_name own_process() {
    struct stat s{};
    const bool known = stat("/proc/self/ns/pid", &s) == 0;
    return {known ? static_cast<std::uint64_t>(s.st_ino) : 0, getpid()};
}
/// A descriptor that poll finds readable when the process has ended; none for this process, and for one that cannot be
/// watched: of another name space, or where the system has no such descriptors. It is sure to be that of the process,
/// and not of a later one with its number, if the process still runs afterwards.
inline descriptor watched(const process_name& process) {
    const process_name own = own_process();
    if (process == own || process.space != own.space || own.space == 0) return {};
    return descriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.number), 0)));
}

/// Watches the processes of the other ranks, and the host group by which the ranks joined, from its construction to its
/// destruction. When a process has ended, or the host group is broken, it orders the local ranks to give up.
class peer_watch {
public:
    /// processes[r]: of rank r, or none. `broken`: called by the thread, ten times a second; true where the host group
    /// is broken, and then it sets the rank to blame and why. Throws std::system_error where the thread cannot start.
    peer_watch(
        local_ranks& ranks, std::vector<descriptor> processes, std::function<bool(int& peer, error_text& why)> broken)
        : ranks_(ranks),
          processes_(std::move(processes)),
          broken_(std::move(broken)),
          stop_(descriptor(eventfd(0, EFD_CLOEXEC))) {
        if (!stop_) throw std::system_error(errno, std::generic_category(), "colls: cuda: eventfd");
        sigset_t all, before;  // the program's signals are for its own threads
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { run(); });
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    peer_watch(const peer_watch&) = delete;
    peer_watch& operator=(const peer_watch&) = delete;
    ~peer_watch() {
        eventfd_write(stop_.get(), 1);
        thread_.join();
    }

private:
    static constexpr int interval_ms = 100;

    void run() {
        std::vector<pollfd> all = {{stop_.get(), POLLIN, 0}};
        for (const descriptor& d : processes_) all.push_back({d.get(), POLLIN, 0});  // poll ignores those that are none
        for (;;) {
            if (poll(all.data(), all.size(), interval_ms) < 0 && errno != EINTR) return;
            if (all[0].revents != 0) return;
            // The host group first: its report names the rank that failed, not those that ended because of it.
            int peer = none;
            error_text why;
            if (broken_(peer, why)) return ranks_.order(failure::host_broken, peer, why.text());
            for (std::size_t r = 0; r < processes_.size(); ++r)
                if (all[r + 1].revents != 0) return ranks_.order(failure::died, static_cast<int>(r), "");
        }
    }

    local_ranks& ranks_;
    const std::vector<descriptor> processes_;
    const std::function<bool(int&, error_text&)> broken_;
    const descriptor stop_;
    std::thread thread_;
};

}  // namespace colls::inline v1::cuda::detail
