// Point-to-point messages, and how operations in flight move on.
#pragma once

#include <colls/mailbox.hpp>

namespace colls::inline v1 {
namespace detail {

/// A send waits until its receiver has copied the data. Where the receiver can reach the sender's buffer, straight out of it:
/// one copy in all; else piece by piece, through two of them that it can reach. Messages of one ordered pair of ranks match
/// in order; one is on its way at a time.
inline bool advance_message(endpoint& e, operation_state& o) {
    constexpr std::size_t staged_piece = std::size_t{128} << 10;
    const bool sends = o.kind == operation_kind::send;
    const int peer = o.site.peer;
    pair_line& l = sends ? e.memory.pair(e.rank, peer) : e.memory.pair(peer, e.rank);
    message_count& count = (sends ? e.sent : e.received)[peer];
    if (count.over != o.sequence) return false;
    activate(e);
    const std::size_t bytes = o.request.count * o.request.element;
    std::uint64_t posted = l.posted.load(std::memory_order_acquire), taken = l.taken.load(std::memory_order_acquire);
    const auto part = [&] {   // the next piece
        const std::size_t from = o.chunk * l.piece;
        return extent{from, bytes - from < l.piece ? bytes - from : l.piece};
    };
    const auto pieces = [&] { return l.piece < bytes ? (bytes + l.piece - 1) / l.piece : 1; };
    if (sends) {
        const bool reached = bytes == 0 || e.shares(o.request.in, bytes);
        if (o.chunk == 0) {
            l.bytes = bytes;
            l.type = o.request.signature;
            l.piece = reached || bytes < staged_piece ? bytes : staged_piece;
            if (!reached && o.scratch.at == nullptr) take_scratch(e, o, 2 * l.piece);
        }
        for (; o.chunk < pieces() && posted < taken + 2; ++o.chunk) {
            const extent p = part();
            const std::byte* from = o.request.in + p.first;
            if (!reached) {
                std::byte* const copy = o.scratch.at + posted % 2 * l.piece;
                copy_bytes(copy, from, p.count);
                from = copy;
            }
            l.data[posted % 2] = e.told(from);
            l.posted.store(++posted, std::memory_order_release);
        }
        if (o.chunk < pieces() || taken < posted) return false;
        if (o.scratch.at) e.pieces.push_back(o.scratch);
        o.scratch = {};
    } else {
        for (; taken < posted; ++o.chunk) {
            if (l.bytes != bytes || l.type != o.request.signature)
                fail(e, errc::mismatch, o.site,
                     message() << "expects " << bytes << " bytes, rank " << peer << " sends " << l.bytes
                               << (l.bytes == bytes ? " of another type" : ""));
            const extent p = part();
            const bool last = o.chunk + 1 == pieces();
            copy_bytes(o.request.out + p.first, e.here<const std::byte>(l.data[taken % 2]), p.count);
            l.taken.store(++taken, std::memory_order_release);
            if (!last) continue;
            o.done = true;
            break;
        }
        if (!o.done) return false;
    }
    ++count.over;
    o.done = true;
    return true;
}

inline bool advance(endpoint& e, operation_state& o) {
    if (o.done) return true;
    if (e.by_messages) return e.via->advance(e, o);
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
    break_group(e, errc::peer_failed, none, none,
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
