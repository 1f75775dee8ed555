// Groups of processes within an arena, and a run of forked processes.
#pragma once

#include <colls/detail/call/rank_task.hpp>
#include <colls/detail/regroup/groups.hpp>
#include <colls/detail/transport/hosts/group.hpp>
#include <colls/detail/transport/shm/arena.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>

namespace colls::inline v1::processes {

namespace detail {

using colls::detail::communicator_over;
using colls::detail::descriptor;
using colls::detail::rank_task;

/// A group within an arena.
class group : public colls::detail::group_backend, public std::enable_shared_from_this<group> {
public:
    group(std::shared_ptr<arena> in, const group_memory& m, list<int>&& ranks)
        : arena_(std::move(in)), memory_(m), ranks_(std::move(ranks)) {}

    std::unique_ptr<rank_context> end_of(int rank) {
        const int n = static_cast<int>(ranks_.size());
        auto e = std::make_unique<rank_context>(rank, n, memory_, shared_from_this());
        e->crowded = arena_->ranks() > colls::detail::cores();
        e->base = arena_->base();
        e->reach = arena_->bytes();
        e->number = e->told(memory_.base()) + 1;
        return e;
    }

    void look(rank_context& e, const colls::detail::wait_site*, double) override {
        arena_->look();
        if (memory_.poison().state.load(std::memory_order_relaxed) != 0) return;
        for (int r = 0; r < e.size; ++r)
            if (dead(r) && memory_.state(r).gone.load(std::memory_order_acquire) == 0)
                colls::detail::poison(memory_, errc::peer_failed, e.rank, r, none,
                    (message() << "colls: rank " << r << " (process "
                               << static_cast<long long>(memory_.state(r).process.load(std::memory_order_relaxed))
                               << ") has died")
                        .text());
    }
    bool dead(int rank) const override { return arena_->dead(ranks_[rank]); }
    void pin() override { arena_->pin(); }
    std::byte* take(std::size_t bytes) override { return arena_->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { arena_->give(at, bytes); }
    const machine& figures() override { return arena_->head().figures; }

    std::uint64_t create(int n) override {
        std::byte* const at = arena_->take(group_memory::bytes(n));
        std::memset(at, 0, group_memory::bytes(n));
        return static_cast<std::uint64_t>(at - arena_->base());
    }
    // The arena gets the group's memory back when all members have left, or are dead.
    std::unique_ptr<rank_context> attach(
        rank_context&, std::uint64_t place, int rank, const list<int>& members) override {
        list<int> ranks;
        for (const int m : members) ranks.push_back(ranks_[m]);
        const group_memory m(arena_->base() + place, static_cast<int>(members.size()));
        m.state(rank).process.store(getpid(), std::memory_order_relaxed);
        if (arena_->owns(m.base()))
            arena_->lend(m.base(), group_memory::bytes(static_cast<int>(ranks.size())),
                [a = arena_.get(), m, who = std::vector(ranks.begin(), ranks.end())] {
                    for (std::size_t r = 0; r < who.size(); ++r)
                        if (m.state(static_cast<int>(r)).gone.load(std::memory_order_acquire) == 0 && !a->dead(who[r]))
                            return false;
                    return true;
                });
        return std::make_shared<group>(arena_, m, std::move(ranks))->end_of(rank);
    }
    void discard(std::uint64_t place, int n) override { arena_->give(arena_->base() + place, group_memory::bytes(n)); }
    std::unique_ptr<rank_context> shrink(rank_context& from) override { return colls::detail::shrink_shared(from); }

private:
    std::shared_ptr<arena> arena_;
    group_memory memory_;
    list<int> ranks_;  // in the arena, of each member
};

/// The group of all ranks of an arena, once they have assembled.
inline communicator whole_group(const std::shared_ptr<arena>& a, double timeout) {
    a->assemble(timeout);
    list<int> all;
    for (int r = 0; r < a->ranks(); ++r) all.push_back(r);
    return communicator_over(std::make_shared<group>(a, a->whole(), std::move(all))->end_of(a->rank()));
}

/// The same, over TCP on the loopback, or verbs: the arena serves to find one another, and to tell the parent how it
/// ended.
inline communicator tcp_group(const std::shared_ptr<arena>& a, double timeout) {
    descriptor listening = colls::detail::listen_at(colls::detail::address::loopback(AF_INET, 0));
    a->port(a->rank()).store(
        static_cast<std::uint32_t>(colls::detail::port_of(listening.get())), std::memory_order_relaxed);
    a->assemble(timeout);
    std::vector<net::site> sites;
    for (int r = 0; r < a->ranks(); ++r)
        sites.push_back(
            {colls::detail::address::loopback(AF_INET, static_cast<int>(a->port(r).load(std::memory_order_relaxed))),
                static_cast<std::uint64_t>(r)});  // as if on a host of its own
    auto way = net::inter_node_transport_for(environment::read(), a->rank(), {});
    return net::group_of_all(std::move(listening), std::move(sites), 0, a->rank(), a->ranks() > colls::detail::cores(),
        nullptr, std::move(way));
}

/// Notes how a rank ended. In a handler, its exception: the others must not wait for it then.
[[gnu::cold]] inline void note(arena& a, errc code, int rank, int peer, int round, const char* text, bool own) {
    outcome& o = a.head().how;
    std::uint32_t expected = 0;
    // The process that holds the lock copies a line of text; if it dies meanwhile, its control messages are lost with
    // it.
    for (const double until = seconds_now() + 1;
        !o.lock.compare_exchange_strong(expected, 1, std::memory_order_acquire) && seconds_now() < until;)
        expected = 0;
    if (const std::uint32_t worth = own ? 2 : 1; worth > o.worth) {
        o.worth = worth;
        o.code = static_cast<int>(code), o.rank = rank, o.peer = peer, o.round = round;
        std::snprintf(o.text, sizeof o.text, "%s", text);
    }
    o.lock.store(0, std::memory_order_release);
}
[[gnu::cold]] inline void note_exception(arena& a, rank_context* end = nullptr) {
    message text;
    try {
        throw;
    } catch (const error& x) {
        const bool control = x.code() == errc::peer_failed;
        note(a, x.code(), x.rank(), x.peer(), x.round(), x.what(), !control);
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

/// The processes of one `run`, seen by their parent. It watches descriptors of them: where SIGCHLD is ignored, or
/// another part of the program waits for all children, waitpid does not tell that they have ended.
class children {
public:
    ~children() {
        for (const child& c : all_)  // only where something went wrong
            if (!c.over) {
                kill(c.number, SIGKILL);
                waitpid(c.number, nullptr, 0);
            }
    }
    void add(pid_t number) {
        const int process = static_cast<int>(syscall(SYS_pidfd_open, number, 0));
        const bool gone = process < 0 && errno == ESRCH;
        all_.push_back({number, descriptor(process), gone, false});
    }

    /// Until all have ended. One that ends before it has joined breaks the group, so that the others do not wait for
    /// it.
    void wait(arena& a) {
        const group_memory m = a.whole();
        std::vector<pollfd> watched;
        for (std::size_t left = all_.size(); left > 0;) {
            watched.clear();
            bool blind = false;  // on one whose descriptor the system does not give
            for (const child& c : all_) {
                if (!c.over && c.process) watched.push_back({c.process.get(), POLLIN, 0});
                blind = blind || (!c.over && !c.process);
            }
            poll(watched.data(), watched.size(), blind ? 1 : -1);
            for (std::size_t r = 0; r < all_.size(); ++r) {
                if (all_[r].over || !ended(all_[r])) continue;
                const auto rank = static_cast<int>(r);
                // Before it is waited for, which gives its number free: a rank that is to watch it must not open
                // another process.
                const bool early = m.state(rank).arrived.load(std::memory_order_acquire) < arena::phases;
                if (early)
                    colls::detail::poison(m, errc::peer_failed, rank, rank, none,
                        (message() << "colls: rank " << rank << ": its process ended before it had joined the group")
                            .text());
                note_end(a, rank, all_[r].number, early);
                all_[r].over = true;
                --left;
            }
        }
    }

private:
    struct child {
        pid_t number;
        descriptor process;
        bool gone;  // before it could be watched
        bool over;
    };
    static bool ended(const child& c) {
        if (c.process) {
            pollfd p{c.process.get(), POLLIN, 0};
            return poll(&p, 1, 0) > 0;
        }
        siginfo_t info{};
        return c.gone || waitid(P_PID, static_cast<id_t>(c.number), &info, WEXITED | WNOWAIT | WNOHANG) != 0 ||
               info.si_pid != 0;
    }
    static void note_end(arena& a, int rank, pid_t number, bool early) {
        const char* const when = early ? ", before it had joined the group" : "";
        int status = 0;
        pid_t waited = 0;
        do waited = waitpid(number, &status, 0);
        while (waited < 0 && errno == EINTR);
        message text;
        text << "colls: rank " << rank << "'s process ";
        const std::uint32_t said = a.ended(rank).load(std::memory_order_acquire);
        if (waited == number && WIFSIGNALED(status))
            note(a, errc::peer_failed, rank, rank, none,
                (text << "was killed by signal " << WTERMSIG(status) << when).text(), true);
        else if (waited != number && said == 0)
            note(a, errc::peer_failed, rank, rank, none,
                (text << "has died" << when
                      << "; how cannot be known, since SIGCHLD is ignored, or another part of the program waits for "
                         "its children")
                    .text(),
                true);
        else if (const int code = waited == number ? WEXITSTATUS(status) : static_cast<int>(said) - 1;
            code != 0 || early)
            note(a, errc::peer_failed, rank, rank, none, (text << "ended with status " << code << when).text(), early);
    }

    std::vector<child> all_;
};

COLLS_INLINE void run(int n, rank_task f) {
    if (n < 1) throw error(errc::invalid_argument, (message() << "colls: a group of " << n << " ranks").text());
    static_cast<void>(environment::read());  // what is wrong there is said once
    const auto shared = std::make_shared<arena>(n);
    children all;
    const pid_t parent = getpid();
    const unsigned number = colls::detail::groups_made.fetch_add(1, std::memory_order_relaxed);
    std::fflush(nullptr);
    for (int r = 0; r < n; ++r) {
        const pid_t child = fork();
        if (child < 0)
            throw error(
                errc::unsupported, (message() << "colls: cannot fork rank " << r << ": " << strerror(errno)).text(), r);
        if (child > 0) {
            all.add(child);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        dump_on_signal();
        int status = 0;
        shared->be(r);
        try {
            const environment env = environment::read();
            communicator comm = env.tcp ? tcp_group(shared, env.timeout) : whole_group(shared, env.timeout);
            colls::detail::label_group(comm.context(), number);
            try {
                f(comm);
            } catch (...) {
                note_exception(*shared, &comm.context());
                status = 1;
            }
        } catch (...) {
            note_exception(*shared);
            status = 1;
        }
        std::fflush(nullptr);
        shared->ended(r).store(1 + static_cast<std::uint32_t>(status), std::memory_order_release);
        _exit(status);
    }
    all.wait(*shared);
    const outcome& how = shared->head().how;
    if (how.worth > 0) throw error(static_cast<errc>(how.code), how.text, how.rank, how.peer, how.round);
}

}  // namespace detail
}  // namespace colls::inline v1::processes
