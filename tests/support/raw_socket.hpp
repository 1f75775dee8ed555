// All bytes sent or received by a socket of which the test alone knows, by a deadline.
#pragma once

#include <colls/net/detail/connection/channel.hpp>

namespace support {

/// The socket belongs to the caller.
struct raw_channel : colls::detail::channel {
    explicit raw_channel(int socket) { fd = colls::detail::descriptor(socket); }
    ~raw_channel() { static_cast<void>(fd.release()); }
};
inline int send_all(int fd, const void* data, std::size_t bytes, double until) {
    raw_channel to(fd);
    return colls::detail::send_all(to, data, bytes, until);
}
inline int receive_all(int fd, void* data, std::size_t bytes, double until) {
    raw_channel from(fd);
    return colls::detail::receive_all(from, data, bytes, until);
}

}  // namespace support
