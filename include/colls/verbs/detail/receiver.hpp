// Messages from one peer: where each is to land, how much of it has arrived, and the notices that tell the peer.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
//
// More receives are always posted than there are slots, notices and granted places together, so none is ever missing.
// A message in a slot for which this rank has not called `receive` stays there, as do all behind it: credits run out,
// and the peer waits.
#pragma once

#include <colls/verbs/detail/connection.hpp>

#include <cstring>

namespace colls::inline v1::detail::rdma {

class receiver {
public:
    receiver(rank_resources& own, connection& from, int peer) : own_(own), from_(from), peer_(peer) {}
    receiver(const receiver&) = delete;
    receiver& operator=(const receiver&) = delete;

    /// The number of the next message. The caller pushes its place, unless nothing is received any more.
    std::uint64_t take_number() { return posted_++; }
    void push(std::uint64_t number, const message_label& label, const piece* pieces, int count);
    /// Number of messages that have arrived.
    std::uint64_t arrived() const { return from_.taken.messages; }
    /// Whether all messages are thrown away, since one was not the one expected.
    bool dropping() const { return dropping_; }
    /// Whether all slots that the peer has written are taken.
    bool slots_empty() const { return from_.taken.slots == slots_arrived_; }
    /// Forgets the messages that are expected, and notices.
    void clear();

    // ---- notices to the peer

    void queue(const placement_notice& n) { notices_.push(n); }
    bool has_notices() const { return !notices_.empty(); }
    /// Appends to the chain those for which there is room.
    void write_notices();
    /// Whether credits must be written by themselves, if nothing else carries them. An acknowledgement that the peer
    /// waits for may go with what this rank writes in the same turn.
    bool owes_credits() const {
        const credits &taken = from_.taken, &told = from_.told();
        return taken.slots - told.slots >= own_.shape.slots / 2 ||
               taken.notices - told.notices >= own_.shape.notices / 2 ||
               (told.messages < acknowledge_until_ && acknowledge_until_ <= taken.messages &&
                   acknowledgement_due_in_ != own_.turn);
    }

    // ---- what the peer has written, by its immediate. False: it does not follow the protocol.

    bool slot_arrived(std::uint32_t immediate);
    /// Called after `consume`, which has moved all earlier messages.
    bool direct_arrived(std::uint32_t immediate);
    bool notice_arrived(std::uint32_t immediate, placement_notice& n);
    void offered(const message_header& what) {
        offer_ = what;
        has_offer_ = true;
    }
    /// Moves data from slots to where it belongs, and compares an offer. May report a mismatch to the listener, which
    /// may close the connection.
    void consume();

private:
    struct expected_message {
        message_label label;
        std::uint64_t bytes;
        bool placed;  // the peer has been told where it may land
    };
    bool fits(const expected_message& m, const message_header& h) const {
        return m.label == h.label() && m.bytes == h.bytes;
    }
    bool consume_slot(const message_header& h, const std::byte* data);
    void finish_front();
    void mismatch(const message_header& got);

    rank_resources& own_;
    connection& from_;
    const int peer_;
    fifo<expected_message> expected_;
    piece_queue pieces_;
    std::uint64_t posted_ = 0;  // messages
    std::uint64_t landed_ = 0;  // bytes of the front message
    std::uint64_t slots_arrived_ = 0;
    fifo<placement_notice> notices_;
    std::uint64_t places_granted_ = 0;     // and not used yet
    std::uint64_t acknowledge_until_ = 0;  // the peer waits to hear that this many messages have arrived
    unsigned acknowledgement_due_in_ = 0;  // the turn in which the last of them arrived
    message_header offer_{};
    bool has_offer_ = false, dropping_ = false;
};

inline void receiver::push(std::uint64_t number, const message_label& label, const piece* pieces, int count) {
    const std::uint64_t bytes = sum_of(pieces, count);
    expected_.push({label, bytes, false});
    pieces_.push(pieces, count);
    const bool in_gpu = own_.in_gpu(pieces, count);
    if (bytes <= own_.shape.slot_bytes && !in_gpu) return;
    placement_notice n{};
    n.what = {label.fingerprint, label.sequence, number, bytes, label.part, 0, {}};
    n.kind = notice_kind::direct;
    for (int i = 0; i < count && n.kind == notice_kind::direct; ++i) {
        if (pieces[i].bytes == 0) continue;
        const region where = own_.registry->find(pieces[i].data, pieces[i].bytes);
        if (where.bytes == 0 || n.what.entries == placement_notice::most_places ||
            (pieces[i].bytes < least_direct_piece && !in_gpu))
            n.kind = notice_kind::by_slots;
        else {
            remote_region& place = n.places[n.what.entries++];
            place = {reinterpret_cast<std::uintptr_t>(pieces[i].data), pieces[i].bytes, {}};
            for (std::uint32_t lane = 0; lane < most_lanes; ++lane) place.key[lane] = where.at_lane(lane).remote;
        }
    }
    if (n.kind == notice_kind::by_slots) n.what.entries = 0;
    notices_.push(n);
}

inline void receiver::clear() {
    expected_.clear();
    pieces_.clear();
    notices_.clear();
}

inline void receiver::write_notices() {
    for (; !notices_.empty() && from_.notice_free() && from_.room(1); notices_.pop()) {
        placement_notice& n = notices_.front();
        if (n.kind == notice_kind::direct || n.kind == notice_kind::by_slots) {
            if (n.what.number < arrived() || (n.what.number == arrived() && landed_ > 0))
                continue;  // the message has come by slots
            if (n.kind == notice_kind::direct) {
                if (places_granted_ == own_.shape.notices) return;
                ++places_granted_;
                expected_[static_cast<std::size_t>(n.what.number - arrived())].placed = true;
            }
        }
        n.what.returned = from_.tell_taken();
        const std::size_t at = own_.layout.notice_at(from_.notices_written());
        std::memcpy(from_.outbound(at), &n, n.bytes());
        write_request& r =
            from_.add(at, write_kind::notice, from_.notices_written(), n.bytes() <= from_.limits().inlined);
        from_.add_piece(r, from_.outbound(at), n.bytes(), from_.local_key());
        from_.notice_written();
    }
}

inline bool receiver::slot_arrived(std::uint32_t immediate) {
    if (!has_count(immediate, slots_arrived_) || slots_arrived_ - from_.taken.slots >= own_.shape.slots) return false;
    message_header h;
    std::memcpy(&h, from_.inbound(own_.layout.slot_at(slots_arrived_++)), sizeof h);
    from_.take_credits(h.returned);
    if (immediate & acknowledgement_wanted) acknowledge_until_ = h.number + 1;
    return true;
}
inline bool receiver::direct_arrived(std::uint32_t immediate) {
    if (dropping_) return true;
    if (expected_.empty() || !has_count(immediate, arrived()) || !expected_.front().placed || landed_ > 0) return false;
    if (immediate & acknowledgement_wanted) acknowledge_until_ = arrived() + 1;
    pieces_.skip(expected_.front().bytes);
    finish_front();
    return true;
}
inline bool receiver::notice_arrived(std::uint32_t immediate, placement_notice& n) {
    if (!has_count(immediate, from_.taken.notices)) return false;
    std::memcpy(static_cast<void*>(&n), from_.inbound(own_.layout.notice_at(from_.taken.notices++)), sizeof n);
    from_.take_credits(n.what.returned);
    return n.what.entries <= placement_notice::most_places;
}

inline void receiver::finish_front() {
    if (expected_.front().placed) --places_granted_;
    if (acknowledge_until_ > arrived()) acknowledgement_due_in_ = own_.turn;
    expected_.pop();
    landed_ = 0;
    ++from_.taken.messages;
}

inline void receiver::consume() {
    while (!slots_empty() && (dropping_ || !expected_.empty())) {
        const std::byte* const at = from_.inbound(own_.layout.slot_at(from_.taken.slots));
        message_header h;
        std::memcpy(&h, at, sizeof h);
        if (!dropping_ && !consume_slot(h, at + sizeof h)) return;
        ++from_.taken.slots;
    }
    if (!has_offer_ || dropping_ || offer_.number >= posted_) return;
    has_offer_ = false;
    if (offer_.number >= arrived() && !fits(expected_[static_cast<std::size_t>(offer_.number - arrived())], offer_)) {
        // Messages before it may still arrive: the mismatch is reported when it is the next one.
        if (offer_.number == arrived())
            mismatch(offer_);
        else
            has_offer_ = true;
    }
}
// False: the slot was not used up, since the connection has failed, or is closed.
inline bool receiver::consume_slot(const message_header& h, const std::byte* data) {
    const expected_message& front = expected_.front();
    if (h.number != arrived() || h.entries > own_.shape.slot_bytes || h.entries > h.bytes - landed_) {
        from_.fail(protocol_violation, nullptr, true);
        return false;
    }
    if (!fits(front, h)) {
        mismatch(h);
        return from_.has_queue();
    }
    if (!own_.native(pieces_, h.entries)) {
        from_.fail(not_native, nullptr, true);
        return false;
    }
    pieces_.copy_in(data, h.entries);
    own_.copied.in += h.entries;
    landed_ += h.entries;
    if (landed_ == front.bytes) finish_front();
    return true;
}
inline void receiver::mismatch(const message_header& got) {
    const expected_message wanted = expected_.front();
    const message_header other = got;  // it may lie where the listener's actions change it
    dropping_ = true;
    expected_.clear();
    pieces_.clear();
    notices_.clear();
    placement_notice n{};
    n.kind = notice_kind::discard;
    notices_.push(n);
    if (own_.listening)
        own_.listening->unexpected(peer_, wanted.label, other.label(), static_cast<std::size_t>(wanted.bytes),
            static_cast<std::size_t>(other.bytes));
}

}  // namespace colls::inline v1::detail::rdma
