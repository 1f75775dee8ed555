// A bound, not a library: two ranks stream through one pair of TCP sockets on loopback, both ways at the same time. As
// an all_gather each sends its block while it receives the other's; its own block is copied outside the timed part.
#include "measure.hpp"
#include "run_ranks.hpp"

#include <colls/detail/support/descriptor.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <exception>

namespace {

using colls::detail::descriptor;

descriptor checked(int id, const char* what) {
    if (id < 0) throw std::system_error(errno, std::generic_category(), what);
    return descriptor(id);
}
void check(int result, const char* what) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), what);
}

/// Two connected TCP sockets on 127.0.0.1, without Nagle's delay, non-blocking.
std::array<descriptor, 2> connected() {
    const descriptor listener = checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    check(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), "bind to 127.0.0.1");
    check(listen(listener.get(), 1), "listen");
    check(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
    descriptor first = checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    check(connect(first.get(), reinterpret_cast<sockaddr*>(&address), size), "connect to 127.0.0.1");
    descriptor second = checked(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK), "accept");
    int flags = fcntl(first.get(), F_GETFL);
    check(fcntl(first.get(), F_SETFL, flags | O_NONBLOCK), "fcntl");
    for (const descriptor* end : {&first, &second}) {
        const int on = 1;
        check(setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
    }
    return {std::move(first), std::move(second)};
}

struct socket_side {
    int socket, rank;
    bool own_core;

    void run(bench::job what, std::span<float> in, std::span<float> out, std::uint32_t) const {
        if (what != bench::job::all_gather) return;
        const std::size_t bytes = in.size_bytes(), other = static_cast<std::size_t>(1 - rank);
        const char* from = reinterpret_cast<const char*>(in.data());
        char* to = reinterpret_cast<char*>(out.data()) + other * bytes;
        std::size_t sent = 0, received = 0;
        while (sent < bytes || received < bytes) {
            const bool moved =
                step(sent, bytes, [&] { return send(socket, from + sent, bytes - sent, MSG_NOSIGNAL); }) +
                    step(received, bytes, [&] { return recv(socket, to + received, bytes - received, 0); }) >
                0;
            if (!moved && !own_core) {  // with a core of its own the rank spins
                pollfd wanted{
                    socket, static_cast<short>((sent < bytes ? POLLOUT : 0) | (received < bytes ? POLLIN : 0)), 0};
                poll(&wanted, 1, 1000);
            }
        }
    }
    /// Copies the rank's own block, outside the timed part.
    void finish(bench::job what, std::span<const float> in, std::span<float> out) const {
        if (what == bench::job::all_gather)
            std::memcpy(out.data() + static_cast<std::size_t>(rank) * in.size(), in.data(), in.size_bytes());
    }
    std::string chosen(bench::job, std::size_t, std::uint32_t) const { return {}; }

private:
    template <class Call>
    static int step(std::size_t& done, std::size_t all, Call call) {
        if (done == all) return 0;
        const ssize_t moved = call();
        if (moved > 0) {
            done += static_cast<std::size_t>(moved);
            return 1;
        }
        if (moved == 0) throw std::runtime_error("the other rank has closed its socket");
        if (errno != EAGAIN && errno != EINTR) throw std::system_error(errno, std::generic_category(), "send or recv");
        return 0;
    }
};

void rank_main(char** argv, int rank, int socket) {
    bench::shared_control shared(argv[1], false);
    const std::size_t count = std::strtoull(argv[3], nullptr, 10) / sizeof(float);
    const bench::buffer in(count), out(count);
    bench::serve(*shared, std::atoi(argv[2]), rank, in.first(count), out.first(count),
        socket_side{socket, rank, shared->cores >= 2});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fputs("usage: side_sockets CONTROL SIDE LARGEST  (started by compare; two ranks, all_gather)\n", stderr);
        return 2;
    }
    try {
        auto ends = connected();
        return bench::run_ranks("side_sockets", 2, [&](int rank) {
            ends[rank == 0 ? 1 : 0].close();
            rank_main(argv, rank, ends[static_cast<std::size_t>(rank)].get());
        });
    } catch (const std::exception& e) {
        std::fprintf(stderr, "side_sockets: %s\n", e.what());
        return 1;
    }
}
