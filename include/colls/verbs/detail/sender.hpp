// Messages to one peer: queued, written into slots or directly to their places, counted when they have left.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
//
// A message's memory may change when the device has taken it along with the request (inlined), a later request of its
// queue is known to be done, or the peer says that the message has arrived. So few requests are signalled: the last of
// an operation that reads a caller's memory, one of many others, and, if a message has not left after a moment, one
// more. Of other messages that are read where they lie the peer is asked to say so, with whatever it writes next, or by
// itself if that is nothing.
#pragma once

#include <colls/verbs/detail/connection.hpp>

#include <algorithm>
#include <cstring>

namespace colls::inline v1::detail::rdma {

class sender {
public:
    sender(rank_resources& own, connection& to) : own_(own), to_(to) {}
    sender(const sender&) = delete;
    sender& operator=(const sender&) = delete;

    /// The number of the next message. The caller pushes it, unless nothing goes to the peer any more.
    std::uint64_t take_number() { return posted_++; }
    void push(const message_label& label, const piece* pieces, int count);
    /// No message follows in this operation: the last one is to be signalled, or what went before if there is none.
    void request_completion() {
        if (queued_.empty())
            to_.want_signal_if_needed();  // nothing, or notices alone
        else
            queued_[queued_.size() - 1].last = true;
    }
    /// Appends to the chain all messages, and parts of the next one, that can go now.
    void write();
    /// Counts the messages that have left.
    void count_left();
    /// Number of messages that have left: their memory may change.
    std::uint64_t left() const { return discarded() ? posted_ : left_; }
    /// Number of messages that are in requests as a whole.
    std::uint64_t lowered() const { return lowered_; }
    bool empty() const { return queued_.empty(); }
    /// Forgets what is queued or under way.
    void clear();

    // ---- what the peer says

    /// Where a message may land.
    void grant(const placement_notice& n) {
        if (n.what.number >= lowered_) granted_.push(n);
    }
    /// The peer throws away whatever is still sent.
    void discard() {
        reception_ = reception::discarded;
        queued_.clear();
        pieces_.clear();
        route_ = route::undecided;
    }
    bool discarded() const { return reception_ == reception::discarded; }

    // ---- timers

    /// Whether a message waits for its place, or to have left.
    bool is_waiting() const { return awaits_place() || awaits_completion(); }
    struct overdue {
        bool signal = false, offer = false;
    };
    /// Wants a signal where a message waits to have left since `signal_after`. Says whether it does, and whether an
    /// offer is due, since the front message waits for its place since `offer_after`.
    overdue check_clock(double now);
    /// The notice that tells the peer what the front message is. Called once a message.
    placement_notice offer();

private:
    struct message {
        message_label label;
        std::uint64_t bytes;
        bool direct;  // large, or in a GPU's memory, and all of it registered
        bool last;    // of an operation
    };
    /// A message that is in requests, and has not left.
    struct flight {
        std::uint64_t end;  // the request behind its last
        bool reads_caller;  // the device reads a caller's memory for it
    };
    /// How the front message goes.
    enum class route : std::uint8_t {
        undecided,       // it has not begun, or goes directly to its place
        awaiting_place,  // the peer has not said where it may land
        offered,         // the same, and the peer has been told what the message is
        slots            // through the ring
    };
    /// Whether the peer takes the messages.
    enum class reception : std::uint8_t {
        expected,
        mismatched,  // its notice is for another message: all go by slots, and the peer reports the mismatch
        discarded    // it throws them away
    };

    bool awaits_place() const { return route_ == route::awaiting_place && !queued_.empty(); }
    bool awaits_completion() const { return !discarded() && !flights_.empty() && to_.reads_unsignalled(); }
    bool write_front();
    void write_slot(const message& m, std::uint32_t bytes);
    bool write_direct(const message& m, const placement_notice& where);
    void finish_front(const message& m);

    rank_resources& own_;
    connection& to_;
    fifo<message> queued_;
    piece_queue pieces_;
    fifo<flight> flights_;
    fifo<placement_notice> granted_;
    std::uint64_t posted_ = 0, lowered_ = 0, left_ = 0;  // messages
    reception reception_ = reception::expected;
    // The front message.
    route route_ = route::undecided;
    std::uint64_t in_requests_ = 0;                                  // bytes
    bool reads_caller_ = false;                                      // requests read it where it lies
    double place_awaited_since_ = 0, completion_awaited_since_ = 0;  // 0: not checked yet
};

inline void sender::push(const message_label& label, const piece* pieces, int count) {
    const std::uint64_t bytes = sum_of(pieces, count);
    const bool direct =
        own_.in_gpu(pieces, count) ||
        (bytes > own_.shape.slot_bytes && bytes >= least_direct_piece * static_cast<std::uint64_t>(count) &&
            own_.registered(pieces, count));
    queued_.push({label, bytes, direct, false});
    pieces_.push(pieces, count);
}

inline void sender::write() {
    while (!queued_.empty() && write_front()) {}
}

// Appends the front message, or as much of it as can go. False: not all of it.
inline bool sender::write_front() {
    const message m = queued_.front();
    if (m.direct && route_ != route::slots && reception_ != reception::mismatched) {
        if (granted_.empty() || granted_.front().what.number != lowered_) {
            if (route_ == route::undecided) {
                route_ = route::awaiting_place;
                place_awaited_since_ = 0;
            }
            return false;
        }
        route_ = route::undecided;
        const placement_notice where = granted_.front();
        if (!(where.what.label() == m.label && where.what.bytes == m.bytes)) reception_ = reception::mismatched;
        if (where.kind == notice_kind::direct && reception_ != reception::mismatched) {
            if (!write_direct(m, where)) return false;
            finish_front(m);
            return true;
        }
        route_ = route::slots;
    }
    do {
        if (to_.failed()) return false;
        const auto bytes =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(m.bytes - in_requests_, own_.shape.slot_bytes));
        const std::uint64_t most = to_.limits().bytes;
        if (!to_.slot_free() || !to_.room((sizeof(message_header) + bytes + most - 1) / most)) return false;
        write_slot(m, bytes);
        route_ = route::slots;
    } while (in_requests_ < m.bytes);
    finish_front(m);
    return true;
}
inline void sender::finish_front(const message& m) {
    if (m.last) {
        if (to_.needs_signal()) to_.signal(to_.latest());
    } else if (reads_caller_) {
        to_.latest().immediate |= acknowledgement_wanted;
    }
    flights_.push({to_.next(), reads_caller_});
    queued_.pop();
    ++lowered_;
    while (!granted_.empty() && granted_.front().what.number < lowered_) granted_.pop();
    in_requests_ = 0;
    route_ = route::undecided;
    reads_caller_ = false;
}

// Appends the next `bytes` of the front message, 0 if it is empty, as a slot: by one request, or as many as the device
// needs.
inline void sender::write_slot(const message& m, std::uint32_t bytes) {
    const std::size_t at = own_.layout.slot_at(to_.slots_written());
    std::byte* const staged = to_.outbound(at);
    const message_header h{
        m.label.fingerprint, m.label.sequence, lowered_, m.bytes, m.label.part, bytes, to_.tell_taken()};
    std::memcpy(staged, &h, sizeof h);
    const std::size_t whole = sizeof h + bytes;
    const bool inlined = whole <= to_.limits().inlined && whole <= to_.limits().bytes && own_.native(pieces_, bytes);
    // The device reads the data where it lies, if that is registered.
    auto& from = own_.pieces;
    from.clear();
    from.push_back({staged, sizeof h, to_.local_key()});
    std::uint32_t found = 0;
    for (std::size_t i = 0; found < bytes && from.size() < to_.limits().gathers; ++i) {
        const piece& p = pieces_[i];
        const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(p.bytes, bytes - found));
        const region where = inlined ? region{} : own_.registry->find(p.data, part);
        if (!inlined && where.bytes == 0) break;
        from.push_back({p.data, part, where.local});
        found += part;
    }
    const bool reads = found == bytes && !inlined && bytes > 0;
    if (found == bytes) {
        pieces_.skip(bytes);
    } else {
        if (!own_.native(pieces_, bytes)) return to_.fail(not_native, nullptr, true);
        from.assign(1, {staged, static_cast<std::uint32_t>(whole), to_.local_key()});
        pieces_.copy_out(staged + sizeof h, bytes);
        own_.copied.out += bytes;
    }
    std::size_t i = 0;
    std::uint32_t used = 0;  // of from[i]
    for (std::size_t done = 0; done < whole;) {
        write_request& r = to_.add(at + done, write_kind::slot, to_.slots_written(), inlined);
        const std::size_t most = static_cast<std::size_t>(std::min<std::uint64_t>(whole - done, to_.limits().bytes));
        for (std::size_t taken = 0; taken < most;) {
            const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(from[i].bytes - used, most - taken));
            to_.add_piece(r, from[i].at + used, part, from[i].local);
            taken += part, done += part, used += part;
            if (used == from[i].bytes) ++i, used = 0;
        }
        r.announces = done == whole;
    }
    to_.slot_written();
    if (reads) {
        reads_caller_ = true;
        to_.note_read();
    }
    in_requests_ += bytes;
}

// Appends the front message, or as much of it as the queue has room for, as writes to the receiver's places; its last
// request announces it. A large one is cut over the lanes, and the last request of each announces: the first lane's is
// the last of all. False: not all of it.
inline bool sender::write_direct(const message& m, const placement_notice& where) {
    const auto lanes =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(m.bytes / own_.shape.least_stripe, 1, to_.limits().lanes));
    const std::uint64_t stripe = (m.bytes + lanes - 1) / lanes;
    while (in_requests_ < m.bytes) {
        if (!to_.room(1)) return false;
        // A request writes one contiguous range, which it reads from several pieces.
        std::uint64_t skip = in_requests_;
        std::uint32_t k = 0;
        for (; skip >= where.places[k].bytes; ++k) skip -= where.places[k].bytes;
        const remote_region& to = where.places[k];
        write_request& r = to_.add(0, write_kind::direct, lowered_, false);
        r.to = to.at + skip;
        r.lane = lanes - 1 - static_cast<std::uint32_t>(in_requests_ / stripe);
        r.remote = to.key[r.lane];
        r.immediate |= (lanes - 1) << beside_shift;
        const std::uint64_t most = std::min({to.bytes - skip, to_.limits().bytes, stripe - in_requests_ % stripe});
        std::uint64_t bytes = 0;
        while (r.count < to_.limits().gathers && bytes < most) {
            const piece& p = pieces_[r.count];
            const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(p.bytes, most - bytes));
            to_.add_piece(r, p.data, part, own_.registry->find(p.data, part).at_lane(r.lane).local);
            bytes += part;
        }
        pieces_.skip(bytes);
        in_requests_ += bytes;
        r.announces = in_requests_ == m.bytes || in_requests_ % stripe == 0;
        reads_caller_ = true;
        to_.note_read();
    }
    return true;
}

inline void sender::count_left() {
    while (!flights_.empty()) {
        const flight& f = flights_.front();
        if (!(f.reads_caller ? f.end <= to_.done() || left_ < to_.returned().messages : f.end <= to_.posted())) return;
        flights_.pop();
        ++left_;
        completion_awaited_since_ = 0;
    }
}

inline void sender::clear() {
    queued_.clear();
    pieces_.clear();
    flights_.clear();
    granted_.clear();
}

inline sender::overdue sender::check_clock(double now) {
    // The clock runs from the first look at it.
    const auto passed = [now](double& since, double seconds) {
        const bool first = since == 0;
        if (first) since = now;
        return !first && now - since > seconds;
    };
    overdue o;
    o.signal = awaits_completion() && passed(completion_awaited_since_, own_.shape.signal_after);
    if (o.signal) {
        to_.want_signal();
        completion_awaited_since_ = now;
    }
    o.offer = awaits_place() && passed(place_awaited_since_, own_.shape.offer_after);
    return o;
}
inline placement_notice sender::offer() {
    const message& m = queued_.front();
    placement_notice n{};
    n.what = {m.label.fingerprint, m.label.sequence, lowered_, m.bytes, m.label.part, 0, {}};
    n.kind = notice_kind::offer;
    route_ = route::offered;
    return n;
}

}  // namespace colls::inline v1::detail::rdma
