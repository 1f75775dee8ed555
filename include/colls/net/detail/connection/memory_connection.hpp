// What one rank has of one peer that it shares memory with: two rings each way, and what is queued for them.
//
// Messages and control messages have a ring each, so that control messages pass messages that no receive has been
// posted for. The frames of frame.hpp go through the rings, as they go through a TCP connection. A long message
// streams: one side copies in while the other copies out, straight into the memory of the receive. A rank that writes
// control messages rings the receiver's doorbell, so a rank need not look at all rings all the time; the memory of
// rings that carry nothing is never touched.
//
// What lies in a ring outlives its writer. A rank that leaves closes its rings, which is reported when they have been
// read to the end. If a rank's process ends without closing them, the rank is reported as lost, after what it had
// written.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/futex.hpp>
#include <colls/net/detail/connection/message_ring.hpp>
#include <colls/net/detail/connection/stream_transport.hpp>

namespace colls::inline v1::detail {

/// What the connections of one transport share.
struct memory_transport_state : stream_state {
    std::byte* at;  ///< the shared memory
    memory_layout layout;
};

/// The rings of one kind from and to a peer.
struct ring_pair {
    ring_reader in;
    ring_writer out;
    frame_reader reader;
    std::uint64_t frames_written = 0;

    void bind(const memory_transport_state& s, memory_layout::kind k, int peer, std::size_t stream_from) {
        in = s.layout.reader(s.at, k, peer, s.rank);
        out = s.layout.writer(s.at, k, s.rank, peer, stream_from);
        reader.open(1024);
    }
};

class memory_connection : public stream_connection<memory_connection, memory_transport_state, ring_pair> {
public:
    /// Before anything else; not for the own rank. `state` outlives this.
    void bind(memory_transport_state& state, int peer, std::size_t stream_from) {
        shared_ = &state;
        peer_ = peer;
        peer_end_ = end_of_peer::none;
        doorbell_ = &memory_layout::doorbell_of(state.at, peer);
        messages_.bind(state, memory_layout::messages, peer, stream_from);
        control_rings_.bind(state, memory_layout::control, peer, ~std::size_t{0});
        messages_.reader.receives = &inbox_;
    }

    /// Does what can be done without waiting. False: there is nothing more to do, and the peer is no longer scheduled.
    bool progress() {
        if (!is_over()) {
            if (takes_messages()) read(messages_, 4);
            write_messages();
            write_control();
            if (peer_end_ != end_of_peer::none) check_end();
        }
        scheduled_ = !is_over() && (takes_messages() || has_unwritten());
        return scheduled_;
    }
    /// `progress` would move something.
    bool can_progress() {
        return !is_over() &&
               ((takes_messages() && !messages_.in.empty()) || (!outbox_.empty() && !messages_.out.full()) ||
                   (!control_.empty() && !control_rings_.out.full()));
    }
    /// Reads control messages, after the own doorbell was rung.
    void read_control() {
        if (is_over()) return;
        look_whether_closed();
        read(control_rings_, all);
        if (peer_end_ != end_of_peer::none) check_end();
    }
    /// The peer's process has ended: reads all that it wrote, whether or not it rang, and reports its end.
    void peer_has_died() {
        look_whether_closed();
        read(control_rings_, all);
        read(messages_, all);
        if (peer_end_ == end_of_peer::none)
            report_lost("its process has ended");
        else
            check_end();
    }
    bool is_connected() const { return !is_over(); }
    bool is_reachable() const { return peer_end_ == end_of_peer::none && own_end_ != own_end::closed; }
    /// Nothing comes from the peer any more, and the listener has been told; or it is the own rank.
    bool is_over() const { return peer_end_ == end_of_peer::reported; }

    /// Something is queued that the peer may still take.
    bool is_leaving(bool) const { return peer_end_ == end_of_peer::none && (!outbox_.empty() || !control_.empty()); }
    /// Nothing more is written.
    void close() {
        if (shared_ != nullptr && own_end_ != own_end::closed)
            close_rings(told_broken_ && own_end_ != own_end::leaving ? end_of_peer::closed : end_of_peer::left);
    }

private:
    friend class stream_connection<memory_connection, memory_transport_state, ring_pair>;

    static constexpr int all = -1;  // that a ring holds

    /// The first three also in ring_state::closed.
    enum class end_of_peer : std::uint32_t {
        none,     ///< the peer may write
        left,     ///< it has closed its rings, which have not been read to the end
        closed,   ///< likewise, but without saying `leave`
        reported  ///< to the listener, as `leave` or as the peer's loss
    };
    enum class own_end : std::uint8_t {
        open,
        leaving,  ///< the rings are to be closed once all that is queued has been written
        closed
    };

    bool takes_messages() const { return !inbox_.empty() || inbox_.dropping(); }
    bool has_unwritten() const { return !outbox_.empty() || !control_.empty() || own_end_ == own_end::leaving; }
    /// Before the rings are read: what is in them then is all there will ever be.
    void look_whether_closed() {
        peer_end_ = std::min(static_cast<end_of_peer>(control_rings_.in.closed()), end_of_peer::closed);
    }
    // The rings are there from the beginning.
    static void connect() {}
    bool should_report(ring_pair&, const control_message& what) {
        if (what.what == control_kind::broken) read(messages_, all);  // it comes behind the messages written before it
        return !is_over();
    }
    void end_by_garbage(ring_pair&) { report_lost("what it wrote into the shared memory is not of this protocol"); }
    // True: `leave` goes as a control message; here it is told by closing the rings.
    bool start_leave() {
        own_end_ = own_end::leaving;
        return false;
    }
    void write_messages() {
        bool moved = false;
        while (!outbox_.empty() && !is_over() && own_end_ != own_end::closed && !messages_.out.full()) {
            iovec v[most_iovecs];
            const int count = outbox_.gather(v, most_iovecs, messages_.frames_written);
            const std::size_t n = messages_.out.write(v, count);
            messages_.frames_written += outbox_.advance(n);
            moved = moved || n > 0;
            if (n < sum_of(v, count)) break;  // now read: both directions of a long exchange move by turns
        }
        if (moved) wake_peer();
    }
    void write_control() {
        bool moved = false;
        for (; !control_.empty() && !control_rings_.out.full(); moved = true)
            if (write_frame(control_rings_, control_.front())) control_.pop();
        if (moved) ring_doorbell();
        if (own_end_ == own_end::leaving && control_.empty() && outbox_.empty() && !outbox_.cut())
            close_rings(end_of_peer::left);
    }
    static std::size_t write_some(ring_pair& to, std::byte* from, std::size_t bytes) {
        const iovec v{from, bytes};
        return to.out.write(&v, 1);
    }
    bool may_read(const ring_pair&, bool /*first*/) const { return !is_over(); }
    std::size_t read_some(ring_pair& from, const iovec* v, int count) {
        const std::size_t n = from.in.read(v, count);
        if (n > 0) wake_peer();  // it may wait for room
        return n;
    }
    void close_rings(end_of_peer how) {
        own_end_ = own_end::closed;
        control_rings_.out.close(static_cast<std::uint32_t>(how));
        ring_doorbell();
    }
    void ring_doorbell() {
        doorbell_->rings.fetch_add(1, std::memory_order_release);
        wake_peer();
    }
    // The peer may fall asleep during this, and neither sees what the other has just written: so its sleep is short.
    void wake_peer() {
        if (doorbell_->asleep.load(std::memory_order_relaxed) == 0) return;
        doorbell_->asleep.store(0, std::memory_order_relaxed);
        doorbell_->rings.fetch_add(1, std::memory_order_release);
        wake_at(doorbell_->rings, 1);
    }
    // The peer has closed its rings, which is reported once they have been read to the end.
    void check_end() {
        if (is_over()) return;
        read(messages_, all);
        if (is_over() || messages_.reader.holding()) return;
        if (peer_end_ == end_of_peer::closed) return report_lost("it has closed its end");
        peer_end_ = end_of_peer::reported;
        if (listener()) listener()->heard(peer_, control_message{control_kind::leave});
    }
    void report_lost(const char* why) {
        if (is_over()) return;
        peer_end_ = end_of_peer::reported;
        control_.clear();
        if (listener()) listener()->lost(peer_, why);
    }

    doorbell* doorbell_ = nullptr;  // the peer's
    ring_pair messages_, control_rings_;
    own_end own_end_ = own_end::open;
    end_of_peer peer_end_ = end_of_peer::reported;  // of the own rank, which has no connection
};

}  // namespace colls::inline v1::detail
