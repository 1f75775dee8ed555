// Point-to-point messages, and how operations in flight move on.
#pragma once

#include <colls/mailbox.hpp>

namespace colls::inline v1 {
namespace detail {

/// A send waits until its receiver has copied the data straight out of the sender's buffer: one copy in all.
/// Messages of one ordered pair of ranks match in order; one is offered at a time.
inline bool advance_message(endpoint& e, operation_state& o) {
    const bool sends = o.kind == operation_kind::send;
    const int peer = o.site.peer;
    pair_line& l = sends ? e.memory.pair(e.rank, peer) : e.memory.pair(peer, e.rank);
    const std::uint64_t index = o.sequence;
    activate(e);
    if (sends) {
        if (o.at == 0) {
            if (l.taken.load(std::memory_order_acquire) < index) return false;
            l.data = o.request.in;
            l.bytes = o.request.count * o.request.element;
            l.type = o.request.signature;
            l.posted.store(index + 1, std::memory_order_release);
            o.at = 1;
        }
        if (l.taken.load(std::memory_order_acquire) <= index) return false;
    } else {
        if (l.posted.load(std::memory_order_acquire) <= index) return false;
        const std::size_t bytes = o.request.count * o.request.element;
        if (l.bytes != bytes || l.type != o.request.signature)
            fail(e, errc::mismatch, o.site,
                         message() << "expects " << bytes << " bytes, rank " << peer << " sends " << l.bytes
                           << (l.bytes == bytes ? " of another type" : ""));
        copy_bytes(o.request.out, l.data, bytes);
        l.taken.store(index + 1, std::memory_order_release);
    }
    o.done = true;
    return true;
}

inline bool advance(endpoint& e, operation_state& o) {
    if (o.done) return true;
    return o.kind == operation_kind::collective ? runner(e, o).advance() : advance_message(e, o);
}

inline void rest(endpoint& e) { e.memory.state(e.rank).active.store(0, std::memory_order_release); }

/// Advances whatever is in flight, in this group and the thread's others, so that ranks may wait in different orders.
COLLS_ENGINE void progress(endpoint& e) {
    endpoint* x = &e;
    do {
        for (std::size_t i = 0; i < x->in_flight.size();)
            if (advance(*x, *x->in_flight[i]))
                x->in_flight.drop(i);
            else
                ++i;
        if (x != &e) rest(*x);
        x = x->next;
    } while (x != &e);
}

[[gnu::cold]] inline void operator_threw(endpoint& e, const char* what) {
    poison(e.memory, errc::peer_failed, e.rank, none, none,
           (message() << "colls: rank " << e.rank << " in " << what << ": the operator threw").text());
    leave(e);
}
/// Runs f, which may throw from a user's operator: the others must not wait for this rank then.
template <class F>
void guarded(endpoint& e, operation_state& o, F f) {
    try {
        f();
    } catch (const error&) {
        rest(e);   // of another group's operation, perhaps
        throw;
    } catch (...) {
        operator_threw(e, o.site.what);
        throw;
    }
}
inline void wait_until_done(endpoint& e, operation_state& o) {
    guarded(e, o, [&] {
        patience wait(e);
        while (!advance(e, o)) wait(o.site);
    });
    rest(e);
}

}  // namespace detail
}  // namespace colls::inline v1
