// Port numbers for tests that listen on this host, beside other tests that do so at the same time.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace support {

/// A range of ports that no other test of this library on this host uses as long as this object lives: it holds an
/// abstract socket whose name has the first port's number. The range is below the ports that systems assign themselves
/// (from 32768), and nothing listened at its first port.
class claimed_ports {
public:
    static constexpr int count = 480;

    claimed_ports() {
        static int turn = getpid();
        for (;; ++turn) {
            first_ = 10'000 + turn % (20'000 / count) * count;
            if (claim() && is_free()) return;
            close(held_);
            usleep(1'000);  // all ranges may be in use by other tests
        }
    }
    claimed_ports(const claimed_ports&) = delete;
    claimed_ports& operator=(const claimed_ports&) = delete;
    ~claimed_ports() { close(held_); }
    int first() const { return first_; }

private:
    bool claim() {
        held_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_un at{};
        at.sun_family = AF_UNIX;  // an abstract name, which ends with the socket
        const int length = std::snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "colls-test-port-%d", first_);
        const std::size_t all = offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length);
        return bind(held_, reinterpret_cast<const sockaddr*>(&at), static_cast<socklen_t>(all)) == 0;
    }
    bool is_free() const {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(static_cast<in_port_t>(first_));
        const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && listen(fd, 1) == 0;
        close(fd);
        return free;
    }
    int first_ = 0, held_ = -1;
};

}  // namespace support
