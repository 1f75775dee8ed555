// What the TCP transports of one process share: the listening socket, one epoll for all connections, and the
// connections that have come in but do not belong to a transport yet.
#pragma once

#include <colls/detail/support/socket.hpp>
#include <colls/detail/transport/tcp/frame.hpp>

#include <pthread.h>
#include <sys/epoll.h>
#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace colls::inline v1::detail {

/// A socket that a node watches. Edge-triggered: the flags stay until whoever uses it finds nothing more.
struct watched {
    descriptor fd;
    watched *before = nullptr, *behind = nullptr;  ///< in open_sockets
    bool readable = false, writable = false;
    bool hung = false;  ///< the end of what comes has been seen
    int peer = none;    ///< of its owner
    struct tcp_connection_owner* owner = nullptr;
};

/// The sockets that nodes of this process watch. A child that is forked closes them, or its peers would not see that
/// this process has died as long as the child lives. (What is executed has none of them: they are close-on-exec.)
class open_sockets {
public:
    static open_sockets& all() {
        static open_sockets& one = *new open_sockets;  // never destroyed: a process may fork at any time
        return one;
    }
    void add(watched& s) {
        const std::lock_guard lock(mutex_);
        s.before = nullptr;
        s.behind = first_;
        if (first_) first_->before = &s;
        first_ = &s;
    }
    void remove(watched& s) {
        const std::lock_guard lock(mutex_);
        if (s.before == nullptr && first_ != &s) return;  // closed already
        (s.before ? s.before->behind : first_) = s.behind;
        if (s.behind) s.behind->before = s.before;
        s.before = s.behind = nullptr;
    }

private:
    open_sockets() {
        pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); }, [] { all().close(); });
    }
    // In the child, with the lock that its parent took.
    void close() {
        for (watched* s = first_; s != nullptr; first_ = s = s->behind) s->fd.close();
        mutex_.unlock();
    }

    std::mutex mutex_;
    watched* first_ = nullptr;
};

/// A transport, as its node sees it.
struct tcp_connection_owner {
    virtual std::uint64_t group() const = 0;
    /// A connection of the group has come in, and its hello has been read.
    virtual void came_in(const peer_hello& hello, descriptor&& fd) = 0;
    /// Something happened on a socket.
    virtual void stirred(watched& socket) = 0;

protected:
    ~tcp_connection_owner() = default;
};

/// One for each process (or for each rank, where ranks are threads); used by one thread at a time, and outlives its
/// transports. Connections that say nothing for 5 s, or nothing sensible, are dropped; those of a group that does not
/// exist here yet wait for its transport: the peer may be ahead. Both are limited in number, the oldest go first;
/// whoever connects tries again if that happened before it could speak.
class tcp_node {
public:
    static constexpr std::size_t most_silent = 256, most_early = 256;
    static constexpr double silence = 5;

    /// Takes a listening socket (`listen_at`); `keep`: for how many seconds a connection may be early. Throws
    /// colls::error.
    explicit tcp_node(descriptor listening, double keep = 300) : keep_(keep) {
        listening_.fd = std::move(listening);
        epoll_ = descriptor(epoll_create1(EPOLL_CLOEXEC));
        if (!epoll_ || !watch(listening_))
            throw error(errc::peer_failed,
                (message() << "colls: cannot watch sockets (epoll): " << std::strerror(errno)).text());
    }
    tcp_node(const tcp_node&) = delete;
    tcp_node& operator=(const tcp_node&) = delete;
    ~tcp_node() {
        for (auto& g : guests_) unwatch(*g);
        unwatch(listening_);
    }

    int port() const { return port_of(listening_.fd.get()); }
    std::size_t guests() const { return guests_.size(); }

    /// From here on the transport hears of its connections; those that were early it gets at once.
    void add(tcp_connection_owner& w) {
        transports_.push_back(&w);
        for (std::size_t i = 0; i < guests_.size();)
            if (guests_[i]->known && guests_[i]->hello.group == w.group())
                hand_over(i, w);
            else
                ++i;
    }
    /// The group's connections that still come are dropped.
    void remove(tcp_connection_owner& w) {
        std::erase(transports_, &w);
        // A connection that comes later than that many groups waits as if it were early.
        if (over_.size() == 2048) over_.erase(over_.begin(), over_.begin() + 1024);
        over_.push_back(w.group());
    }

    bool watch(watched& s) {
        epoll_event e{};
        e.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        e.data.ptr = &s;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, s.fd.get(), &e) != 0) return false;
        open_sockets::all().add(s);
        return true;
    }
    void unwatch(watched& s) {  // closing is not enough where a forked process has the socket too
        const int before = errno;
        open_sockets::all().remove(s);
        if (s.fd) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, s.fd.get(), nullptr);
        errno = before;
    }

    /// Sees to whatever has happened, on all transports' sockets; never waits. False: nothing has.
    bool look() {
        bool any = false;
        epoll_event events[64];
        for (int n = 64, turns = 0; n == 64 && turns < 16; ++turns) {
            n = epoll_wait(epoll_.get(), events, 64, 0);
            for (int i = 0; i < n; ++i) {
                watched& s = *static_cast<watched*>(events[i].data.ptr);
                const unsigned what = events[i].events;
                if (what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) s.hung = true;
                if (what & EPOLLIN || s.hung) s.readable = true;
                if (what & EPOLLOUT || s.hung) s.writable = true;
                any = true;
                if (s.owner) s.owner->stirred(s);
            }
        }
        if (listening_.readable) accept();
        if (!guests_.empty()) receive_guests();
        return any;
    }
    /// Until something happens, at most so long; then looks.
    void wait(double seconds) {
        if (look() || !(seconds > 0)) return;
        if (!guests_.empty() || listening_.readable) seconds = std::min(seconds, 0.05);
        const double whole = std::min(seconds, 3600.0);
        timespec t;
        t.tv_sec = static_cast<time_t>(whole);
        t.tv_nsec = static_cast<long>((whole - static_cast<double>(t.tv_sec)) * 1e9);
        pollfd p{epoll_.get(), POLLIN, 0};
        if (ppoll(&p, 1, &t, nullptr) > 0) look();
    }

private:
    struct guest : watched {
        double since = 0;
        bool known = false;
        std::size_t got = 0;
        std::byte bytes[peer_hello_bytes];
        peer_hello hello{};
    };

    void accept() {
        listening_.hung = false;
        for (int i = 0; i < 64; ++i) {
            descriptor fd = accept_from(listening_.fd.get());
            if (!fd) {
                if (errno == ECONNABORTED || errno == EINTR) continue;
                // Where descriptors have run out, it is tried again at every look.
                listening_.readable = errno != EAGAIN && errno != EWOULDBLOCK;
                if (listening_.readable) make_room(false, 0);
                return;
            }
            make_room(false, most_silent);
            auto g = std::make_unique<guest>();
            g->fd = std::move(fd);
            g->since = seconds_now();
            g->readable = true;
            if (watch(*g)) guests_.push_back(std::move(g));
        }
    }
    // The oldest silent, or early, ones go until there are fewer than so many.
    void make_room(bool known, std::size_t most) {
        std::size_t count = 0;
        for (auto& g : guests_) count += g->known == known;
        for (std::size_t i = 0; count >= std::max<std::size_t>(most, 1) && i < guests_.size();)
            if (guests_[i]->known == known) {
                drop(i);
                --count;
            } else {
                ++i;
            }
    }
    void drop(std::size_t i) {
        unwatch(*guests_[i]);
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    void hand_over(std::size_t i, tcp_connection_owner& w) {
        const peer_hello hello = guests_[i]->hello;
        unwatch(*guests_[i]);
        descriptor fd = std::move(guests_[i]->fd);
        guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
        w.came_in(hello, std::move(fd));
    }
    void receive_guests() {
        const double now = seconds_now();
        for (std::size_t i = 0; i < guests_.size();) {
            guest& g = *guests_[i];
            if (now - g.since > (g.known ? keep_ : silence) || (!g.known && g.readable && !listen_to(g))) {
                drop(i);
                continue;
            }
            if (!g.known) {
                ++i;
                continue;
            }
            tcp_connection_owner* of = nullptr;
            for (tcp_connection_owner* w : transports_)
                if (w->group() == g.hello.group) of = w;
            if (of)
                hand_over(i, *of);
            else if (std::find(over_.begin(), over_.end(), g.hello.group) != over_.end())
                drop(i);
            else
                ++i;
        }
        make_room(true, most_early);
    }
    // Reads the hello and nothing behind it. False: this is none.
    static bool listen_to(guest& g) {
        while (g.got < peer_hello_bytes) {
            const ssize_t n = ::recv(g.fd.get(), g.bytes + g.got, peer_hello_bytes - g.got, MSG_DONTWAIT);
            if (n > 0) {
                g.got += static_cast<std::size_t>(n);
                continue;
            }
            if (n == 0) return false;
            if (errno == EINTR) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
            g.readable = false;
            return true;
        }
        const auto hello = parse_peer_hello({g.bytes, peer_hello_bytes});
        if (!hello) return false;
        g.hello = *hello;
        g.known = true;
        g.since = seconds_now();
        return true;
    }

    double keep_;
    descriptor epoll_;
    watched listening_;
    std::vector<tcp_connection_owner*> transports_;
    std::vector<std::uint64_t> over_;
    std::vector<std::unique_ptr<guest>> guests_;
};

}  // namespace colls::inline v1::detail
