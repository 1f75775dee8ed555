// Sockets, as far as the library needs them: IPv4 and IPv6 addresses, non-blocking listening and
// connecting, and whole records sent and received by a deadline.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/error.hpp>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace colls::inline v1::detail {

/// The address of a socket: IPv4 or IPv6, with its port.
struct address {
    sockaddr_storage storage{};
    socklen_t length = 0;  ///< 0: no address

    int family() const { return length == 0 ? AF_UNSPEC : storage.ss_family; }
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(storage); }
    const sockaddr_in6& v6() const { return reinterpret_cast<const sockaddr_in6&>(storage); }
    sockaddr_in& v4() { return reinterpret_cast<sockaddr_in&>(storage); }
    sockaddr_in6& v6() { return reinterpret_cast<sockaddr_in6&>(storage); }

    int port() const {
        return family() == AF_INET ? ntohs(v4().sin_port) : family() == AF_INET6 ? ntohs(v6().sin6_port) : 0;
    }
    address& set_port(int port) {
        if (family() == AF_INET) v4().sin_port = htons(static_cast<std::uint16_t>(port));
        if (family() == AF_INET6) v6().sin6_port = htons(static_cast<std::uint16_t>(port));
        return *this;
    }
    bool is_loopback() const {
        if (family() == AF_INET) return ntohl(v4().sin_addr.s_addr) >> 24 == 127;
        if (family() != AF_INET6) return false;
        const in6_addr& a = v6().sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[12] == 127);
    }
    /// Compares all but the port.
    bool same_host(const address& other) const {
        if (family() != other.family()) return false;
        if (family() == AF_INET) return v4().sin_addr.s_addr == other.v4().sin_addr.s_addr;
        return family() == AF_INET6 && v6().sin6_scope_id == other.v6().sin6_scope_id &&
               std::memcmp(&v6().sin6_addr, &other.v6().sin6_addr, sizeof(in6_addr)) == 0;
    }
    friend bool operator==(const address& a, const address& b) { return a.same_host(b) && a.port() == b.port(); }

    static address from(const sockaddr* at, socklen_t length) {
        address a;
        if (at == nullptr || length > sizeof a.storage) return a;
        std::memcpy(&a.storage, at, a.length = length);
        return a;
    }
    static address of_v4(std::uint32_t host, int port) {
        address a;
        a.length = sizeof(sockaddr_in);
        a.v4().sin_family = AF_INET;
        a.v4().sin_addr.s_addr = htonl(host);
        return a.set_port(port);
    }
    static address of_v6(const in6_addr& host, int port, std::uint32_t scope = 0) {
        address a;
        a.length = sizeof(sockaddr_in6);
        a.v6().sin6_family = AF_INET6;
        a.v6().sin6_addr = host;
        a.v6().sin6_scope_id = scope;
        return a.set_port(port);
    }
    static address loopback(int family, int port) {
        return family == AF_INET6 ? of_v6(in6addr_loopback, port) : of_v4(INADDR_LOOPBACK, port);
    }
    /// The address of every interface, for listening only.
    static address everywhere(int family, int port) {
        return family == AF_INET6 ? of_v6(in6addr_any, port) : of_v4(INADDR_ANY, port);
    }
};

/// "10.0.0.3", "fe80::1%eth0".
[[gnu::cold]] inline std::string host_text(const address& a) {
    char text[NI_MAXHOST];
    if (a.length == 0 || getnameinfo(a.get(), a.length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
        return "(no address)";
    return text;
}
/// "10.0.0.3:2000", "[::1]:2000".
[[gnu::cold]] inline std::string text_of(const address& a) {
    const std::string host = host_text(a);
    error_text text;
    (a.family() == AF_INET6 ? text << "[" << host << "]" : text << host) << ":" << a.port();
    return text.text();
}

/// The addresses of a host, given by name or in numbers, best first. If there are none, `*why` says why. May ask a name
/// server, and wait for it as long as the system's resolver does.
[[gnu::cold]] inline std::vector<address> resolve(const std::string& host, int port, const char** why = nullptr) {
    std::vector<address> found;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
    if (why) *why = code == 0 ? "it has no address" : code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code);
    if (code != 0) return found;
    for (const addrinfo* i = list; i; i = i->ai_next)
        if (i->ai_family == AF_INET || i->ai_family == AF_INET6)
            found.push_back(address::from(i->ai_addr, i->ai_addrlen).set_port(port));
    freeaddrinfo(list);
    return found;
}

/// The address of this end of a socket, or of the other end (`of` is getpeername); of length 0 if it has none.
inline address local_address(int fd, int (*of)(int, sockaddr*, socklen_t*) = &getsockname) {
    address a;
    a.length = sizeof a.storage;
    if (of(fd, a.get(), &a.length) != 0) a.length = 0;
    return a;
}
inline address remote_address(int fd) { return local_address(fd, &getpeername); }
inline int port_of(int fd) { return local_address(fd).port(); }

/// For a socket that is connected, or connects, to `peer`: small messages are sent at once, not collected. Within a
/// host there is no network to share, so no rate is kept: BBR, which some systems take for all connections, would pace
/// large messages by a rate that it measures while the receiver computes.
inline void tune(int fd, const address& peer) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (local_address(fd).same_host(peer)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

/// A socket: non-blocking, closed by exec. No descriptor if there is none: errno says why.
inline descriptor stream_socket(int family) {
    return opened([&] { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

/// A listening socket: non-blocking, closed by exec. Port 0 stands for any free one (see `port_of`). No descriptor if
/// it fails: errno says why. `shared`: other processes of this user may listen there as well, of which the system takes
/// any one for each connection.
inline descriptor listen_at(const address& at, bool shared = false) {
    descriptor fd = stream_socket(at.family());
    if (!fd) return fd;
    const int on = 1;
    setsockopt(
        fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // although connections of an earlier job are in TIME_WAIT
    if (at.family() == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (shared) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (bind(fd.get(), at.get(), at.length) != 0 || listen(fd.get(), 1024) != 0) fd.close();
    return fd;
}
/// The same at a free port of loopback, by IPv6 where this host has no loopback of IPv4.
inline descriptor listen_on_loopback() {
    descriptor fd = listen_at(address::loopback(AF_INET, 0));
    return fd || is_exhausted(errno) ? std::move(fd) : listen_at(address::loopback(AF_INET6, 0));
}

/// The next incoming connection: non-blocking, closed by exec, without delay. No descriptor if there is none: errno
/// says why (EAGAIN: none is waiting; ECONNABORTED: the peer has closed it again).
inline descriptor accept_from(int listening) {
    descriptor fd = opened([&] { return accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (fd) tune(fd.get(), remote_address(fd.get()));
    return fd;
}

/// Starts to connect: non-blocking, closed by exec, without delay. `connected` says how far it is. No descriptor if it
/// fails at once: errno says why.
inline descriptor start_connect(const address& to) {
    descriptor fd = stream_socket(to.family());
    if (!fd) return fd;
    if (connect(fd.get(), to.get(), to.length) != 0 && errno != EINPROGRESS && errno != EINTR)
        fd.close();
    else
        tune(fd.get(), to);
    return fd;
}

/// How far the connection is that `start_connect` has started: 0, or the errno by which it has failed; nothing yet.
/// Never waits.
inline std::optional<int> connected(int fd) {
    pollfd p{fd, POLLOUT, 0};
    if (poll(&p, 1, 0) <= 0) return {};
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    const address there = remote_address(fd);
    if (error == 0 && there.length == 0) error = ENOTCONN;  // the system reports the cause only once
    // A socket may happen to connect to itself: on one host, at a port of the ephemeral range at which nothing listens.
    if (error == 0 && local_address(fd) == there) error = ECONNREFUSED;
    return error;
}

/// A timeout for poll(2), rounded up, so that the last millisecond is no busy loop.
inline int milliseconds_until(double until) {
    const double left = (until - seconds_now()) * 1e3;
    return left <= 0 ? 0 : left > 1e6 ? 1'000'000 : static_cast<int>(left) + 1;
}
/// Waits for one of `events` (of poll(2)) or an error until the deadline `until` (of seconds_now). False: the deadline.
inline bool wait_for(int fd, short events, double until) {
    for (;;) {
        pollfd p{fd, events, 0};
        const int ready = poll(&p, 1, milliseconds_until(until));
        if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // the next call on the socket reports an error
        if (seconds_now() >= until) return false;
    }
}

template <class T>
T random_bytes() {
    T random;
    if (getentropy(&random, sizeof random) != 0)
        throw error(errc::unsupported, "colls: the system gives no random numbers (getentropy)");
    return random;
}
inline std::uint64_t random_id() {
    for (;;)
        if (const auto id = random_bytes<std::uint64_t>(); id != 0) return id;
}

/// The errno of a failed call on a non-blocking socket says that another attempt may succeed.
inline bool may_try_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace colls::inline v1::detail
