// A socket that a tcp_node watches, and the list of all such sockets of this process, which a forked child closes.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/socket.hpp>
#include <colls/schedule.hpp>

#include <pthread.h>
#include <mutex>

namespace colls::inline v1::detail {

/// A socket that a tcp_node watches. Edge-triggered: `readable` and `writable` stay set until a call on the socket says
/// that it would block.
struct watched_socket {
    descriptor fd;
    watched_socket *previous = nullptr, *next = nullptr;  ///< in open_sockets
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
        const std::lock_guard lock(mutex_);
        s.previous = nullptr;
        s.next = first_;
        if (first_) first_->previous = &s;
        first_ = &s;
    }
    void remove(watched_socket& s) {
        const std::lock_guard lock(mutex_);
        if (s.previous == nullptr && first_ != &s) return;  // not in the list
        (s.previous ? s.previous->next : first_) = s.next;
        if (s.next) s.next->previous = s.previous;
        s.previous = s.next = nullptr;
    }

private:
    open_sockets() {
        pthread_atfork([] { all().mutex_.lock(); }, [] { all().mutex_.unlock(); }, [] { all().close_in_child(); });
    }
    // Runs with the lock that the parent took before the fork.
    void close_in_child() {
        for (watched_socket* s = first_; s != nullptr; first_ = s = s->next) s->fd.close();
        mutex_.unlock();
    }

    std::mutex mutex_;
    watched_socket* first_ = nullptr;
};

}  // namespace colls::inline v1::detail
