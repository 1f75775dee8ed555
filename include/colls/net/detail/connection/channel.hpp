// One end of a connection: a socket, and, where COLLS_TLS asks for it, what hides and proves the bytes that it carries.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/net/detail/connection/socket.hpp>

#include <sys/uio.h>
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

namespace colls::inline v1::detail {

/// Encrypts the bytes of one connection, whose non-blocking socket each call gets. The two sides make themselves known
/// within these calls: no other call is needed for that but a `read` whenever bytes have arrived.
class stream_cover {
public:
    virtual ~stream_cover() = default;
    /// As readv and sendmsg. EAGAIN: nothing has arrived, or nothing more can be taken now. EPROTO: the peer is not
    /// trusted, or the bytes are not its own: `why` says how. What `write` has taken it may send only later.
    virtual ssize_t read(int fd, const iovec* v, int count) = 0;
    virtual ssize_t write(int fd, const iovec* v, int count) = 0;
    /// Sends what can be sent now of what `write` has taken. False: the socket is full. (After a failure nothing is
    /// left to send, and the next `read` or `write` reports it.)
    virtual bool flush(int fd) = 0;
    /// `write` has taken bytes that have not been sent.
    virtual bool has_unsent() const = 0;
    /// Bytes that the socket does not show any more wait for a `read`.
    virtual bool has_unread() const = 0;
    /// Both sides have shown what they are trusted by.
    virtual bool is_known() const = 0;
    virtual const char* why() const = 0;
};

/// Makes the cover of a connection; `connects`: of the side that connects. Throws invalid_argument where the files of
/// COLLS_TLS are of no use. Null: the program does not include tls.hpp.
inline std::unique_ptr<stream_cover> (*make_cover)(bool connects) = nullptr;

/// What users of other languages read, where a network is not in their library.
inline constexpr char for_clients[] = " (C, Python: build with COLLS_C_NETWORKS; torch: COLLS_TORCH_NETWORKS)";
inline bool is_covered() { return variable("COLLS_TLS") != nullptr; }
/// None where COLLS_TLS is not set. Throws.
[[gnu::cold]] inline std::unique_ptr<stream_cover> cover_of(bool connects) {
    if (!is_covered()) return nullptr;
    if (make_cover == nullptr)
        throw error(errc::unsupported,
            error_text() << "colls: COLLS_TLS asks for TLS, which this program does not have: include "
                         << "<colls/tls.hpp>, and link colls::tls" << for_clients);
    return make_cover(connects);
}

struct channel {
    descriptor fd;
    std::unique_ptr<stream_cover> cover;  ///< null: the bytes travel as they are

    ssize_t read(const iovec* v, int count) {
        if (cover) return cover->read(fd.get(), v, count);
        return count == 1 ? ::recv(fd.get(), v->iov_base, v->iov_len, MSG_DONTWAIT) : readv(fd.get(), v, count);
    }
    ssize_t read(void* to, std::size_t bytes) {
        const iovec v{to, bytes};
        return read(&v, 1);
    }
    ssize_t write(const void* from, std::size_t bytes) {
        const iovec v{const_cast<void*>(from), bytes};
        return cover ? cover->write(fd.get(), &v, 1) : ::send(fd.get(), from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    bool has_unread() const { return cover && cover->has_unread(); }
    /// Why the last call has failed, with that errno.
    std::string why(int error) const { return error == EPROTO && cover ? cover->why() : system_text(error).c_str(); }
};

/// A record that arrives in pieces.
class arriving {
public:
    enum outcome { not_yet, whole, ended };
    /// Reads until there are `wanted` bytes. Never waits.
    outcome read(channel& from, std::size_t wanted) {
        bytes_.resize(std::max(bytes_.size(), wanted));
        while (got_ < wanted) {
            const ssize_t n = from.read(bytes_.data() + got_, wanted - got_);
            if (n > 0)
                got_ += static_cast<std::size_t>(n);
            else if (n == 0 || errno != EINTR)
                return n < 0 && may_try_again(errno) ? not_yet : ended;
        }
        return whole;
    }
    std::span<const std::byte> bytes() const { return {bytes_.data(), got_}; }
    void clear() { got_ = 0; }

private:
    std::vector<std::byte> bytes_;
    std::size_t got_ = 0;
};

/// Sends or receives (POLLOUT, POLLIN) all bytes by the deadline. Returns 0, or an errno: ETIMEDOUT at the deadline,
/// ENODATA if the other side has closed the connection before.
[[gnu::cold]] inline int move_all(channel& c, short events, std::byte* data, std::size_t bytes, double until) {
    const bool sends = events == POLLOUT;
    for (std::byte* const end = data + bytes; data != end;) {
        const auto left = static_cast<std::size_t>(end - data);
        const ssize_t n = sends ? c.write(data, left) : c.read(data, left);
        if (n == 0) return ENODATA;
        if (n > 0)
            data += n;
        else if (!may_try_again(errno))
            return errno;
        else if (errno != EINTR && !wait_for(c.fd.get(), events, until))
            return ETIMEDOUT;
    }
    while (sends && c.cover && !c.cover->flush(c.fd.get()))
        if (!wait_for(c.fd.get(), events, until)) return ETIMEDOUT;
    return 0;
}
inline int send_all(channel& to, const void* data, std::size_t bytes, double until) {
    return move_all(to, POLLOUT, static_cast<std::byte*>(const_cast<void*>(data)), bytes, until);
}
inline int receive_all(channel& from, void* data, std::size_t bytes, double until) {
    return move_all(from, POLLIN, static_cast<std::byte*>(data), bytes, until);
}

}  // namespace colls::inline v1::detail
