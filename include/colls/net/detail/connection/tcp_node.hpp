// What the TCP transports of one process share: the listening socket, one epoll descriptor for all connections, and the
// incoming connections that have not been handed to a transport yet.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/process_lock.hpp>
#include <colls/net/detail/connection/channel.hpp>
#include <colls/net/detail/connection/frame.hpp>
#include <colls/schedule.hpp>

#include <pthread.h>
#include <sys/epoll.h>
#include <algorithm>
#include <memory>
#include <vector>

namespace colls::inline v1::detail {

/// A socket that a tcp_node watches. Edge-triggered: `readable` and `writable` stay set until a call on the socket says
/// that it would block.
struct watched_socket : channel {
    bool readable = false, writable = false;
    bool hung_up = false;  ///< the peer has closed its side, or the connection has failed
    int peer = none;       ///< rank of the peer, for the owner
    struct tcp_connection_owner* owner = nullptr;
};

/// The sockets that the nodes of this process watch. A forked child closes them: otherwise peers would not see this
/// process die while the child lives. (They are close-on-exec, so an executed program has none of them.)
class open_sockets {
public:
    static open_sockets& all() {
        static open_sockets& one = *new open_sockets;  // never destroyed: a process may fork at any time
        return one;
    }
    void add(watched_socket& s) {
        const process_lock lock;
        all_.push_back(&s);
    }
    void remove(watched_socket& s) {
        const process_lock lock;
        std::erase(all_, &s);
    }

private:
    open_sockets() {
        pthread_atfork(nullptr, nullptr, [] {
            for (watched_socket* const s : all().all_) s->fd.close();
        });
    }

    std::vector<watched_socket*> all_;
};

/// What a node needs of a transport, for which it watches connections.
struct tcp_connection_owner {
    virtual std::uint64_t group() const = 0;
    /// Takes an incoming connection of the group, whose hello has been read.
    virtual void accept_connection(const peer_hello& hello, channel&& from) = 0;
    /// A watched socket has become readable or writable, or has hung up.
    virtual void socket_ready(watched_socket& socket) = 0;
    /// The system gives this process no descriptor for a connection that has come in; `code`: an errno.
    virtual void connections_exhausted(int code) = 0;

protected:
    ~tcp_connection_owner() = default;
};

/// One for each process (or for each rank, where ranks are threads). It is used by one thread at a time, and outlives
/// its transports.
/// An incoming connection that sends no valid hello within `hello_timeout` is dropped. A connection of a group that
/// does not exist here yet waits for the group's transport, since the peer may be ahead. Both kinds are limited in
/// number: the oldest are dropped first. A rank whose connection was dropped connects again, unless it had sent more
/// than its hello there.
class tcp_node {
public:
    static constexpr std::size_t most_silent = 256, most_early = 256;
    static constexpr double hello_timeout = 5;  ///< seconds

    /// Takes a listening socket (see `listen_at`). A connection whose group does not exist here yet is kept for
    /// `early_timeout` seconds if it is of this `world`, whose number is divisible by 8 (0: of any). Its peer may mean
    /// a dead process that had this port before: so it learns of that. Throws colls::error.
    explicit tcp_node(descriptor listening, double early_timeout = 300, std::uint64_t world = 0)
        : early_timeout_(early_timeout), world_(world) {
        listening_.fd = std::move(listening);
        epoll_ = opened([] { return epoll_create1(EPOLL_CLOEXEC); });
        if (!epoll_ || !watch(listening_))
            throw error(
                errc::unsupported, error_text() << "colls: cannot watch sockets (epoll): " << system_text(errno));
        cover_of(false);  // throws here, if ever
    }
    ~tcp_node() {
        for (auto& p : pending_) unwatch(*p);
        unwatch(listening_);
    }

    int port() const { return port_of(listening_.fd.get()); }
    /// Incoming connections that belong to no transport yet.
    std::size_t pending() const { return pending_.size(); }

    /// From now on the transport gets the connections of its group; those that are pending it gets at once.
    void add(tcp_connection_owner& t) {
        transports_.push_back(&t);
        for (std::size_t i = 0; i < pending_.size();)
            if (const auto& hello = pending_[i]->hello; hello && hello->group == t.group())
                hand_over(i, *hello, t);
            else
                ++i;
    }
    /// From now on connections of the transport's group are dropped.
    void remove(tcp_connection_owner& t) {
        std::erase(transports_, &t);
        // Only this many groups are remembered: a connection that comes later still waits as if it were early.
        if (ended_groups_.size() == 2048) ended_groups_.erase(ended_groups_.begin(), ended_groups_.begin() + 1024);
        ended_groups_.push_back(t.group());
    }

    bool watch(watched_socket& s) {
        epoll_event e{};
        e.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        e.data.ptr = &s;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, s.fd.get(), &e) != 0) return false;
        open_sockets::all().add(s);
        return true;
    }
    /// Closing the descriptor would not do where a forked process has the socket too. Leaves errno as it is.
    void unwatch(watched_socket& s) {
        const int before = errno;
        open_sockets::all().remove(s);
        if (s.fd) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, s.fd.get(), nullptr);
        errno = before;
    }

    /// Handles the events of all transports' sockets, and incoming connections, without waiting. False: there were no
    /// events.
    bool poll_events() {
        bool any = false;
        epoll_event events[64];
        for (int n = 64, batches = 0; n == 64 && batches < 16; ++batches) {
            n = epoll_wait(epoll_.get(), events, 64, 0);
            for (int i = 0; i < n; ++i) {
                watched_socket& s = *static_cast<watched_socket*>(events[i].data.ptr);
                const unsigned what = events[i].events;
                if (what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) s.hung_up = true;
                if (what & EPOLLIN || s.hung_up) s.readable = true;
                if (what & EPOLLOUT || s.hung_up) s.writable = true;
                any = true;
                if (s.owner) s.owner->socket_ready(s);
            }
        }
        if (listening_.readable) accept_all();
        if (!pending_.empty()) serve_pending();
        return any;
    }
    /// Sleeps until there is an event, for at most `seconds`, and handles it.
    void wait(double seconds) {
        if (poll_events() || !(seconds > 0)) return;
        if (!pending_.empty() || listening_.readable) seconds = std::min(seconds, 0.05);
        const timespec t = timespec_of(std::min(seconds, 3600.0));
        pollfd p{epoll_.get(), POLLIN, 0};
        if (ppoll(&p, 1, &t, nullptr) > 0) poll_events();
    }

private:
    /// An incoming connection whose hello has not been read, or whose group has no transport here yet.
    struct pending_connection : watched_socket {
        double since = 0;  // when it was accepted, or its hello read
        arriving in;
        std::optional<peer_hello> hello;  // once it has been read
    };

    void accept_all() {
        listening_.hung_up = false;
        for (int i = 0; i < 64; ++i) {
            descriptor fd = accept_from(listening_.fd.get());
            if (!fd) {
                if (errno == ECONNABORTED || errno == EINTR) continue;
                // Where the process has no descriptor left, every poll tries again, and what waits for a peer fails.
                const int code = errno;
                listening_.readable = !may_try_again(code);
                if (listening_.readable) make_room(false, 0);
                if (is_exhausted(code))
                    for (tcp_connection_owner* t : transports_) t->connections_exhausted(code);
                return;
            }
            make_room(false, most_silent);
            auto p = std::make_unique<pending_connection>();
            p->fd = std::move(fd);
            p->cover = cover_of(false);
            p->since = seconds_now();
            p->readable = true;
            if (!watch(*p)) continue;
            pending_.push_back(std::move(p));
            // Where descriptors run out, those without a hello are dropped: not one whose hello is there already.
            if (!read_hello(*pending_.back())) drop(pending_.size() - 1);
        }
    }
    // Drops the oldest connections with, or without, a hello until there are fewer than `most`.
    void make_room(bool hello_read, std::size_t most) {
        std::size_t count = 0;
        for (auto& p : pending_) count += p->hello.has_value() == hello_read;
        for (std::size_t i = 0; count >= std::max<std::size_t>(most, 1) && i < pending_.size();)
            if (pending_[i]->hello.has_value() == hello_read) {
                drop(i);
                --count;
            } else {
                ++i;
            }
    }
    // Returns what was its connection.
    channel drop(std::size_t i) {
        unwatch(*pending_[i]);
        channel was = std::move(static_cast<channel&>(*pending_[i]));
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
        return was;
    }
    void hand_over(std::size_t i, peer_hello hello, tcp_connection_owner& t) { t.accept_connection(hello, drop(i)); }
    void serve_pending() {
        const double now = seconds_now();
        for (std::size_t i = 0; i < pending_.size();) {
            pending_connection& p = *pending_[i];
            // What has come is read first: this process may have been away for longer than the timeout.
            const bool alive = (p.hello || !p.readable || read_hello(p)) &&
                               now - p.since <= (p.hello ? early_timeout_ : hello_timeout);
            tcp_connection_owner* owner = nullptr;
            for (tcp_connection_owner* t : transports_)
                if (p.hello && t->group() == p.hello->group) owner = t;
            if (!alive ||
                (p.hello && !owner && std::ranges::find(ended_groups_, p.hello->group) != ended_groups_.end()))
                drop(i);
            else if (owner && p.hello)
                hand_over(i, *p.hello, *owner);
            else
                ++i;
        }
        make_room(true, most_early);
    }
    // Reads as much of the hello as has arrived, and nothing behind it. False: the connection has ended, or what it
    // sent is no hello, or that of another world.
    bool read_hello(pending_connection& p) {
        const auto read = p.in.read(p, peer_hello_bytes);
        p.readable = read != arriving::not_yet;
        if (read != arriving::whole) return read == arriving::not_yet;
        p.hello = parse_peer_hello(p.in.bytes());
        p.since = seconds_now();
        return p.hello && (world_ == 0 || (p.hello->group & ~std::uint64_t{7}) == world_);
    }

    double early_timeout_;
    std::uint64_t world_;
    descriptor epoll_;
    watched_socket listening_;
    std::vector<tcp_connection_owner*> transports_;
    std::vector<std::uint64_t> ended_groups_;  // whose transport has ended
    std::vector<std::unique_ptr<pending_connection>> pending_;
};

}  // namespace colls::inline v1::detail
