// Runs of forked processes, one for each rank, and how they end.
// IWYU pragma: private, include <colls/transports/shm.hpp>
#pragma once

#include <colls/detail/call/run.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/detail/transport/shm/processes_group.hpp>
#include <colls/messages/detail/group_to_form.hpp>
#include <colls/messages/detail/two_level_candidates.hpp>
#include <colls/net/detail/node/hosts_group.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>

namespace colls::inline v1 {

namespace detail {

/// 0 to n - 1.
inline std::vector<int> ranks_to(int n) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

namespace hosts {

/// A loopback, or a fast network. Not measured: all ranks must predict alike, before they have a way to agree.
inline machine usual_figures(int cores) {
    return {.alpha = 4.5e-6, .beta = 2.8e-10, .gamma = 1.5e-10, .cores = cores, .message = 3e-6};
}

/// The group of all ranks of a world whose ranks pass messages. `number`: equal on all ranks, and of no other world.
/// `cores`: cores_together::plenty where no host has more ranks than cores. `host_memory`: that of this rank's host,
/// null where messages go over TCP also within hosts. `network`: null for TCP. `timeout`: as group_to_form. `try_out`
/// may take the network away. Throws colls::error, std::bad_alloc.
[[gnu::cold]] inline communicator group_of_all(descriptor&& listening, std::vector<site>&& sites, std::uint64_t number,
    int rank, int cores, std::shared_ptr<arena> host_memory, std::shared_ptr<inter_node_transport> network = nullptr,
    double timeout = 0, const std::function<void(process_context&)>& try_out = {}) {
    const std::vector<int> all = ranks_to(static_cast<int>(sites.size()));
    number &= ~std::uint64_t{7};
    const group_to_form f({number, rank, all, cores < cores_together::plenty}, nullptr, timeout);
    const auto s = std::make_shared<process_context>(std::move(listening), std::move(sites), number, rank,
        usual_figures(cores), std::move(host_memory), std::move(network));
    if (try_out) try_out(*s);
    communicator comm =
        extend::join(hosts_group::member_of(s, f, std::vector<int>(all)), rank, static_cast<int>(all.size()));
    comm.context().layout.two_levels = &two_level_candidates_on;  // compiled here, not in units that only make calls
    return comm;
}

}  // namespace hosts
}  // namespace detail

namespace processes::detail {

using namespace colls::detail;

/// The group of all ranks of an arena, once they have assembled.
[[gnu::cold]] inline communicator whole_group(const std::shared_ptr<arena>& a, const environment& env) {
    a->assemble(env.timeout, env.single_copy);
    const auto g = std::make_shared<processes_group>(a, a->whole().base(), ranks_to(a->ranks()));
    return extend::join(g->member(), a->rank(), a->ranks());
}

/// The same group over TCP on the loopback, or RDMA. The ranks find each other through the arena, and tell the parent
/// through it how they ended.
[[gnu::cold]] inline communicator message_group(const std::shared_ptr<arena>& a, double timeout) {
    descriptor listening = listen_on_loopback();
    if (!listening)
        throw_of_rank(
            a->rank(), errc::unsupported, error_text() << "cannot listen on loopback: " << system_text(errno));
    a->port(a->rank()).store(static_cast<std::uint32_t>(port_of(listening.get())), std::memory_order_relaxed);
    const int family = local_address(listening.get()).family();  // the same on all ranks
    a->assemble(timeout);
    std::vector<hosts::site> sites;
    for (int r = 0; r < a->ranks(); ++r)
        sites.push_back({address::loopback(family, static_cast<int>(a->port(r).load(std::memory_order_relaxed))),
            static_cast<std::uint64_t>(r)});  // as if each were on a host of its own
    auto network = hosts::inter_node_transport_for(environment::read(), a->rank(), {}, a->rank());
    return hosts::group_of_all(std::move(listening), std::move(sites), a->number, a->rank(),
        a->crowded() ? a->figures().cores : cores_together::plenty, nullptr, std::move(network));
}

/// Notes how a rank ended.
[[gnu::cold]] inline void note(arena& a, errc code, int rank, int peer, int round, const char* text, bool own) {
    outcome& o = a.head().how;
    std::uint32_t expected = 0;
    // The process that holds the lock copies a line of text; if it dies meanwhile, its report is lost.
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
/// Called in a handler: notes the exception, and breaks the group, so that no rank waits for this one.
[[gnu::cold]] inline void note_exception(arena& a, rank_context* end = nullptr) {
    error_text text;
    text << "colls: rank " << a.rank() << ": its function threw";
    try {
        throw;
    } catch (const error& x) {
        note(a, x.code(), x.rank(), x.peer(), x.round(), x.what(), x.code() != errc::peer_failed);
        text << ": " << x.what();
    } catch (const std::exception& x) {
        note(a, errc::peer_failed, a.rank(), none, none, text << ": " << x.what(), true);
    } catch (...) {
        note(a, errc::peer_failed, a.rank(), none, none, text, true);
    }
    if (end)
        break_group(*end, errc::peer_failed, none, none, text);
    else
        poison(a.whole(), errc::peer_failed, a.rank(), none, none, text);
}

/// A process, as another one watches it: by a descriptor, where the system gives one.
struct watched_process {
    explicit watched_process(pid_t p)
        : number(p),
          fd(opened([&] { return static_cast<int>(syscall(SYS_pidfd_open, p, 0)); })),
          gone(!fd && errno == ESRCH) {}
    /// False also where that cannot be seen.
    bool ended() const {
        pollfd p{fd.get(), POLLIN, 0};
        return gone || (fd && poll(&p, 1, 0) > 0);
    }

    pid_t number;
    descriptor fd;
    bool gone;  ///< before it could be watched
};

/// The processes of one `run`, as their parent sees them. It watches their descriptors: waitpid does not tell that they
/// have ended where SIGCHLD is ignored, or where another part of the program waits for all children.
class children {
public:
    ~children() {
        for (const child& c : all_)  // only where something went wrong
            if (!c.over) {
                kill(c.number, SIGKILL);
                reap(c.number);
            }
    }
    void add(pid_t number) { all_.push_back({watched_process(number)}); }

    /// Returns when all have ended. A process that ends before its rank has joined breaks the group, so that the others
    /// do not wait for it.
    [[gnu::cold]] void wait(arena& a) {
        const group_memory m = a.whole();
        std::vector<pollfd> watched;
        for (std::size_t left = all_.size(); left > 0;) {
            watched.clear();
            bool blind = false;  // on one whose descriptor the system does not give
            for (const child& c : all_) {
                if (!c.over && c.fd) watched.push_back({c.fd.get(), POLLIN, 0});
                blind = blind || (!c.over && !c.fd);
            }
            poll(watched.data(), watched.size(), blind ? 1 : -1);
            for (std::size_t r = 0; r < all_.size(); ++r) {
                if (all_[r].over || !ended(all_[r])) continue;
                const auto rank = static_cast<int>(r);
                // Checked before waitpid, which frees the process number: a rank that is to watch the process must not
                // open another one.
                const bool early = m.state(rank).arrived.load(std::memory_order_acquire) < arena::phases;
                if (early)
                    poison(m, errc::peer_failed, rank, rank, none,
                        error_text() << "colls: rank " << rank << ": its process ended before it had joined the group");
                note_end(a, rank, all_[r].number, early);
                all_[r].over = true;
                --left;
            }
        }
    }

private:
    struct child : watched_process {
        bool over = false;
    };
    static bool ended(const child& c) {
        if (c.fd) return c.ended();
        siginfo_t info{};
        return c.gone || waitid(P_PID, static_cast<id_t>(c.number), &info, WEXITED | WNOWAIT | WNOHANG) != 0 ||
               info.si_pid != 0;
    }
    /// waitpid, though signals interrupt it.
    static pid_t reap(pid_t number, int* status = nullptr) {
        for (;;)
            if (const pid_t waited = waitpid(number, status, 0); waited >= 0 || errno != EINTR) return waited;
    }
    [[gnu::cold]] static void note_end(arena& a, int rank, pid_t number, bool early) {
        const char* const when = early ? ", before it had joined the group" : "";
        int status = 0;
        const pid_t waited = reap(number, &status);
        error_text text;
        text << "colls: rank " << rank << "'s process ";
        const std::uint32_t said = a.ended(rank).load(std::memory_order_relaxed);
        const bool killed = waited == number && WIFSIGNALED(status), unknown = waited != number && said == 0;
        const int code = waited == number ? WEXITSTATUS(status) : static_cast<int>(said) - 1;
        if (killed)
            text << "was killed by signal " << WTERMSIG(status) << when
                 << (WTERMSIG(status) == SIGKILL ? " (if nobody has killed it, memory has run out: see dmesg)" : "");
        else if (unknown)
            text << "has died" << when
                 << "; how cannot be known, since SIGCHLD is ignored, or another part of the program waits for its "
                    "children";
        else
            text << "ended with status " << code << when;
        if (killed || unknown || code != 0 || early)
            note(a, errc::peer_failed, rank, rank, none, text, killed || unknown || early);
    }

    std::vector<child> all_;
};

COLLS_INLINE void run(int n, rank_task f) {
    if (n < 1)
        throw error(errc::invalid_argument,
            error_text() << "colls: processes::run of " << n << " ranks: a group has at least one");
    static_cast<void>(environment::read());  // an invalid value is reported once
    const auto shared = std::make_shared<arena>(n, true);
    children all;
    const pid_t parent = getpid();
    // Other programs tell groups apart by it.
    shared->number = hash_mix(static_cast<std::uint64_t>(parent), static_cast<std::uint64_t>(seconds_now() * 1e9));
    const unsigned number = groups_made.fetch_add(1, std::memory_order_relaxed);
    std::fflush(nullptr);
    for (int r = 0; r < n; ++r) {
        const pid_t child = fork();
        if (child < 0)
            throw error(
                errc::unsupported, error_text() << "colls: cannot fork rank " << r << ": " << system_text(errno), r);
        if (child > 0) {
            all.add(child);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        dump_on_signal();
        int status = 0;
        shared->become_rank(r);
        try {
            const environment env = environment::read();
            communicator comm = env.tcp ? message_group(shared, env.timeout) : whole_group(shared, env);
            label_group(comm.context(), number);
            try {
                f(comm);
            } catch (...) {
                note_exception(*shared, comm.size() > 0 ? &comm.context() : nullptr);  // it may have left its group
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

}  // namespace processes::detail
}  // namespace colls::inline v1
