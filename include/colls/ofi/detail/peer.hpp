// One peer of a rank over libfabric: the messages to it and from it, and whether it can be reached.
// IWYU pragma: private, include <colls/transports/ofi.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/ofi/detail/endpoint.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace colls::inline v1::detail::ofi {

/// What the peers of a rank share.
struct rank_state {
    const std::shared_ptr<provider> of;
    const ofi_shape shape;
    message_transport::listener*& listening;  ///< the transport's
    const int rank;
    const std::uint32_t key;  ///< packets and parts with another one are for an earlier endpoint of the same address
    const std::uint64_t part_bytes;  ///< of parts of messages
    std::unique_ptr<endpoint> end;   ///< null: not needed yet, or closed
    std::uint64_t copied = 0;        ///< bytes of long messages
};

class peer {
public:
    enum class link : std::uint8_t { unknown, greeted, known };  ///< `known`: its address and key have come
    enum class departure : std::uint8_t { none, announced, reported };
    enum class failure : std::uint8_t { none, suspected, certain, reported };

    peer(rank_state& own, int n) : rank(n), own_(own), waiting_(own.shape.slots) {}
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;

    const int rank;
    link state = link::unknown;
    bool has_work = false;  ///< it is in the transport's list of peers to write to
    bool lost = false;      ///< the control transport has reported it lost
    departure leaving = departure::none;
    double announced_at = 0;
    bool closing = false;  ///< it has said how many messages it has sent in all
    std::uint64_t messages_in_all = 0;

    // ---- for the transport's interface

    std::uint64_t send(const message_label& label, const piece* pieces, int count) {
        if (!discarded_) outgoing_.push_back({{label, sum(pieces, count)}, {pieces, pieces + count}});
        return posted_out_++;
    }
    std::uint64_t receive(const message_label& label, const piece* pieces, int count) {
        if (!dropping_) incoming_.push_back({{label, sum(pieces, count)}, {pieces, pieces + count}});
        return posted_in_++;
    }
    /// A message that is not to go, or to come, has a number, too.
    std::uint64_t skip_send() { return posted_out_++; }
    std::uint64_t skip_receive() { return posted_in_++; }
    std::uint64_t left() const { return discarded_ && parts_out_ == 0 ? posted_out_ : left_; }
    std::uint64_t arrived() const { return arrived_; }
    bool all_left() const { return outgoing_.empty(); }
    /// The peer sends no more credits. (What comes after the end of a kernel's connection resets it: data that it still
    /// holds would be lost.)
    bool reached() const { return slots_ - returned_ < own_.shape.slots / 2; }
    bool dropping() const { return dropping_; }
    bool moves() const { return parts_out_ + parts_in_ > 0; }
    /// The endpoint is closed: forgets all messages.
    void clear() {
        outgoing_.clear();
        incoming_.clear();
        std::fill(waiting_.begin(), waiting_.end(), nullptr);
        begun_ = parts_out_ = parts_in_ = 0;
    }

    // ---- its address, and failures

    /// False: it cannot be reached, see `why`.
    bool accept(const control_message& greeting);
    void fail(const std::string& why, bool certain) {
        if (failure_ == failure::suspected ? !certain : failed()) return;
        if (!failed()) failed_at = seconds_now();
        failure_ = certain ? failure::certain : failure::suspected;
        why_ = why;
    }
    bool failed() const { return failure_ != failure::none; }
    /// Whether a failure is to be reported: its cause is known, or has had time to be heard of. Says so once.
    bool take_failure() {
        const bool is = failure_ == failure::certain ||
                        (failure_ == failure::suspected && seconds_now() - failed_at >= own_.shape.failure_grace);
        if (is) failure_ = failure::reported;
        return is;
    }
    const char* why() const { return why_.c_str(); }
    double failed_at = 0;

    // ---- moving

    /// Whether there may be something to write.
    bool has_to_write() const {
        return state == link::known && !failed() && own_.end &&
               (discard_due_ || begun_ < outgoing_.size() || granted_ < arrived_ + incoming_.size() || owes_credits());
    }
    /// Gives the provider what it takes now.
    void write();
    /// A packet has come. Keeps it, or gives it back.
    void take(packet& p);
    /// An operation of its messages is over.
    void completed(operation& o, std::size_t bytes, int error, std::size_t lane);
    /// Moves what has come to its place. May report a mismatch to the listener, which may close the endpoint.
    void consume();
    /// It has left: so many messages of this rank's have arrived there.
    void take_arrived(std::uint64_t count) {
        while (left_ < count && begun_ > 0) drop_front();
    }

private:
    struct message_header {
        message_label label;
        std::uint64_t bytes;
        bool fits(const packet_header& h) const { return label == h.label() && bytes == h.bytes; }
    };
    struct message {
        message_header is;
        std::vector<piece> pieces;
        std::uint64_t begun = 0;  // bytes in parts
        int under_way = 0;        // operations
        bool told = false;        // the peer: by an offer, or by a grant
    };
    static std::uint64_t sum(const piece* pieces, int count) {
        std::uint64_t bytes = 0;
        for (int i = 0; i < count; ++i) bytes += pieces[i].bytes;
        return bytes;
    }
    bool is_long(const message& m) const { return m.is.bytes > own_.shape.packet_bytes; }
    bool slot_free() const { return slots_ - returned_ < own_.shape.slots; }
    bool owes_credits() const { return !closing && taken_ - told_ >= own_.shape.slots / 2; }
    void call_failed(const char* call, int code, std::size_t lane = 0) { fail(own_.of->text(call, code, lane), false); }
    void violated() { fail("its packets do not follow this version's protocol", true); }

    bool post(packet_kind kind, std::uint64_t number = 0, const message* m = nullptr);
    bool write_message(message& m, std::uint64_t number);
    bool move_parts(bool out, message& m, std::uint64_t number);
    void grant();
    void mismatch(const packet_header& got);
    void finish_long();
    void drop_front() {
        outgoing_.pop_front();
        ++left_, --begun_;
    }

    rank_state& own_;
    std::vector<fi_addr_t> at_;  // by lane
    std::uint32_t key_ = 0;
    failure failure_ = failure::none;
    std::string why_;

    std::deque<message> outgoing_;  // from number left_ on
    std::size_t begun_ = 0;         // of them, those that the provider has as a whole
    std::uint64_t posted_out_ = 0, left_ = 0, slots_ = 0, returned_ = 0, next_part_out_ = 0;
    std::uint32_t parts_out_ = 0;
    bool discarded_ = false;  // the peer throws away what comes

    std::deque<message> incoming_;  // from number arrived_ on
    std::vector<packet*> waiting_;  // by slot
    std::uint64_t posted_in_ = 0, arrived_ = 0, granted_ = 0, taken_ = 0, told_ = 0, next_part_in_ = 0;
    std::uint32_t parts_in_ = 0;
    bool dropping_ = false, discard_due_ = false;
    std::vector<packet_header> grants_;  // of the peer, not used yet
};

inline bool peer::accept(const control_message& greeting) {
    std::vector<std::string> addresses = addresses_in(greeting.text, own_.of->name());
    addresses.resize(std::min(addresses.size(), own_.end->lanes()));
    at_.assign(addresses.size(), FI_ADDR_UNSPEC);
    std::size_t k = 0;
    while (k < at_.size() && own_.end->lane(k).insert(addresses[k], at_[k])) ++k;
    if (addresses.empty())
        fail(std::string("its provider, or version, is another one (") + greeting.text + ", here " + own_.of->name() +
                 "): COLLS_OFI_PROVIDER must be the same on all ranks",
            true);
    else if (greeting.c != own_.shape.packet_bytes)
        fail("its packets have another size: run one version on all ranks", true);
    else if (k < at_.size())
        fail(own_.of->text("fi_av_insert", FI_EADDRNOTAVAIL, k), true);
    else
        state = link::known;
    key_ = static_cast<std::uint32_t>(greeting.b);
    return state == link::known;
}

// False: not now.
inline bool peer::post(packet_kind kind, std::uint64_t number, const message* m) {
    packet& p = own_.end->take();
    packet_header& h = *p.header;
    h = {key_, static_cast<std::uint32_t>(own_.rank), kind, 0, 0, 0, 0, number, slots_, taken_};
    if (m) {
        const message_label& l = m->is.label;
        h.part = l.part, h.fingerprint = l.fingerprint, h.sequence = l.sequence, h.bytes = m->is.bytes;
    }
    std::size_t bytes = 0;
    if (kind == packet_kind::message)
        for (const piece& x : m->pieces) {
            if (x.bytes > 0) std::memcpy(p.data() + bytes, x.data, x.bytes);
            bytes += x.bytes;
        }
    p.peer = rank;
    p.message = kind == packet_kind::message ? number : ~std::uint64_t{0};
    const bool injects = kind != packet_kind::message && own_.end->injects(), takes_slot = h.takes_slot();
    const int code = injects ? own_.end->inject(p, at_[0]) : own_.end->send(p, bytes, at_[0]);
    if (injects || code != 0) own_.end->give(p);
    if (code == 0) {
        told_ = taken_;
        slots_ += takes_slot;
        return true;
    }
    if (code != -FI_EAGAIN) call_failed(injects ? "fi_inject" : "fi_send", code);
    return false;
}

inline void peer::write() {
    if (!has_to_write()) return;
    try {
        if (discard_due_ && post(packet_kind::discard)) discard_due_ = false;
        grant();
        while (begun_ < outgoing_.size() && write_message(outgoing_[begun_], left_ + begun_)) ++begun_;
        if (!failed() && owes_credits()) post(packet_kind::credits);
    } catch (const error& x) {  // memory for packets cannot be registered
        fail(x.what(), true);
    }
}
// Sends the message, or as much of it as can go. False: not all of it.
inline bool peer::write_message(message& m, std::uint64_t number) {
    if (failed()) return false;
    if (!is_long(m)) {
        if (!slot_free()) return false;
        ++m.under_way;
        if (post(packet_kind::message, number, &m)) return true;
        --m.under_way;
        return false;
    }
    const auto is = [number](const packet_header& h) { return h.number == number; };
    const auto g = std::find_if(grants_.begin(), grants_.end(), is);
    if (g != grants_.end()) {
        if (!m.is.fits(*g)) grants_.clear();  // its receiver finds that out, and takes no message any more
        if (grants_.empty() || !move_parts(true, m, number)) return false;
        grants_.erase(g);
        return true;
    }
    if (!m.told && slot_free()) m.told = post(packet_kind::offer, number, &m);
    return false;
}
// Sends or receives the parts of a long message, on the lanes in turn; a large one is cut over them. False: not all of
// them.
inline bool peer::move_parts(bool out, message& m, std::uint64_t number) {
    std::uint32_t& parts = out ? parts_out_ : parts_in_;
    std::uint64_t& next = out ? next_part_out_ : next_part_in_;
    const std::uint64_t lanes = std::clamp<std::uint64_t>(m.is.bytes / own_.shape.least_stripe, 1, at_.size());
    const std::uint64_t most = std::min(own_.part_bytes, (m.is.bytes + lanes - 1) / lanes);
    while (m.begun < m.is.bytes) {
        if (parts == own_.shape.parts) return false;
        const auto bytes = static_cast<std::size_t>(std::min(most, m.is.bytes - m.begun));
        const auto lane = static_cast<std::size_t>(next % at_.size());
        const char* call = "";
        const std::uint64_t tag = out ? tag_of(own_.rank, key_, next) : tag_of(rank, own_.key, next);
        endpoint& end = own_.end->lane(lane);
        const int code = end.move(out, rank, number, m.pieces, m.begun, bytes, tag, at_[lane], call);
        if (code != 0) {
            if (code != -FI_EAGAIN) call_failed(call, code, lane);
            return false;
        }
        m.begun += bytes;
        ++m.under_way, ++parts, ++next;
    }
    return true;
}
// Tells the peer, of the long messages that are expected, those whose first parts have a receive.
inline void peer::grant() {
    for (granted_ = std::max(granted_, arrived_); granted_ < arrived_ + incoming_.size(); ++granted_) {
        message& m = incoming_[static_cast<std::size_t>(granted_ - arrived_)];
        if (!is_long(m)) continue;
        const bool whole = move_parts(false, m, granted_);
        if (failed()) return;
        if (m.begun > 0 && !m.told) m.told = post(packet_kind::grant, granted_, &m);
        if (!whole || !m.told) return;
    }
}

inline void peer::take(packet& p) {
    const packet_header h = *p.header;
    if (h.taken > slots_) return violated();
    returned_ = std::max(returned_, h.taken);
    if (h.takes_slot() && !dropping_) {
        packet*& place = waiting_[h.slot % waiting_.size()];
        if (h.slot < taken_ || h.slot - taken_ >= waiting_.size() || place) return violated();
        place = &p;
        return consume();
    }
    if (h.takes_slot()) ++taken_;
    if (h.kind == packet_kind::grant) grants_.push_back(h);
    if (h.kind == packet_kind::discard) {
        discarded_ = true;
        outgoing_.resize(begun_);
    }
    own_.end->give_to_receive(p);
}
inline void peer::consume() {
    while (packet* const p = waiting_[taken_ % waiting_.size()]) {
        const packet_header h = *p->header;
        if (!dropping_) {
            // Earlier ones are under way, or there is no receive for it.
            if (h.number > arrived_ || (h.number == arrived_ && incoming_.empty())) return;
            if (h.number < arrived_ && h.kind == packet_kind::message) return violated();
        }
        if (!dropping_ && h.number == arrived_) {
            message& m = incoming_.front();
            if (!m.is.fits(h)) {
                mismatch(h);
                if (!own_.end) return;
            } else if (h.kind == packet_kind::message) {
                if (is_long(m)) return violated();  // it would be read beyond the packet
                const std::byte* from = p->data();
                for (const piece& x : m.pieces) {
                    if (x.bytes > 0) std::memcpy(x.data, from, x.bytes);
                    from += x.bytes;
                }
                incoming_.pop_front();
                ++arrived_;
                finish_long();
            }
        }
        waiting_[taken_++ % waiting_.size()] = nullptr;
        own_.end->give_to_receive(*p);
    }
}
// Counts long messages that have arrived.
inline void peer::finish_long() {
    while (!incoming_.empty()) {
        const message& m = incoming_.front();
        if (m.begun == 0 || m.begun < m.is.bytes || m.under_way > 0) return;
        incoming_.pop_front();
        ++arrived_;
    }
}
inline void peer::mismatch(const packet_header& got) {
    const message_header wanted = incoming_.front().is;
    dropping_ = discard_due_ = true;
    incoming_.clear();
    own_.end->cancel_from(rank);
    if (own_.listening)
        own_.listening->unexpected(rank, wanted.label, got.label(), static_cast<std::size_t>(wanted.bytes),
            static_cast<std::size_t>(got.bytes));
}

inline void peer::completed(operation& o, std::size_t bytes, int error, std::size_t lane) {
    // Providers give this error, too, to what a connection that breaks had under way.
    const bool cancelled = error == FI_ECANCELED && o.kind == operation::part_in && dropping_;
    if (error != 0 && !cancelled)
        call_failed(o.kind == operation::packet_out ? "fi_send"
                    : o.kind == operation::part_out ? "fi_tsendv"
                                                    : "fi_trecvv",
            error, lane);
    if (o.kind == operation::part_in) {
        part& x = static_cast<part&>(o);
        --parts_in_;
        const bool lands = error == 0 && !dropping_, whole = bytes == x.bytes;
        if (lands && !whole) violated();
        const std::uint64_t number = x.message;
        if (x.copy) own_.copied += x.bytes;
        own_.end->lane(lane).finish(x, lands);
        if (!lands || !whole) return;
        --incoming_[static_cast<std::size_t>(number - arrived_)].under_way;
        finish_long();
        return consume();
    }
    const std::uint64_t number = o.message;
    if (o.kind == operation::part_out) {
        part& x = static_cast<part&>(o);
        --parts_out_;
        if (x.copy) own_.copied += x.bytes;
        own_.end->lane(lane).finish(x, false);
    } else {
        own_.end->give(static_cast<packet&>(o));
    }
    if (error != 0 || number < left_ || number - left_ >= outgoing_.size()) return;
    --outgoing_[static_cast<std::size_t>(number - left_)].under_way;
    while (begun_ > 0 && outgoing_.front().under_way == 0) drop_front();
}

}  // namespace colls::inline v1::detail::ofi
