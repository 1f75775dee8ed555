// Many groups over the same connections: a split costs none of its own.
//
// A trunk is a tcp_transport between all ranks of the world, made at the first split. What the transports of the groups
// (`circuit`) say and send goes through it in envelopes: records of fixed size that name their group, hold a control
// message or the bytes of a small message, or announce a segment that follows. A receive for the next envelope is
// always posted, so that no group stops another. What arrives for a receive that has not been posted yet is kept; the
// sender keeps to a window, which opens as its receiver takes what has arrived (as streams in RFC 9113, 5.2). A group
// can be abandoned at any time while the trunk goes on: what is under way from or to its callers' memory is moved to
// memory of the trunk.
//
// Cost beside a tcp_transport of its own: the rest of an envelope with each message; a copy of what comes early.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/connection/tcp_transport.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

/// What an envelope holds beside its frame. The frame's `number` is where in its message the bytes begin.
struct envelope_prefix {
    std::uint64_t group = 0;
    std::uint32_t from = 0;   ///< the sender's rank in that group
    std::uint32_t bytes = 0;  ///< of the message: in the envelope, where they fit, otherwise in a segment that follows
    std::uint64_t consumed = 0;  ///< what the sender of this has taken of the window in the other direction, in all

    static void pass(auto& p, auto& archive) { archive(p.group, p.from, p.bytes, p.consumed); }
    bool sound() const { return true; }
};
inline constexpr std::size_t envelope_prefix_bytes = 24, envelope_bytes = 512;
inline constexpr std::size_t envelope_capacity = envelope_bytes - envelope_prefix_bytes - frame_bytes;
inline constexpr std::size_t segment_bytes = 512 << 10;
static_assert(envelope_capacity >= most_text);

/// An envelope, and its bytes if they do not fit into it.
struct parcel {
    envelope_prefix prefix;
    frame head;
    const std::byte* bytes = nullptr;
};
inline void encode(const envelope_prefix& p, std::byte* to) { encoder{to}(p); }
/// None: the bytes are no envelope. `bytes` is set where they are within the envelope.
inline std::optional<parcel> parse_envelope(const std::byte* from) {
    const auto head = parse_frame({from + envelope_prefix_bytes, frame_bytes});
    if (!head) return {};
    parcel p{{}, *head};
    decoder{from}(p.prefix);
    const bool message = head->kind == frame_kind::message;
    if (p.prefix.bytes > (message ? segment_bytes : 0)) return {};
    if (message && (head->number > head->bytes || p.prefix.bytes > head->bytes - head->number ||
                       (p.prefix.bytes == 0 && head->bytes > 0)))
        return {};
    if (p.prefix.bytes <= envelope_capacity) p.bytes = from + envelope_prefix_bytes + frame_bytes;
    return p;
}

/// One that nobody takes yet, with its bytes.
struct early_parcel {
    int world;  ///< the rank that it is from
    parcel what;
    std::vector<std::byte> bytes;

    early_parcel(int from, const parcel& p)
        : world(from), what(p), bytes(p.bytes, p.bytes + std::max<std::size_t>(p.prefix.bytes, p.head.text_bytes)) {
        what.bytes = bytes.data();
    }
    early_parcel(early_parcel&&) = default;
    early_parcel& operator=(early_parcel&&) = default;
};

/// The memory of the first `bytes` of a queue, if it is `most` pieces or fewer; otherwise 0.
inline int gathered(piece_queue& pieces, std::uint64_t bytes, piece* v, int most) {
    std::size_t at = 0;
    const int n = pieces.gather(at, bytes, v, most);
    return bytes > 0 ? 0 : n;
}

class circuit;

/// The connections that the groups of a process share. It outlives their transports, and is used by one thread at a
/// time.
class trunk final : private message_transport::listener {
public:
    /// `number`: equal on all ranks, and of no group; `rank`: this one's number in `world`. Throws std::bad_alloc.
    trunk(tcp_node& node, std::uint64_t number, int rank, const std::vector<address>& world)
        : ranks_(world.size()), below_(node, number, rank, world, true) {
        below_.listening = this;
    }

    /// The transport of a group's rank; `members`: of each of its ranks, the number in the world.
    std::unique_ptr<message_transport> join(std::uint64_t group, int rank, const std::vector<int>& members);
    /// Moves what can be moved without waiting, for all groups. They report to their listeners in their own `progress`.
    void progress();

private:
    friend class circuit;
    static constexpr std::size_t most_under_way = 4, most_control = 4096, most_ended = 2048, most_early_groups = 4096;
    static constexpr int most_pieces = 32;  // of a segment that is not copied

    struct outgoing {
        std::unique_ptr<std::byte[]> envelope, segment;
        circuit* of;       // null: that has ended
        int peer;          // its rank there
        bool last;         // of a message
        bool has_segment;  // in memory of the caller, or in `segment`
        std::uint64_t n;   // messages below that have left when this has
    };
    /// This rank's connection to one rank of the world.
    struct link {
        bool known = false;         // there is a connection, or one was tried
        bool segment_next = false;  // the receive that is posted is for the segment of `announced`
        circuit* lands = nullptr;   // and it lands in memory of this one's caller; otherwise in `segment`
        std::uint64_t taken = 0;    // messages below that have been taken
        std::unique_ptr<std::byte[]> envelope, segment;
        parcel announced;
        std::deque<outgoing> out;
        std::vector<std::unique_ptr<std::byte[]>> moved;  // what `out` had in memory of callers that have abandoned it
        std::size_t segments = 0;                         // in `out`
        int awaited = 0;                                  // flows with receives
        std::deque<std::pair<circuit*, int>> waiting;     // for room in `out`
        bool left = false, lost = false;
        bool late = false;  // a group that has ended waited in vain for what is for the peer to leave
        std::string why;
    };

    link& at(int world) { return ranks_[static_cast<std::size_t>(world)]; }
    /// Connects, and posts the receive for the first envelope.
    void know(int world) {
        link& l = at(world);
        if (std::exchange(l.known, true)) return;
        known_.push_back(world);
        l.envelope.reset(new std::byte[envelope_bytes]);
        const piece p{l.envelope.get(), envelope_bytes};
        below_.receive(world, {}, &p, 1);
    }
    bool has_room(int world) { return at(world).segments < most_under_way; }
    /// `text` belongs to a control message, the first p.bytes of `pieces` to a message.
    void post(int world, circuit* of, int peer, const envelope_prefix& p, const frame& f, const char* text,
        piece_queue* pieces, bool last) {
        link& l = at(world);
        const bool segment = p.bytes > envelope_capacity;
        outgoing o{std::unique_ptr<std::byte[]>(new std::byte[envelope_bytes]), nullptr, of, peer, last, segment, 0};
        std::byte* const data = o.envelope.get() + envelope_prefix_bytes + frame_bytes;
        encode(p, o.envelope.get());
        encode(f, o.envelope.get() + envelope_prefix_bytes);
        const std::size_t inside = segment ? 0 : f.text_bytes + p.bytes;
        if (text != nullptr) std::memcpy(data, text, f.text_bytes);
        if (p.bytes > 0 && !segment) pieces->copy_out(data, p.bytes);
        std::memset(data + inside, 0, envelope_capacity - inside);
        const piece envelope{o.envelope.get(), envelope_bytes};
        peer_connection& to = below_.peer(world);
        o.n = to.sends().post({}, &envelope, 1) + 1;
        if (segment) {
            piece parts[most_pieces];
            int count = gathered(*pieces, p.bytes, parts, most_pieces);
            if (count > 0) {
                pieces->skip(p.bytes);
            } else {  // too many pieces for one call of the system
                o.segment.reset(new std::byte[p.bytes]);
                pieces->copy_out(o.segment.get(), p.bytes);
                parts[0] = {o.segment.get(), p.bytes};
                count = 1;
            }
            o.n = to.sends().post({}, parts, count) + 1;
        }
        l.segments += segment;
        l.out.push_back(std::move(o));
        to.write_queued();
    }
    void await(int world, int change) {
        link& l = at(world);
        if ((l.awaited += change) == (change > 0)) below_.peer(world).await(change > 0);
    }
    /// The circuit's caller takes its memory back: what is under way from or to that is moved.
    void abandon(circuit& c, int world) {
        link& l = at(world);
        const auto own = [&](const outgoing& o) { return o.of == &c && o.has_segment && !o.segment; };
        if (std::any_of(l.out.begin(), l.out.end(), own)) {
            piece_queue& pieces = below_.peer(world).sends().pieces();
            l.moved.emplace_back(new std::byte[pieces.bytes()]);
            pieces.move_to(l.moved.back().get(), true);
        }
        if (l.lands != &c) return;
        l.lands = nullptr;
        below_.peer(world).receives().pieces().move_to(l.segment.get(), false);
    }
    /// Takes the next envelope or segment, and posts the receive for what follows. False: it has not arrived.
    bool take(int world) {
        link& l = at(world);
        if (below_.received(world) == l.taken || l.lost) return false;
        ++l.taken;
        l.late = false;
        if (std::exchange(l.segment_next, false)) {
            l.announced.bytes = std::exchange(l.lands, nullptr) != nullptr ? nullptr : l.segment.get();
            arrived(world, l.announced);
        } else if (const auto p = parse_envelope(l.envelope.get()); !p) {
            lost(world, "what it sends is not of this protocol");
            return false;
        } else if (p->bytes == nullptr) {
            receive_segment(world, *p);
            return true;
        } else {
            arrived(world, *p);
        }
        const piece next{l.envelope.get(), envelope_bytes};
        below_.receive(world, {}, &next, 1);
        return true;
    }
    void receive_segment(int world, const parcel& p);
    circuit* circuit_of(int world, const parcel& p);
    void arrived(int world, const parcel& p);
    void leave(circuit& c);

    inline void heard(int world, const control_message& what) override;
    inline void lost(int world, const char* why) override;
    inline void failed(int world, const char* why) override;
    void unexpected(int world, const message_label&, const message_label&, std::size_t, std::size_t) override {
        lost(world, "what it sends is not of this protocol");
    }

    std::vector<link> ranks_;
    std::vector<int> known_;
    std::unordered_map<std::uint64_t, circuit*> circuits_;
    std::unordered_map<std::uint64_t, std::vector<early_parcel>> early_;
    std::deque<std::pair<std::uint64_t, int>> ended_;  // groups that this rank has left, and its rank there
    unsigned accepted_ = 0;                            // connections, when this last looked
    tcp_transport below_;
};

/// The messages of one group's rank over a trunk.
class circuit final : public message_transport {
public:
    circuit(trunk& over, std::uint64_t group, int rank, const std::vector<int>& members)
        : over_(over), group_(group), rank_(rank), world_(members), peers_(members.size()) {}
    /// Says `leave` to the ranks that this one has had to do with and has not told that the group is broken, behind
    /// what was sent; waits, at most `linger`, until all that has left. While it waits, this rank is missing in its
    /// other groups. So it waits for a moment only where the group is broken, or the peer has not come to the trunk:
    /// such a peer may never come. What is for it stays in the trunk, and goes when both ranks wait in any group.
    ~circuit() override {
        listening = nullptr;
        for (int r = 0; r < size(); ++r) drop_receives(r);
        const double moment = moment_of(linger);
        linger_until(*this, [&] {
            bool waiting = false;
            const bool past = seconds_now() > moment;
            for (int r = 0; r < size(); ++r) {
                flow& f = at(r);
                if (f.sends.empty() && f.contact && !f.told_broken && !f.said_leave && !f.ended) {
                    f.said_leave = true;
                    tell(r, control_message{control_kind::leave});
                }
                if (f.ended || (f.sends.empty() && f.under_way == 0)) continue;
                trunk::link& l = over_.at(world(r));
                if (f.told_broken || over_.below_.peer(world(r)).needs_peer()) l.late = l.late || past;
                waiting = waiting || !l.late;
            }
            return !waiting;
        });
        over_.leave(*this);
    }

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        flow& f = contact(peer);
        const std::uint64_t number = f.sends.post(label, pieces, count);
        if (f.sends.size() == 1) pump(peer);
        return number;
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        flow& f = contact(peer);
        const std::uint64_t number = f.receives.post(label, pieces, count);
        if (f.receives.size() == 1) over_.await(world(peer), 1);
        if (!f.receives.empty()) drain(peer);
        return number;
    }
    std::uint64_t sent(int peer) const override { return at(peer).sent; }
    std::uint64_t received(int peer) const override { return at(peer).receives.finished(); }
    void abandon() override {
        for (int r = 0; r < size(); ++r) {
            drop_receives(r);
            at(r).sends.drop();
            if (at(r).under_way > 0) over_.abandon(*this, world(r));
        }
    }

    bool tell(int peer, const control_message& what) override {
        if (peer == rank_) return false;
        flow& f = contact(peer);
        if (f.ended || over_.at(world(peer)).out.size() >= trunk::most_control) return false;
        f.told_broken = f.told_broken || what.what == control_kind::broken;
        post(peer, frame_of(what), 0, what.text, false);
        return true;
    }
    void tell_all(const control_message& what) override {
        for (int r = 0; r < size(); ++r)
            if (at(r).contact) tell(r, what);
    }

    void progress() override {
        over_.progress();
        if (std::exchange(reporting_, true)) return;
        while (!reports_.empty()) {
            const report next = std::move(reports_.front());
            reports_.pop_front();
            if (listening != nullptr) next(*listening);
        }
        reporting_ = false;
    }
    void idle(double seconds) override {
        if (reports_.empty()) over_.below_.idle(seconds);
    }

private:
    friend class trunk;
    static constexpr std::uint64_t window = 4 * segment_bytes;

    /// To and from one peer.
    struct flow {
        posted_messages sends, receives;            // those finished have been handed to the trunk, or have landed
        std::uint64_t sent = 0;                     // messages
        std::uint64_t send_at = 0, receive_at = 0;  // bytes of the first ones that are over
        std::uint64_t used = 0, allowed = window;   // of the window for sending, in all
        std::uint64_t consumed = 0, told = 0;       // of the peer's; what it has been told of that
        std::size_t under_way = 0;                  // envelopes handed to the trunk that have not left
        std::deque<early_parcel> early;  // before their receive was posted; or the peer's `leave` behind them
        bool contact = false, told_broken = false, said_leave = false;
        bool waiting = false;  // among those that the trunk calls when there is room
        bool ended = false;    // the peer has left, or is lost
    };
    using report = std::function<void(listener&)>;

    int size() const { return static_cast<int>(peers_.size()); }
    int world(int peer) const { return world_[static_cast<std::size_t>(peer)]; }
    flow& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
    const flow& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }

    void drop_receives(int peer) {
        flow& f = at(peer);
        if (!f.receives.empty()) {
            over_.await(world(peer), -1);
            over_.abandon(*this, world(peer));
        }
        f.receives.drop();
        std::erase_if(f.early, [](const early_parcel& e) { return e.what.head.kind == frame_kind::message; });
    }
    flow& contact(int peer) {
        flow& f = at(peer);
        if (!f.contact && peer != rank_) {
            f.contact = true;
            over_.know(world(peer));
            const trunk::link& l = over_.at(world(peer));
            if (l.lost) lost(peer, l.why);
            if (l.left) left(peer);
        }
        return f;
    }
    void post(int peer, const frame& head, std::size_t bytes, const char* text, bool last) {
        flow& f = at(peer);
        f.told = f.consumed;
        ++f.under_way;
        over_.post(world(peer), this, peer,
            {group_, static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(bytes), f.consumed}, head, text,
            &f.sends.pieces(), last);
    }
    /// Sends what the window and the trunk have room for.
    void pump(int peer) {
        flow& f = at(peer);
        while (!f.sends.empty() && !f.ended && f.used < f.allowed) {
            if (!over_.has_room(world(peer))) {
                if (!std::exchange(f.waiting, true)) over_.at(world(peer)).waiting.emplace_back(this, peer);
                return;
            }
            const message_header m = f.sends.front();
            const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(m.bytes - f.send_at, segment_bytes));
            const frame head{.kind = frame_kind::message, .number = f.send_at, .bytes = m.bytes, .label = m.label};
            f.used += envelope_bytes + bytes;
            f.send_at += bytes;
            const bool last = f.send_at == m.bytes;
            post(peer, head, bytes, nullptr, last);
            if (!last) continue;
            f.send_at = 0;
            f.sends.finish();
        }
    }

    void take(int peer, const parcel& p) {
        flow& f = at(peer);
        f.contact = true;
        if (f.allowed < p.prefix.consumed + window) {
            f.allowed = p.prefix.consumed + window;
            pump(peer);
        }
        if (p.head.kind == frame_kind::welcome) return;  // came for that
        if (p.head.kind == frame_kind::control) {
            if (p.head.what == control_kind::leave) return left(peer);
            char text[most_text + 1];
            print(p.bytes, p.head.text_bytes, text);
            reports_.push_back([peer, h = p.head, kept = std::string(text)](
                                   listener& to) { to.heard(peer, {h.what, h.a, h.b, h.c, kept.c_str()}); });
        } else if (f.receives.dropping()) {
            consume(peer, p.prefix.bytes);
        } else if (f.early.empty() && !f.receives.empty()) {
            land(peer, p);  // without bytes: they have landed
        } else {
            f.early.emplace_back(world(peer), p);
        }
    }
    static bool is_expected(flow& f, const frame& head) {
        const message_header& wanted = f.receives.front();
        return wanted.label == head.label && wanted.bytes == head.bytes && head.number == f.receive_at;
    }
    /// Where the bytes of an announced segment go in memory of the caller; none: it has not posted their receive.
    int place_for(int peer, const parcel& p, piece* v, int most) {
        flow& f = at(peer);
        if (!f.early.empty() || f.receives.empty() || !is_expected(f, p.head)) return 0;
        return gathered(f.receives.pieces(), p.prefix.bytes, v, most);
    }
    void land(int peer, const parcel& p) {
        flow& f = at(peer);
        const message_header wanted = f.receives.front();
        if (!is_expected(f, p.head)) {
            drop_receives(peer);
            reports_.push_back([peer, wanted, head = p.head](listener& to) {
                to.unexpected(peer, wanted.label, head.label, static_cast<std::size_t>(wanted.bytes),
                    static_cast<std::size_t>(head.bytes));
            });
            return;
        }
        if (p.bytes != nullptr)
            f.receives.pieces().copy_in(p.bytes, p.prefix.bytes);
        else
            f.receives.pieces().skip(p.prefix.bytes);
        f.receive_at += p.prefix.bytes;
        if (f.receive_at == wanted.bytes) {
            f.receive_at = 0;
            f.receives.finish();
            if (f.receives.empty()) over_.await(world(peer), -1);
        }
        consume(peer, p.prefix.bytes);
    }
    void consume(int peer, std::size_t bytes) {
        flow& f = at(peer);
        f.consumed += envelope_bytes + bytes;
        if (f.consumed - f.told >= window / 2 && !f.ended) post(peer, frame{}, 0, nullptr, false);
    }
    void drain(int peer) {
        flow& f = at(peer);
        while (!f.early.empty() && (f.early.front().what.head.kind == frame_kind::control || !f.receives.empty())) {
            const early_parcel next = std::move(f.early.front());
            f.early.pop_front();
            if (next.what.head.kind == frame_kind::message)
                land(peer, next.what);
            else if (!std::exchange(f.ended, true))
                reports_.push_back([peer](listener& to) { to.heard(peer, {control_kind::leave}); });
        }
    }
    // Behind the messages that came before.
    void left(int peer) {
        at(peer).early.emplace_back(world(peer), parcel{{}, frame_of({control_kind::leave})});
        drain(peer);
    }
    void lost(int peer, const std::string& why) {
        if (!at(peer).contact || std::exchange(at(peer).ended, true)) return;
        reports_.push_back([peer, why](listener& to) { to.lost(peer, why.c_str()); });
    }
    int rank_of(int world) const {
        const auto found = std::find(world_.begin(), world_.end(), world);
        return found == world_.end() ? none : static_cast<int>(found - world_.begin());
    }

    trunk& over_;
    const std::uint64_t group_;
    const int rank_;
    const std::vector<int> world_;
    std::vector<flow> peers_;
    std::deque<report> reports_;
    bool reporting_ = false;  // a listener may call `progress` again
};

inline std::unique_ptr<message_transport> trunk::join(std::uint64_t group, int rank, const std::vector<int>& members) {
    auto c = std::make_unique<circuit>(*this, group, rank, members);
    circuits_.emplace(group, c.get());
    if (const auto found = early_.find(group); found != early_.end()) {
        const std::vector<early_parcel> waiting = std::move(found->second);
        early_.erase(found);
        for (const early_parcel& e : waiting) arrived(e.world, e.what);
    }
    return c;
}
inline void trunk::leave(circuit& c) {
    for (const int w : c.world_) abandon(c, w);
    circuits_.erase(c.group_);
    if (ended_.size() == most_ended)
        ended_.pop_front();  // an envelope that comes later still waits as if it were early
    ended_.emplace_back(c.group_, c.rank_);
    for (const int w : known_) {
        for (outgoing& o : at(w).out)
            if (o.of == &c) o.of = nullptr;
        std::erase_if(at(w).waiting, [&](const auto& x) { return x.first == &c; });
    }
}

inline void trunk::progress() {
    for (bool moved = true; moved;) {
        below_.progress();
        moved = false;
        if (std::exchange(accepted_, below_.accepted()) != below_.accepted())
            for (int w = 0; w < static_cast<int>(ranks_.size()); ++w)
                if (below_.peer(w).is_connected()) know(w);
        for (std::size_t i = 0; i < known_.size(); ++i) {
            const int w = known_[i];
            while (take(w)) moved = true;
            link& l = at(w);
            while (!l.out.empty() && below_.sent(w) >= l.out.front().n) {
                const outgoing o = std::move(l.out.front());
                l.out.pop_front();
                l.segments -= o.has_segment;
                if (l.out.empty()) l.moved.clear();
                if (o.of == nullptr) continue;
                --o.of->at(o.peer).under_way;
                o.of->at(o.peer).sent += o.last;
            }
            while (!l.waiting.empty() && has_room(w)) {
                const auto [of, peer] = l.waiting.front();
                l.waiting.pop_front();
                of->at(peer).waiting = false;
                of->pump(peer);
            }
        }
    }
}
inline void trunk::receive_segment(int world, const parcel& p) {
    link& l = at(world);
    if (!l.segment) l.segment.reset(new std::byte[segment_bytes]);
    l.announced = p;
    l.segment_next = true;
    piece parts[most_pieces];
    int count = 0;
    if (circuit* const c = circuit_of(world, p)) {
        count = c->place_for(static_cast<int>(p.prefix.from), p, parts, most_pieces);
        if (count > 0) l.lands = c;
    }
    if (count == 0) parts[0] = {l.segment.get(), p.prefix.bytes};
    below_.receive(world, {}, parts, std::max(count, 1));
}
/// The circuit that the parcel is for, if it exists here.
inline circuit* trunk::circuit_of(int world, const parcel& p) {
    const auto found = circuits_.find(p.prefix.group);
    if (found == circuits_.end()) return nullptr;
    const std::vector<int>& members = found->second->world_;
    return p.prefix.from < members.size() && members[p.prefix.from] == world ? found->second : nullptr;
}
inline void trunk::arrived(int world, const parcel& p) {
    if (circuits_.contains(p.prefix.group)) {
        if (circuit* const c = circuit_of(world, p)) c->take(static_cast<int>(p.prefix.from), p);
    } else if (const auto past =
                   std::find_if(ended_.begin(), ended_.end(), [&](const auto& x) { return x.first == p.prefix.group; });
        past != ended_.end()) {  // the sender hears that this rank has left the group, which it may not have
        if (p.head.kind != frame_kind::welcome && p.head.what != control_kind::leave)
            post(world, nullptr, none, {p.prefix.group, static_cast<std::uint32_t>(past->second)},
                frame_of({control_kind::leave}), nullptr, nullptr, false);
    } else {
        // A stray number fills no memory: of groups that never come to be, only this many are kept.
        if (early_.size() == most_early_groups && !early_.contains(p.prefix.group)) early_.erase(early_.begin());
        early_[p.prefix.group].emplace_back(world, p);
    }
}

inline void trunk::heard(int world, const control_message& what) {
    if (what.what != control_kind::leave) return;
    at(world).left = true;
    for (const auto& [group, c] : circuits_)
        if (const int r = c->rank_of(world); r != none && c->at(r).contact) c->left(r);
}
inline void trunk::lost(int world, const char* why) {
    at(world).lost = true;
    at(world).why = why;
    for (const auto& [group, c] : circuits_)
        if (const int r = c->rank_of(world); r != none) c->lost(r, why);
}
inline void trunk::failed(int world, const char* why) {
    for (const auto& [group, c] : circuits_)
        if (const int r = c->rank_of(world); r != none && c->at(r).contact)
            c->reports_.push_back([r, text = std::string(why)](listener& to) { to.failed(r, text.c_str()); });
}

}  // namespace colls::inline v1::detail
