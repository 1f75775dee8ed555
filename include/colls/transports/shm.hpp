// Ranks as processes of one host, over shared memory.
//
// All of them map one anonymous file (memfd): the group's flags and mailboxes, and a part for each rank from which that
// rank alone allocates. It has no name and goes with the last process that has it, however that ends. Buffers from
// communicator::allocate lie in it, and peers read and write them directly; others are copied through it.
#pragma once

#include <colls/communicator.hpp>
#include <colls/machine.hpp>
#include <colls/tcp_group.hpp>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace colls::inline v1::processes {

using colls::communicator;
using colls::memory;

namespace detail {

using colls::detail::endpoint;
using colls::detail::group_memory;
using colls::detail::list;
using colls::detail::machine;
using colls::detail::message;
using colls::detail::seconds_now;

/// How the ranks of one `run` ended: the first exception stands, but a rank's own is worth more than the news of another's.
struct outcome {
    std::atomic<std::uint32_t> lock;
    std::uint32_t worth;   // 0 nothing, 1 news of another rank, 2 a rank's own
    int code, rank, peer, round;
    char text[480];
};

/// At the beginning of the shared memory. Zeroed.
struct arena_head {
    std::uint64_t ranks;
    machine figures;
    outcome how;
};

/// The shared memory as one process sees it.
class arena {
public:
    /// Made by one process, for `ranks` of them. Throws colls::error.
    explicit arena(int ranks) : arena(ranks, create_file(ranks)) {
        head().ranks = static_cast<std::uint64_t>(ranks);
        head().figures = colls::detail::measured();
    }
    /// Through a descriptor, which it then owns.
    arena(int ranks, int file) : ranks_(ranks), file_(file), bytes_(size_for(ranks)) {
        void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
        if (at == MAP_FAILED) {
            const int why = errno;
            close(file_);
            refuse("cannot map", why);
        }
        base_ = static_cast<std::byte*>(at);
    }
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    ~arena() {
        munmap(base_, bytes_);
        close(file_);
        for (const int process : watched_)
            if (process >= 0) close(process);
    }

    arena_head& head() const { return *reinterpret_cast<arena_head*>(base_); }
    std::byte* base() const { return base_; }
    std::size_t bytes() const { return bytes_; }
    int file() const { return file_; }
    int ranks() const { return ranks_; }
    group_memory whole() const { return {base_ + head_bytes, ranks_}; }
    /// A number of each rank's: where it listens, before there is a group.
    std::atomic<std::uint32_t>& port(int rank) const {
        return reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + head_bytes + group_memory::bytes(ranks_))[rank];
    }

    /// From now on this process is the rank, and allocates from its part.
    void be(int rank) {
        dead_.resize(static_cast<std::size_t>(ranks_));
        watched_.resize(static_cast<std::size_t>(ranks_), -1);
        rank_ = rank;
        const std::size_t share = part_bytes();
        free_.push_back({head_bytes + control_bytes(ranks_) + share * static_cast<std::size_t>(rank), share});
    }
    int rank() const { return rank_; }

    std::byte* take(std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        bytes = padded(bytes);
        std::size_t best = free_.size();
        for (std::size_t i = 0; i < free_.size(); ++i)
            if (free_[i].bytes >= bytes && (best == free_.size() || free_[i].bytes < free_[best].bytes)) best = i;
        if (best == free_.size()) throw std::bad_alloc();
        const std::size_t at = free_[best].at;
        free_[best].at += bytes;
        free_[best].bytes -= bytes;
        if (free_[best].bytes == 0) free_.drop(best);
        return base_ + at;
    }
    void give(std::byte* p, std::size_t bytes) noexcept {
        const std::lock_guard lock(mutex_);
        if (pinned_) return;
        extent back{static_cast<std::size_t>(p - base_), padded(bytes)};
        for (std::size_t i = 0; i < free_.size();)
            if (free_[i].at + free_[i].bytes == back.at || back.at + back.bytes == free_[i].at) {
                back = {free_[i].at < back.at ? free_[i].at : back.at, free_[i].bytes + back.bytes};
                free_.drop(i);
            } else {
                ++i;
            }
        free_.push_back(back);
        // Whole pages go back to the system.
        const std::size_t first = (static_cast<std::size_t>(p - base_) + page - 1) / page * page;
        const std::size_t last = static_cast<std::size_t>(p - base_) + padded(bytes);
        if (last > first + 64 * page) madvise(base_ + first, (last - first) / page * page, MADV_REMOVE);
    }
    /// A rank that does not answer may yet come back and write: nothing is used again.
    void pin() { pinned_ = true; }

    /// Looks, at most once a millisecond, whose process has ended.
    void look() {
        const double now = seconds_now();
        if (now < looked_ + 1e-3) return;
        looked_ = now;
        list<pollfd> all;
        list<int> whose;
        for (int r = 0; r < ranks_; ++r)
            if (watched_[r] >= 0 && !dead_[r]) {
                all.push_back({watched_[r], POLLIN, 0});
                whose.push_back(r);
            }
        if (all.empty() || poll(all.data(), all.size(), 0) <= 0) return;
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i].revents != 0) dead_[whose[i]] = true;
    }
    bool dead(int rank) const { return dead_[rank]; }

    /// All ranks are there, and each sees every other's process, before anyone goes on. A descriptor of a process is sure to be
    /// that of the rank, and not of a later process with its number, if the rank lives on after it was opened.
    void assemble(double timeout) {
        const group_memory m = whole();
        m.state(rank_).process.store(getpid(), std::memory_order_relaxed);
        const double until = seconds_now() + timeout;
        for (std::uint32_t phase = 1; phase <= 3; ++phase) {
            m.state(rank_).arrived.store(phase, std::memory_order_release);
            for (int r = 0; r < ranks_; ++r)
                while (m.state(r).arrived.load(std::memory_order_acquire) < phase) {
                    look();
                    if (m.poison().state.load(std::memory_order_acquire) != 0 || dead_[r] || seconds_now() > until)
                        throw error(dead_[r] ? errc::peer_failed : errc::timeout,
                                    (message() << "colls: rank " << rank_ << ": rank " << r << " did not join the group"
                                               << (dead_[r] ? ": its process has ended" : ""))
                                        .text(), rank_, r);
                    usleep(50);
                }
            if (phase != 1) continue;
            for (int r = 0; r < ranks_; ++r) {
                if (r == rank_) continue;
                const auto process = static_cast<pid_t>(m.state(r).process.load(std::memory_order_relaxed));
                watched_[r] = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
                if (watched_[r] < 0 && errno == ESRCH) dead_[r] = true;
            }
        }
    }

private:
    struct extent {
        std::size_t at, bytes;
    };
    static constexpr std::size_t page = 4096, head_bytes = 4096;
    static_assert(sizeof(arena_head) <= head_bytes);
    static constexpr std::size_t padded(std::size_t bytes) { return bytes == 0 ? 128 : (bytes + 127) / 128 * 128; }
    static std::size_t control_bytes(int ranks) { return (group_memory::bytes(ranks) + 4 * static_cast<std::size_t>(ranks) + page - 1) / page * page; }
    /// A rank may allocate as much as the machine has: pages are there only once they are used.
    static std::size_t part_bytes() {
        static const std::size_t all = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page;
        constexpr std::size_t least = std::size_t{1} << 30, most = std::size_t{1} << 36;
        return all < least ? least : all > most ? most : all;
    }
    static std::size_t size_for(int ranks) {
        return head_bytes + control_bytes(ranks) + part_bytes() * static_cast<std::size_t>(ranks);
    }
    [[noreturn]] static void refuse(const char* what, int why) {
        throw error(errc::unsupported, (message() << "colls: " << what << " shared memory: " << strerror(why)
                                                  << "; is there a limit on address space (ulimit -v)?").text());
    }
    static int create_file(int ranks) {
        const int file = memfd_create("colls", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, static_cast<off_t>(size_for(ranks))) != 0) {
            const int why = errno;
            if (file >= 0) close(file);
            refuse("cannot make", why);
        }
        return file;
    }

    const int ranks_;
    const int file_;
    const std::size_t bytes_;
    std::byte* base_ = nullptr;
    int rank_ = none;
    std::mutex mutex_;   // of the allocator: buffers may be given back by any thread
    list<extent> free_;
    bool pinned_ = false;
    list<bool> dead_;
    list<int> watched_;   // descriptors of the ranks' processes
    double looked_ = 0;
};

/// A group within an arena.
class group : public colls::detail::link, public std::enable_shared_from_this<group> {
public:
    group(std::shared_ptr<arena> in, const group_memory& m, list<int>&& ranks)
        : arena_(std::move(in)), memory_(m), ranks_(std::move(ranks)) {}

    std::unique_ptr<endpoint> end_of(int rank) {
        const int n = static_cast<int>(ranks_.size());
        auto e = std::make_unique<endpoint>(rank, n, memory_, shared_from_this());
        e->crowded = arena_->ranks() > colls::detail::cores();
        e->base = arena_->base();
        e->reach = arena_->bytes();
        return e;
    }

    void look(endpoint& e, const colls::detail::wait_site*, double) override {
        arena_->look();
        if (memory_.poison().state.load(std::memory_order_relaxed) != 0) return;
        for (int r = 0; r < e.size; ++r)
            if (dead(r) && memory_.state(r).gone.load(std::memory_order_acquire) == 0)
                colls::detail::poison(memory_, errc::peer_failed, e.rank, r, none,
                                      (message() << "colls: rank " << r << " (process "
                                                 << static_cast<long long>(memory_.state(r).process.load(std::memory_order_relaxed))
                                                 << ") has died").text());
    }
    bool dead(int rank) const override { return arena_->dead(ranks_[rank]); }
    std::byte* take(std::size_t bytes) override { return arena_->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { arena_->give(at, bytes); }
    const machine& figures() override { return arena_->head().figures; }

    std::uint64_t create(int n) override {
        std::byte* const at = arena_->take(group_memory::bytes(n));
        std::memset(at, 0, group_memory::bytes(n));
        return static_cast<std::uint64_t>(at - arena_->base());
    }
    // The memory of a group that was split off stays until the arena goes: other members may still look at it.
    std::unique_ptr<endpoint> attach(endpoint&, std::uint64_t place, int rank, const list<int>& members) override {
        list<int> ranks;
        for (const int m : members) ranks.push_back(ranks_[m]);
        const group_memory m(arena_->base() + place, static_cast<int>(members.size()));
        m.state(rank).process.store(getpid(), std::memory_order_relaxed);
        return std::make_shared<group>(arena_, m, std::move(ranks))->end_of(rank);
    }
    void discard(std::uint64_t) override {}
    std::unique_ptr<endpoint> shrink(endpoint& from) override { return colls::detail::shrink_shared(from); }

private:
    std::shared_ptr<arena> arena_;
    group_memory memory_;
    list<int> ranks_;   // in the arena, of each member
};

/// The group of all ranks of an arena, once they have assembled.
inline communicator whole_group(const std::shared_ptr<arena>& a, double timeout) {
    a->assemble(timeout);
    list<int> all;
    for (int r = 0; r < a->ranks(); ++r) all.push_back(r);
    return communicator(std::make_shared<group>(a, a->whole(), std::move(all))->end_of(a->rank()));
}

/// The same, over TCP on the loopback: the arena serves to find one another, and to tell the parent how it ended.
inline communicator tcp_group(const std::shared_ptr<arena>& a, double timeout) {
    namespace net = colls::detail;
    const net::address loopback = net::resolve("127.0.0.1", 0).at(0);
    net::descriptor listening = net::listen_at(loopback);
    a->port(a->rank()).store(static_cast<std::uint32_t>(net::port_of(listening.get())), std::memory_order_relaxed);
    a->assemble(timeout);
    std::vector<net::address> members;
    for (int r = 0; r < a->ranks(); ++r)
        members.push_back(net::resolve("127.0.0.1", static_cast<int>(a->port(r).load(std::memory_order_relaxed))).at(0));
    const bool crowded = a->ranks() > net::cores();
    const auto s = std::make_shared<tcp::detail::station>(std::move(listening), tcp::detail::usual(crowded));
    return communicator(tcp::detail::group::end_of(s, 2, a->rank(), std::move(members), crowded));
}

/// Notes how a rank ended. In a handler, its exception: the others must not wait for it then.
[[gnu::cold]] inline void note(arena& a, errc code, int rank, int peer, int round, const char* text, bool own) {
    outcome& o = a.head().how;
    std::uint32_t expected = 0;
    // Whoever holds it copies a line of text; if it dies meanwhile, its news are lost with it.
    for (const double until = seconds_now() + 1; !o.lock.compare_exchange_strong(expected, 1, std::memory_order_acquire) && seconds_now() < until;)
        expected = 0;
    if (const std::uint32_t worth = own ? 2 : 1; worth > o.worth) {
        o.worth = worth;
        o.code = static_cast<int>(code), o.rank = rank, o.peer = peer, o.round = round;
        std::snprintf(o.text, sizeof o.text, "%s", text);
    }
    o.lock.store(0, std::memory_order_release);
}
[[gnu::cold]] inline void note_exception(arena& a, endpoint* end = nullptr) {
    message text;
    try {
        throw;
    } catch (const error& x) {
        const bool news = x.code() == errc::peer_failed;
        note(a, x.code(), x.rank(), x.peer(), x.round(), x.what(), !news);
        text << "colls: rank " << a.rank() << ": its function threw: " << x.what();
    } catch (const std::exception& x) {
        text << "colls: rank " << a.rank() << ": its function threw: " << x.what();
        note(a, errc::peer_failed, a.rank(), none, none, text.text(), true);
    } catch (...) {
        text << "colls: rank " << a.rank() << ": its function threw";
        note(a, errc::peer_failed, a.rank(), none, none, text.text(), true);
    }
    if (end)
        colls::detail::break_group(*end, errc::peer_failed, none, none, text.text());
    else
        colls::detail::poison(a.whole(), errc::peer_failed, a.rank(), none, none, text.text());
}

/// The processes of one `run`, seen by their parent.
class children {
public:
    ~children() {
        for (const pid_t p : all_)   // only where something went wrong
            if (p > 0) {
                kill(p, SIGKILL);
                waitpid(p, nullptr, 0);
            }
    }
    void add(pid_t p) { all_.push_back(p); }

    /// Until all have ended. Nobody's number is given free before all have seen one another's processes.
    void wait(arena& a) {
        const group_memory m = a.whole();
        for (bool forming = true; forming;) {
            forming = false;
            bool ended = false;
            for (std::size_t r = 0; r < all_.size(); ++r) {
                siginfo_t info{};
                waitid(P_PID, static_cast<id_t>(all_[r]), &info, WEXITED | WNOWAIT | WNOHANG);
                ended = ended || info.si_pid != 0;
                forming = forming || m.state(static_cast<int>(r)).arrived.load(std::memory_order_acquire) < 3;
            }
            if (ended) break;
            if (forming) usleep(200);
        }
        for (std::size_t r = 0; r < all_.size(); ++r) {
            int status = 0;
            while (waitpid(all_[r], &status, 0) < 0 && errno == EINTR) {}
            all_[r] = 0;
            const int rank = static_cast<int>(r);
            if (WIFSIGNALED(status))
                note(a, errc::peer_failed, rank, rank, none,
                     (message() << "colls: rank " << rank << "'s process was killed by signal " << WTERMSIG(status)).text(), true);
            else if (WEXITSTATUS(status) != 0)
                note(a, errc::peer_failed, rank, rank, none,
                     (message() << "colls: rank " << rank << "'s process ended with status " << WEXITSTATUS(status)).text(), false);
        }
    }

private:
    list<pid_t> all_;
};

}  // namespace detail

/// Calls f(communicator&) in n processes of this host, forked from this one, and waits for them. What f changes is changed in
/// its own process only. An exception that leaves f on one rank, or the death of its process, makes the others' calls throw
/// colls::error (peer_failed), and is thrown here as colls::error when all have ended; a rank's process that dies does not
/// take the others along. Call it from a process of one thread.
template <class F>
void run(int n, F&& f) {
    if (n < 1) throw error(errc::invalid_argument, (detail::message() << "colls: a group of " << n << " ranks").text());
    const auto shared = std::make_shared<detail::arena>(n);
    detail::children all;
    const pid_t parent = getpid();
    std::fflush(nullptr);
    for (int r = 0; r < n; ++r) {
        const pid_t child = fork();
        if (child < 0) throw error(errc::unsupported, (detail::message() << "colls: cannot fork rank " << r << ": " << strerror(errno)).text(), r);
        if (child > 0) {
            all.add(child);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        int status = 0;
        shared->be(r);
        try {
            const environment env = environment::read();
            communicator comm = env.tcp ? detail::tcp_group(shared, env.timeout) : detail::whole_group(shared, env.timeout);
            try {
                f(comm);
            } catch (...) {
                detail::note_exception(*shared, &comm.endpoint());
                status = 1;
            }
        } catch (...) {
            detail::note_exception(*shared);
            status = 1;
        }
        std::fflush(nullptr);
        _exit(status);
    }
    all.wait(*shared);
    const detail::outcome& how = shared->head().how;
    if (how.worth > 0) throw error(static_cast<errc>(how.code), how.text, how.rank, how.peer, how.round);
}

}  // namespace colls::inline v1::processes

#include <colls/world.hpp>
