// Messages between two ranks: send, recv, recv_any, exchange.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/perform/started_operation.hpp>

#include <exception>

namespace colls::inline v1::detail {

constexpr const char* name_of_message(operation_kind kind) { return kind == operation_kind::send ? "send" : "recv"; }

/// Throws invalid_argument unless the peer is in range and the buffer is not null.
inline void check_message(const rank_context& e, operation_kind kind, const call& c, int peer, const char* what) {
    const std::byte* const data = kind == operation_kind::send ? c.in : c.out;
    if (peer >= 0 && peer < e.size && (data != nullptr || c.count == 0)) return;
    message text;
    text << "colls: rank " << e.rank << " in " << what << ": ";
    if (data != nullptr || c.count == 0)
        put_out_of_range(text, "peer", peer, e.size);
    else
        text << "the buffer of " << c.count << " elements is null";
    throw error(errc::invalid_argument, text.text(), e.rank, peer);
}
/// Throws invalid_argument where a blocking message of this rank to itself would wait for ever: for the other half,
/// which this rank has not started.
inline void check_own_message(const rank_context& e, operation_kind kind, const char* what) {
    const bool sends = kind == operation_kind::send;
    const auto begun = [&](const list<message_count>& of) { return of.empty() ? 0 : of[e.rank].begun; };
    if (sends ? begun(e.received) > begun(e.sent) : begun(e.sent) > begun(e.received)) return;
    throw error(errc::invalid_argument,
        (message() << "colls: rank " << e.rank << " in " << what << ": a message to itself would never "
                   << (sends ? "be received" : "come") << ": start the " << (sends ? "receive" : "send")
                   << " first, with start::" << (sends ? "recv" : "send"))
            .text(),
        e.rank, e.rank);
}

/// A rank that has begun to send a message to this one for which no receive has begun, while no other receive from it
/// is under way; or none. The search begins after the rank that was found last, so that each has its turn.
inline int find_sender(rank_context& e) {
    e.backend->ask_for_messages(e);
    for (int i = 0; i < e.size; ++i) {
        const int r = (e.next_source + i) % e.size;
        if (!e.received.empty() && e.received[r].begun != e.received[r].over) continue;
        if (!e.backend->announced(e, r)) continue;
        e.next_source = (r + 1) % e.size;
        return r;
    }
    return none;
}
/// Waits until there is such a rank. Fails where all others have left the group and none of them has sent a message.
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
            // What a rank has sent it sent before it left: so one more look, now that all have left.
            if (turns % 64 == 0 && alone() && (from = find_sender(e)) == none)
                fail(e, errc::peer_failed, at,
                    message() << "all other ranks have left the group, and no message is on its way");
            if (from != none) break;
            wait(at);
        }
    });
    return from;
}

inline operation_state* begin_checked_message(
    rank_context& e, operation_kind kind, const call& c, int peer, bool non_blocking) {
    if (c.packed) c.packed->pack();
    auto taken = take_idle<operation_state>(e.idle_messages, [&] { return e.backend->make_message(e); });
    operation_state& o = *taken;
    o.kind = kind;
    o.arguments = c;
    o.arguments.non_blocking = non_blocking;
    o.site = {peer, none, name_of_message(kind), {}, 0, no_call};
    auto& counters = kind == operation_kind::send ? e.sent : e.received;
    if (counters.empty()) counters.resize(static_cast<std::size_t>(e.size));
    o.sequence = counters[peer].begun++;
    o.now = {};
    o.done = false;
    o.begin();
    o.traced_from = traces(e) ? begin_trace(e) : 0;
    hand_to_caller(e, *taken.release());
    if (kind == operation_kind::send && !e.by_messages) {
        // Offered now, so that its receiver may copy it whatever this rank does next.
        try {
            guarded(e, o.site.what, [&] { o.advance(); });
        } catch (...) {
            release_operation(e, o);
            throw;
        }
    }
    return &o;
}

COLLS_INLINE operation_state* begin_message(rank_context& e, operation_kind kind, const call& c, int peer) {
    const progress_lock mine(e);
    check_message(e, kind, c, peer, name_of_message(kind));
    return begin_checked_message(e, kind, c, peer, true);
}
COLLS_INLINE void perform_message(rank_context& e, operation_kind kind, const call& c, int peer) {
    operation_state* o = nullptr;
    {
        const progress_lock mine(e);
        check_message(e, kind, c, peer, name_of_message(kind));
        if (peer == e.rank) check_own_message(e, kind, name_of_message(kind));
        o = begin_checked_message(e, kind, c, peer, false);
    }
    wait_operation(e, o);
}
COLLS_INLINE void perform_exchange(rank_context& e, const call& sent, int to, const call& received, int from) {
    {
        const progress_lock mine(e);
        check_message(e, operation_kind::send, sent, to, "exchange");
        check_message(e, operation_kind::recv, received, from, "exchange");
        if (overlaps(sent.in, sent.count * sent.element, received.out, received.count * received.element))
            throw error(errc::invalid_argument,
                (message() << "colls: rank " << e.rank << " in exchange: the two buffers overlap").text(), e.rank);
    }
    const auto begun = [&](operation_kind kind, const call& c, int peer) {
        const progress_lock mine(e);
        return begin_checked_message(e, kind, c, peer, false);
    };
    operation_state *receives = begun(operation_kind::recv, received, from), *sends = nullptr;
    try {
        sends = begun(operation_kind::send, sent, to);
    } catch (...) {
        finish_operation(e, receives, true);
        throw;
    }
    // Both, whatever becomes of one: then the buffers are the caller's again.
    std::exception_ptr first;
    for (operation_state** const o : {&receives, &sends}) try {
            wait_operation(e, *o);
        } catch (...) {
            if (!first) first = std::current_exception();
        }
    if (first) std::rethrow_exception(first);
}
COLLS_INLINE int probe_any(rank_context& e) {
    const progress_lock mine(e);
    int from = none;
    guarded(e, "probe_any", [&] {
        progress(e);
        from = find_sender(e);
        if (from != none) return;
        e.backend->look(e, nullptr, 0);
        if (e.memory.poison().state.load(std::memory_order_acquire) == 0) return;
        leave(e);
        throw_poison(e);
    });
    return from;
}
COLLS_INLINE int perform_recv_any(rank_context& e, const call& c) {
    operation_state* o = nullptr;
    int from = none;
    {
        const progress_lock mine(e);
        check_message(e, operation_kind::recv, c, e.rank, "recv_any");
        if (e.size == 1) check_own_message(e, operation_kind::recv, "recv_any");
        from = wait_for_sender(e);
        o = begin_checked_message(e, operation_kind::recv, c, from, false);
    }
    wait_operation(e, o);
    return from;
}

}  // namespace colls::inline v1::detail
