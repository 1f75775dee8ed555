// All bytes sent or received by a socket of which the test alone knows, by a deadline.
#pragma once

#include <colls/net/detail/connection/socket.hpp>

namespace support {

inline int send_all(int fd, const void* data, std::size_t bytes, double until) {
    return colls::detail::move_all(fd, POLLOUT, static_cast<const char*>(data), bytes, until,
        [fd](const char* at, std::size_t left) { return ::send(fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT); });
}
inline int receive_all(int fd, void* data, std::size_t bytes, double until) {
    return colls::detail::move_all(fd, POLLIN, static_cast<char*>(data), bytes, until,
        [fd](char* at, std::size_t left) { return ::recv(fd, at, left, MSG_DONTWAIT); });
}

}  // namespace support
