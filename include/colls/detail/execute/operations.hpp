// Point-to-point messages, and how operations in flight move on.
#pragma once

#include <colls/detail/execute/eager.hpp>

namespace colls::inline v1 {
namespace detail {

/// A send waits until its receiver has copied the data. Where the receiver can reach the sender's buffer, straight out
/// of it: one copy in all; else piece by piece, through two of them that it can reach. Messages of one ordered pair of
/// ranks match in order; one is on its way at a time.
inline bool advance_message(rank_context& e, operation_state& o) {
    constexpr std::size_t staged_piece = std::size_t{128} << 10;
    const bool sends = o.kind == operation_kind::send;
    const int peer = o.site.peer;
    pair_line& l = sends ? e.memory.pair(e.rank, peer) : e.memory.pair(peer, e.rank);
    message_count& count = (sends ? e.sent : e.received)[peer];
    if (count.over != o.sequence) return false;
    activate(e);
    const std::size_t bytes = o.request.count * o.request.element;
    std::uint64_t posted = l.posted.load(std::memory_order_acquire), taken = l.taken.load(std::memory_order_acquire);
    const auto part = [&] {  // the next piece
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
            confirm(e, o.site);
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

inline bool advance(rank_context& e, operation_state& o) {
    if (o.done) return true;
    if (e.by_messages) return e.backend->advance(e, o);
    return o.kind == operation_kind::collective ? direct_executor(e, o).advance() : advance_message(e, o);
}

inline void no_longer_active(rank_context& e) {
    auto& active = e.memory.state(e.rank).active;
    if (active.load(std::memory_order_relaxed) != 0) active.store(0, std::memory_order_release);
}

/// In a handler: the library's own errors have broken the group; for any other exception, of an operator or for want of
/// memory, it is broken here, so that no rank waits for this one.
[[gnu::cold]] inline void call_threw(rank_context& e, const char* what) {
    if (e.memory.poison().state.load(std::memory_order_seq_cst) == 0) {
        message text;
        text << "colls: rank " << e.rank << " in " << what << ": ";
        try {
            throw;
        } catch (const std::bad_alloc&) {
            text << "there is no more memory";
        } catch (const error& x) {
            text << quoted(x.what());
        } catch (const std::exception& x) {
            text << "the operator threw: " << x.what();
        } catch (...) {
            text << "the operator threw";
        }
        break_group(e, errc::peer_failed, none, none, text.text());
    }
    leave(e);
}

inline void advance_all(rank_context& e) {
    for (std::size_t i = 0; i < e.in_flight.size();)
        if (advance(e, *e.in_flight[i]))
            e.in_flight.drop(i);
        else
            ++i;
}
/// Advances whatever is in flight, in this group and the thread's others, so that ranks may wait in different orders.
/// What goes wrong in another group breaks that one, and comes out of its own next call: here it would leave this group
/// whole, and its peers at buffers that the caller is about to give up.
#ifndef COLLS_SEPARATE
COLLS_INLINE void progress(rank_context& e) {
    advance_all(e);
    for (rank_context* x = e.next; x != &e; x = x->next) {
        if (x->in_flight.empty() || x->memory.poison().state.load(std::memory_order_relaxed) != 0) continue;
        try {
            advance_all(*x);
        } catch (...) {
            call_threw(*x, "an operation in flight");
        }
        no_longer_active(*x);
    }
}
#endif

/// Runs f, which may throw from a user's operator: the others must not wait for this rank then. However it ends, this
/// rank is at nobody's memory after.
template <class F>
void guarded(rank_context& e, const char* what, F f) {
    try {
        f();
    } catch (...) {
        call_threw(e, what);
        no_longer_active(e);
        throw;
    }
    no_longer_active(e);
}
inline void wait_until_done(rank_context& e, operation_state& o) {
    const struct waiting {
        rank_context& e;
        ~waiting() { e.current = nullptr; }
    } here{e};
    e.current = &o;
    guarded(e, o.site.what, [&] {
        backoff wait(e);
        while (!advance(e, o)) wait(o.site);
    });
}

/// A rank that has begun to send a message to this one for which no receive has been begun, while no other receive from
/// it is under way; or none. The search begins behind the rank that was found before, so that none is kept waiting by
/// the others.
inline int find_sender(rank_context& e) {
    if (e.by_messages) e.backend->ask_for_messages(e);
    for (int i = 0; i < e.size; ++i) {
        const int r = (e.next_source + i) % e.size;
        if (!e.received.empty() && e.received[r].begun != e.received[r].over) continue;
        const pair_line& l = e.memory.pair(r, e.rank);
        if (e.by_messages ? !e.backend->announced(e, r)
                          : l.posted.load(std::memory_order_acquire) == l.taken.load(std::memory_order_relaxed))
            continue;
        e.next_source = (r + 1) % e.size;
        return r;
    }
    return none;
}
inline int wait_for_sender(rank_context& e) {
    const wait_site at{.what = "recv_any", .fingerprint = no_call};
    const auto alone = [&] {
        for (int r = 0; r < e.size; ++r)
            if (r != e.rank && e.memory.state(r).gone.load(std::memory_order_acquire) == 0) return false;
        return true;
    };
    int from = none;
    guarded(e, at.what, [&] {
        progress(e);  // this rank may be sending to itself
        backoff wait(e);
        for (unsigned turns = 1; (from = find_sender(e)) == none; ++turns) {
            // A rank that has left had sent what it sent: once more, for what came between.
            if (turns % 64 == 0 && alone() && (from = find_sender(e)) == none)
                fail(e, errc::peer_failed, at,
                    message() << "all other ranks have left the group, and no message is on its way");
            if (from != none) break;
            wait(at);
        }
    });
    return from;
}

}  // namespace detail
}  // namespace colls::inline v1
