// A file descriptor goes from one process of a host to the others, through a socket that has no place in any file
// system.
#pragma once

#include <colls/detail/support/socket.hpp>

#include <sys/socket.h>
#include <sys/un.h>

namespace colls::inline v1::detail {

/// The abstract socket of that number. Only processes of one network namespace see it.
inline socklen_t socket_name(sockaddr_un& at, std::uint64_t number) {
    at = {};
    at.sun_family = AF_UNIX;
    const int length = std::snprintf(
        at.sun_path + 1, sizeof at.sun_path - 1, "colls-%016llx", static_cast<unsigned long long>(number));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
}
inline bool of_same_user(int socket) {
    ucred who{};
    socklen_t size = sizeof who;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == getuid();
}

/// Gives `file` to `count` processes of this user that ask at the socket of that number. Throws colls::error (timeout).
inline void hand_out(std::uint64_t number, int file, int count, double timeout, int rank) {
    sockaddr_un at;
    const socklen_t length = socket_name(at, number);
    const descriptor listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listening || bind(listening.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 ||
        listen(listening.get(), 128) != 0)
        throw error(errc::unsupported,
            (message() << "colls: rank " << rank
                       << ": no socket to hand out shared memory at: " << std::strerror(errno))
                .text(),
            rank);
    const double until = seconds_now() + timeout;
    while (count > 0) {
        pollfd look{listening.get(), POLLIN, 0};
        if (seconds_now() > until)
            throw error(errc::timeout,
                (message() << "colls: rank " << rank << ": " << count
                           << " ranks of this host have not fetched the shared memory")
                    .text(),
                rank);
        if (poll(&look, 1, 50) <= 0) continue;
        const descriptor peer(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer || !of_same_user(peer.get())) continue;
        char byte = 1;
        iovec data{&byte, 1};
        alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
        msghdr m{};
        m.msg_iov = &data, m.msg_iovlen = 1, m.msg_control = room, m.msg_controllen = sizeof room;
        cmsghdr* const c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(c), &file, sizeof file);
        if (sendmsg(peer.get(), &m, MSG_NOSIGNAL) == 1) --count;
    }
}

/// Fetches it. Throws colls::error (timeout).
inline int fetch(std::uint64_t number, double timeout, int rank, int from) {
    sockaddr_un at;
    const socklen_t length = socket_name(at, number);
    for (const double until = seconds_now() + timeout; seconds_now() < until; usleep(1000)) {
        const descriptor peer(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const timeval limit{5, 0};
        setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (!peer || connect(peer.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 || !of_same_user(peer.get()))
            continue;
        char byte;
        iovec data{&byte, 1};
        alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
        msghdr m{};
        m.msg_iov = &data, m.msg_iovlen = 1, m.msg_control = room, m.msg_controllen = sizeof room;
        if (recvmsg(peer.get(), &m, MSG_CMSG_CLOEXEC) != 1) continue;
        const cmsghdr* const c = CMSG_FIRSTHDR(&m);
        if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
            continue;
        int file;
        std::memcpy(&file, CMSG_DATA(c), sizeof file);
        return file;
    }
    throw error(errc::timeout,
        (message() << "colls: rank " << rank << ": rank " << from << " did not hand out the shared memory of this host")
            .text(),
        rank, from);
}

}  // namespace colls::inline v1::detail
