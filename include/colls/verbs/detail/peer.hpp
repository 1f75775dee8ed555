// One peer of a rank over verbs: the queue pair, the messages both ways, and whether the peer has left.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
#pragma once

#include <colls/verbs/detail/connection.hpp>
#include <colls/verbs/detail/receiver.hpp>
#include <colls/verbs/detail/sender.hpp>

namespace colls::inline v1::detail::rdma {

/// Whether a peer has said that it leaves the group.
enum class departure : std::uint8_t {
    none,
    announced,  ///< over the control transport; messages that it has sent before are still to arrive
    reported    ///< the listener has been told
};

struct peer {
    peer(rank_resources& own, int n)
        : number(n), queue_pair(own), out(own, queue_pair), in(own, queue_pair, n), own_(own) {}
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;

    const int number;  ///< its rank
    connection queue_pair;
    sender out;
    receiver in;

    bool has_work = false;  ///< it is in the transport's list of peers to write to
    bool lost = false;      ///< the control transport has reported it lost
    departure leaving = departure::none;
    double announced_at = 0;
    bool closing = false;  ///< it has closed its queue pair, and said how many messages it has sent
    std::uint64_t messages_in_all = 0;

    /// Whether something is to be written.
    bool has_to_write() const { return !out.empty() || in.has_notices() || in.owes_credits(); }
    /// Takes completions, and what they announce. Returns whether there were any. The listener may be told of a
    /// mismatch, and close the queue pair.
    bool poll();
    /// Polls, moves what has arrived, and counts what has left. Returns whether there were completions.
    bool serve();
    /// Wants a signal, or queues an offer, where a message has waited long. Returns whether something is to be written.
    bool check_clock();
    /// Writes whatever can go now, with one doorbell.
    void write() {
        if (!queue_pair.writable()) return;
        in.write_notices();
        out.write();
        queue_pair.post(in.owes_credits());
        out.count_left();
    }
    /// Forgets all messages.
    void clear() {
        in.clear();
        out.clear();
    }
    void take_closing(std::uint64_t messages, std::uint64_t arrived) {
        closing = true;
        messages_in_all = messages;
        queue_pair.take_credits({0, 0, arrived});
        out.count_left();
    }

private:
    bool take(std::uint32_t immediate);
    void take_notice(const placement_notice& n);

    rank_resources& own_;
};

inline bool peer::poll() {
    completion all[32];
    bool any = false;
    for (int round = 0; round < 8; ++round) {
        const int n = queue_pair.poll(all, 32);
        any = any || n > 0;
        for (int i = 0; i < n; ++i) {
            const completion& c = all[i];
            switch (c.what) {
                case completion::sent:
                    queue_pair.completed(c.id);
                    break;
                case completion::arrived:
                    queue_pair.receive_used();
                    if (!take(c.immediate)) queue_pair.fail(protocol_violation, nullptr, true);
                    break;
                case completion::failed:
                    queue_pair.fail("a work request ended with status", c.status, !c.secondary);
                    break;
            }
            if (!queue_pair.has_queue()) return any;
        }
        if (n < 32) break;
    }
    queue_pair.renew_receives();
    return any;
}

// Takes what a write of the peer announces. False: it does not follow the protocol.
inline bool peer::take(std::uint32_t immediate) {
    switch (kind_of(immediate)) {
        case write_kind::slot:
            return in.slot_arrived(immediate);
        case write_kind::direct:
            in.consume();  // earlier messages
            return in.direct_arrived(immediate);
        case write_kind::notice: {
            placement_notice n;
            if (!in.notice_arrived(immediate, n)) return false;
            take_notice(n);
            return true;
        }
    }
    return false;
}
inline void peer::take_notice(const placement_notice& n) {
    switch (n.kind) {
        case notice_kind::direct:
        case notice_kind::by_slots:
            return out.grant(n);
        case notice_kind::offer:
            return in.offered(n.what);
        case notice_kind::discard:
            return out.discard();
    }
}

inline bool peer::serve() {
    const bool any = poll();
    if (!queue_pair.has_queue()) return any;
    queue_pair.read_counters();
    out.count_left();
    in.consume();
    return any;
}
inline bool peer::check_clock() {
    if (!out.is_waiting() || own_.turn % 8 != 0) return false;  // reading the clock takes time
    const sender::overdue o = out.check_clock(seconds_now());
    if (o.offer) in.queue(out.offer());
    return o.signal || o.offer;
}

}  // namespace colls::inline v1::detail::rdma
