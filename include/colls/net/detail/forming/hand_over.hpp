// Passes file descriptors from one process of a host to others, through an abstract Unix socket (which has no place in
// the file system).
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/rank_error.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/net/detail/connection/socket.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <functional>
#include <span>
#include <vector>

namespace colls::inline v1::detail {

/// Fills in the address of the abstract socket of that number; returns its length. Only processes of the same network
/// namespace see the socket.
inline socklen_t socket_name(sockaddr_un& at, std::uint64_t number) {
    at = {};
    at.sun_family = AF_UNIX;
    const int length = std::snprintf(
        at.sun_path + 1, sizeof at.sun_path - 1, "colls-%016llx", static_cast<unsigned long long>(number));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
}
/// The process at the other end belongs to the user of this one.
inline bool of_same_user(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

/// A message of one byte that carries a descriptor, or has room for one.
struct descriptor_message {
    char byte = 1;
    iovec data{&byte, 1};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr head{};

    descriptor_message() {
        head.msg_iov = &data, head.msg_iovlen = 1, head.msg_control = room, head.msg_controllen = sizeof room;
    }
    bool send(int socket, int file) {
        cmsghdr* const c = CMSG_FIRSTHDR(&head);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(c), &file, sizeof file);
        return sendmsg(socket, &head, MSG_NOSIGNAL) == 1;
    }
    /// False where none has come until the deadline, or an error.
    bool receive(int socket, double until) {
        // A signal may come with the message: the other side has sent it then, and does not send it again.
        ssize_t received = 0;
        do received = recvmsg(socket, &head, MSG_CMSG_CLOEXEC);
        while (received < 0 && errno == EINTR && seconds_now() < until);
        return received == 1;
    }
    /// The descriptor that has come; none if the message had none.
    descriptor taken() {
        const cmsghdr* const c = CMSG_FIRSTHDR(&head);
        if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
            return {};
        int file;
        std::memcpy(&file, CMSG_DATA(c), sizeof file);
        return descriptor(file);
    }
};

/// Gives the descriptors `files` to `count` processes of this user, which fetch them with the same number. Calls
/// `check` while it waits. Throws colls::error: timeout if fewer have come after `timeout` seconds, unsupported if the
/// socket cannot be made.
[[gnu::cold]] inline void hand_out(std::uint64_t number, std::span<const int> files, int count, double timeout,
    int rank, const std::function<void()>& check) {
    sockaddr_un at;
    const socklen_t length = socket_name(at, number);
    const descriptor listening = stream_socket(AF_UNIX);
    if (!listening || bind(listening.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 ||
        listen(listening.get(), 128) != 0)
        throw_of_rank(rank, errc::unsupported,
            error_text() << "cannot make the socket at which ranks of this host fetch the shared memory: "
                         << system_text(errno));
    for (const double until = seconds_now() + timeout; count > 0;) {
        call_wait_hook();
        check();
        if (seconds_now() > until)
            throw_of_rank(rank, errc::timeout,
                error_text() << count << " ranks of this host have not fetched the shared memory within " << timeout
                             << " s: were they started?");
        pollfd p{listening.get(), POLLIN, 0};
        if (poll(&p, 1, 1) <= 0) continue;
        const descriptor peer = opened([&] { return accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC); });
        if (!peer && (is_exhausted(errno) || is_forbidden(errno)))
            throw_of_rank(rank, errc::unsupported,
                error_text() << "cannot hand out the shared memory of this host: " << system_text(errno));
        if (!peer || !of_same_user(peer.get())) continue;
        const timeval limit{5, 0};
        setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        bool sent = true;
        for (const int file : files) sent = sent && descriptor_message().send(peer.get(), file);
        if (sent) --count;
    }
}

/// Fetches the `count` descriptors that rank `from` hands out; `rank` is this process's, for the error's text. Calls
/// `check` while it waits. Throws colls::error: timeout if there are none after `timeout` seconds, unsupported if this
/// process may have no more descriptors.
[[gnu::cold]] inline std::vector<descriptor> fetch(
    std::uint64_t number, std::size_t count, double timeout, int rank, int from, const std::function<void()>& check) {
    const auto refused = [&](int why) {
        throw_of_rank(rank, errc::unsupported,
            error_text() << "cannot fetch the shared memory of this host: " << system_text(why));
    };
    sockaddr_un at;
    const socklen_t length = socket_name(at, number);
    for (const double until = seconds_now() + timeout; seconds_now() < until; usleep(1000)) {
        call_wait_hook();
        check();
        const descriptor peer = opened([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); });
        if (!peer) refused(errno);
        const timeval limit{5, 0};
        setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (connect(peer.get(), reinterpret_cast<sockaddr*>(&at), length) != 0) {
            if (is_forbidden(errno)) refused(errno);
            continue;
        }
        if (!of_same_user(peer.get())) continue;
        std::vector<descriptor> files;
        while (files.size() < count) {
            descriptor_message m;
            if (!m.receive(peer.get(), until)) break;
            // A process that may have no more descriptors gets the message without it.
            if (m.head.msg_flags & MSG_CTRUNC) refused(EMFILE);
            files.push_back(m.taken());
            if (!files.back()) break;
        }
        if (files.size() == count && files.back()) return files;
    }
    throw_of_rank(rank, errc::timeout,
        error_text() << "rank " << from << " has not handed out the shared memory of this host within " << timeout
                     << " s: has it failed?",
        from);
}

}  // namespace colls::inline v1::detail
