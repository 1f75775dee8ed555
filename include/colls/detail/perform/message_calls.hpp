// Messages between two ranks: send, recv, recv_any, exchange.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/perform/started_operation.hpp>
#include <colls/detail/support/rank_error.hpp>

namespace colls::inline v1::detail {

constexpr const char* name_of_message(operation_kind kind) { return kind == operation_kind::send ? "send" : "recv"; }

/// Throws invalid_argument unless the peer is in range and the buffer can be one.
inline void check_message(const rank_context& self, operation_kind kind, const call& c, int peer, const char* what) {
    const std::byte* const data = kind == operation_kind::send ? c.in : c.out;
    const bool is_memory = capped_product(c.count, c.element) <= longest_memory;
    const bool is_there = data != nullptr || c.count == 0;
    if (peer >= 0 && peer < self.size && is_memory && is_there) return;
    throw_in_call(self.rank, what, errc::invalid_argument,
        !is_memory ? longer_than_memory(c.count, c.element)
        : is_there ? out_of_range("peer", peer, self.size)
                   : error_text() << "the buffer of " << c.count << " elements is null",
        peer);
}
/// Throws invalid_argument where a blocking message of this rank to itself would wait for ever: for the other half,
/// which this rank has not started.
inline void check_own_message(const rank_context& self, operation_kind kind, const char* what) {
    const bool sends = kind == operation_kind::send;
    const auto begun = [&](const list<message_count>& of) { return of.empty() ? 0 : of[self.rank].begun; };
    if (sends ? begun(self.messages.received) > begun(self.messages.sent)
              : begun(self.messages.sent) > begun(self.messages.received))
        return;
    throw_in_call(self.rank, what, errc::invalid_argument,
        error_text() << "a message to itself would never " << (sends ? "be received" : "come") << ": start the "
                     << (sends ? "receive" : "send") << " first, with start::" << (sends ? "recv" : "send"),
        self.rank);
}

/// A rank that has begun to send a message to this one for which no receive has begun, while no other receive from it
/// is under way; or none. The search begins after the rank that was found last, so that each has its turn.
inline int find_sender(rank_context& self) {
    self.backend->ask_for_messages(self);
    for (int i = 0; i < self.size; ++i) {
        const int r = (self.messages.next_source + i) % self.size;
        if (!self.messages.received.empty() && self.messages.received[r].begun != self.messages.received[r].over)
            continue;
        if (!self.backend->announced(self, r)) continue;
        self.messages.next_source = (r + 1) % self.size;
        return r;
    }
    return none;
}
/// Waits until there is such a rank. Fails where all others have left the group and none of them has sent a message.
inline int wait_for_sender(rank_context& self) {
    const wait_site at{.what = "recv_any", .fingerprint = no_call};
    const auto alone = [&] {
        for (int r = 0; r < self.size; ++r)
            if (r != self.rank && self.memory.state(r).gone.load(std::memory_order_acquire) == 0) return false;
        return true;
    };
    int from = none;
    guarded(self, at.what, [&] {
        progress(self);  // this rank may be sending to itself
        backoff wait(self);
        for (unsigned turns = 1; (from = find_sender(self)) == none; ++turns) {
            // What a rank has sent it sent before it left: so one more look, now that all have left.
            if (turns % 64 == 0 && alone() && (from = find_sender(self)) == none)
                fail(self, errc::peer_failed, at,
                    error_text() << "all other ranks have left the group, and no message is on its way");
            if (from != none) break;
            wait(at);
        }
    });
    return from;
}

inline operation_state* begin_checked_message(
    rank_context& self, operation_kind kind, const call& c, int peer, bool non_blocking) {
    if (c.packed) c.packed->pack();
    auto taken =
        take_idle<operation_state>(self.operations.idle_messages, [&] { return self.backend->make_message(self); });
    operation_state& o = *taken;
    o.kind = kind;
    o.arguments = c;
    o.arguments.non_blocking = non_blocking;
    o.site = {peer, none, name_of_message(kind), {}, 0, no_call};
    auto& counters = kind == operation_kind::send ? self.messages.sent : self.messages.received;
    if (counters.empty()) counters.resize(static_cast<std::size_t>(self.size));
    o.sequence = counters[peer].begun++;
    o.now = {};
    o.done = false;
    o.begin();
    self.status->begin(
        self.status->messages, kind == operation_kind::send ? long_wait::send : long_wait::recv, c.count * c.element);
    o.traced_from = self.trace ? self.trace->begin() : 0;
    hand_to_caller(self, *taken.release());
    if (kind == operation_kind::send && !self.by_messages) {
        // Offered now, so that its receiver may copy it whatever this rank does next.
        try {
            guarded(self, o.site.what, [&] { o.advance(); });
        } catch (...) {
            release_operation(self, o);
            throw;
        }
    }
    return &o;
}

inline operation_state* begin_message(rank_context& self, operation_kind kind, const call& c, int peer) {
    const progress_lock mine(self);
    check_message(self, kind, c, peer, name_of_message(kind));
    return begin_checked_message(self, kind, c, peer, true);
}
inline void perform_message(rank_context& self, operation_kind kind, const call& c, int peer) {
    operation_state* o = nullptr;
    {
        const progress_lock mine(self);
        check_message(self, kind, c, peer, name_of_message(kind));
        if (peer == self.rank) check_own_message(self, kind, name_of_message(kind));
        o = begin_checked_message(self, kind, c, peer, false);
    }
    wait_operation(self, o);
}
inline void perform_exchange(rank_context& self, const call& sent, int to, const call& received, int from) {
    {
        const progress_lock mine(self);
        check_message(self, operation_kind::send, sent, to, "exchange");
        check_message(self, operation_kind::recv, received, from, "exchange");
        if (overlaps(sent.in, sent.count * sent.element, received.out, received.count * received.element))
            throw_in_call(self.rank, "exchange", errc::invalid_argument, error_text() << "the two buffers overlap");
    }
    const auto begun = [&](operation_kind kind, const call& c, int peer) {
        const progress_lock mine(self);
        return begin_checked_message(self, kind, c, peer, false);
    };
    operation_state *receives = begun(operation_kind::recv, received, from), *sends = nullptr;
    try {
        sends = begun(operation_kind::send, sent, to);
    } catch (...) {
        finish_operation(self, receives, true);
        throw;
    }
    // Both, whatever becomes of one: then the buffers are the caller's again.
    joint_wait both;
    for (operation_state** const o : {&receives, &sends}) both.run([&] { wait_operation(self, *o); });
    both.rethrow();
}
inline int probe_any(rank_context& self) {
    const progress_lock mine(self);
    int from = none;
    guarded(self, "probe_any", [&] {
        progress(self);
        from = find_sender(self);
        if (from != none) return;
        self.backend->look(self, nullptr, 0);
        throw_if_broken(self, nullptr, std::memory_order_acquire);
    });
    return from;
}
inline int perform_recv_any(rank_context& self, const call& c) {
    operation_state* o = nullptr;
    int from = none;
    {
        const progress_lock mine(self);
        check_message(self, operation_kind::recv, c, self.rank, "recv_any");
        if (self.size == 1) check_own_message(self, operation_kind::recv, "recv_any");
        from = wait_for_sender(self);
        o = begin_checked_message(self, operation_kind::recv, c, from, false);
    }
    wait_operation(self, o);
    return from;
}

}  // namespace colls::inline v1::detail
