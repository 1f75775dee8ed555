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

#include <colls/detail/support/clock.hpp>
#include <colls/detail/transport/shm/memory_layout.hpp>
#include <colls/detail/transport/tcp/frame_reader.hpp>
#include <colls/detail/transport/tcp/frame_writer.hpp>
#include <colls/schedule.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace colls::inline v1::detail {

/// What the connections of one transport share.
struct memory_transport_state {
    message_transport& transport;  ///< its listener gets what arrives
    std::byte* at;                 ///< the shared memory
    memory_layout layout;
    int rank;
    list<int> busy{};  ///< peers with work to do, each once
};

class memory_connection {
public:
    memory_connection() = default;
    memory_connection(const memory_connection&) = delete;
    memory_connection& operator=(const memory_connection&) = delete;

    /// Before anything else; not for the own rank. `state` outlives this.
    void bind(memory_transport_state& state, int peer, std::size_t stream_from) {
        shared_ = &state;
        peer_ = peer;
        peer_end_ = end_of_peer::none;
        const memory_layout& l = state.layout;
        doorbell_ = &memory_layout::doorbell_of(state.at, peer);
        const std::size_t in = l.ring(peer, state.rank), out = l.ring(state.rank, peer);
        messages_in_ = {l.message_state(state.at, in), state.at + l.message_data + in * l.messages, l.messages};
        messages_out_ = {
            l.message_state(state.at, out), state.at + l.message_data + out * l.messages, l.messages, stream_from};
        control_in_ = {l.control_state(state.at, in), state.at + l.control_data + in * l.control, l.control};
        control_out_ = {
            l.control_state(state.at, out), state.at + l.control_data + out * l.control, l.control, ~std::size_t{0}};
        reader_.receives = &inbox_;
        reader_.open(buffer_bytes);
        control_reader_.open(buffer_bytes);
    }

    std::uint64_t send(const message_label& label, const piece* pieces, int count) {
        const bool first = outbox_.empty();
        const std::uint64_t number = outbox_.post(label, pieces, count);
        if (first) write_messages();
        if (!outbox_.empty()) schedule();
        return number;
    }
    std::uint64_t receive(const message_label& label, const piece* pieces, int count) {
        const std::uint64_t number = inbox_.post(label, pieces, count);
        schedule();
        return number;
    }
    std::uint64_t sent() const { return outbox_.sent(); }
    std::uint64_t received() const { return inbox_.arrived(); }
    /// No message moves any more; control messages do.
    void abandon() {
        inbox_.drop();
        outbox_.drop();
        schedule();
    }
    /// False: there is no way to the peer.
    bool queue_control(const control_message& what);

    /// Adds the peer to those with work to do.
    void schedule() {
        if (scheduled_ || is_over()) return;
        scheduled_ = true;
        shared_->busy.push_back(peer_);
    }
    /// Does what can be done without waiting. False: there is nothing more to do, and the peer is no longer scheduled.
    bool progress() {
        if (!is_over()) {
            if (takes_messages()) read(reader_, messages_in_, 4);
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
               ((takes_messages() && !messages_in_.empty()) || (!outbox_.empty() && !messages_out_.full()) ||
                   (!control_queue_.empty() && !control_out_.full()));
    }
    /// Reads control messages, after the own doorbell was rung.
    void read_control() {
        if (is_over()) return;
        look_whether_closed();
        read(control_reader_, control_in_);
        if (peer_end_ != end_of_peer::none) check_end();
    }
    /// The peer's process has ended: reads all that it wrote, whether or not it rang, and reports its end.
    void peer_has_died() {
        look_whether_closed();
        read(control_reader_, control_in_);
        read(reader_, messages_in_);
        if (peer_end_ == end_of_peer::none)
            report_lost("its process has ended");
        else
            check_end();
    }
    /// Nothing comes from the peer any more, and the listener has been told; or it is the own rank.
    bool is_over() const { return peer_end_ == end_of_peer::reported; }

    /// The transport is being destroyed: drops the receives, and leaves unless the peer knows that the group is broken.
    void begin_leaving() {
        inbox_.drop();
        if (!told_broken_ && own_end_ == own_end::open) own_end_ = own_end::leaving;
        schedule();
    }
    /// Something is queued that the peer may still take.
    bool is_leaving() const { return peer_end_ == end_of_peer::none && (!outbox_.empty() || !control_queue_.empty()); }
    /// Nothing more is written.
    void close() {
        if (shared_ != nullptr && own_end_ != own_end::closed)
            close_rings(own_end_ == own_end::leaving ? closed_by_leave : closed_without_leave);
    }

private:
    // In ring_state::closed.
    static constexpr std::uint32_t closed_by_leave = 1, closed_without_leave = 2;
    static constexpr int most_iovecs = 64;
    static constexpr std::size_t buffer_bytes = 1024, most_control = 4096;

    enum class end_of_peer : std::uint8_t {
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

    message_transport::listener* listener() const { return shared_->transport.listening; }
    bool takes_messages() const { return inbox_.expecting() || inbox_.dropping(); }
    bool has_unwritten() const { return !outbox_.empty() || !control_queue_.empty() || own_end_ == own_end::leaving; }
    /// Before the rings are read: what is in them then is all there will ever be.
    void look_whether_closed() {
        const std::uint32_t how = control_in_.closed();
        peer_end_ = how == 0                      ? end_of_peer::none
                    : how == closed_without_leave ? end_of_peer::closed
                                                  : end_of_peer::left;
    }
    void write_messages();
    void write_control();
    void close_rings(std::uint32_t how) {
        own_end_ = own_end::closed;
        control_out_.close(how);
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
        syscall(SYS_futex, &doorbell_->rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
    bool handle(frame_reader& r, arrival what);
    void read(frame_reader& r, ring_reader& from, int most_reads = -1);  // -1: all that is there
    void check_end();
    void report_lost(const char* why) {
        if (is_over()) return;
        peer_end_ = end_of_peer::reported;
        control_queue_.clear();
        if (listener()) listener()->lost(peer_, why);
    }

    memory_transport_state* shared_ = nullptr;
    int peer_ = none;
    doorbell* doorbell_ = nullptr;  // the peer's
    ring_reader messages_in_, control_in_;
    ring_writer messages_out_, control_out_;
    posted_receives inbox_;
    frame_reader reader_, control_reader_;
    frame_writer outbox_;
    fifo<control_frame> control_queue_;
    std::size_t control_written_ = 0;  // bytes of the first control message
    std::uint64_t frames_written_ = 0, control_frames_written_ = 0;
    bool scheduled_ = false;    // in `busy`
    bool told_broken_ = false;  // this rank has said that the group is broken
    own_end own_end_ = own_end::open;
    end_of_peer peer_end_ = end_of_peer::reported;  // of the own rank, which has no connection
};

// ---- writing --------------------------------------------------------------------------------------------------------

inline void memory_connection::write_messages() {
    bool moved = false;
    while (!outbox_.empty() && !is_over() && own_end_ != own_end::closed && !messages_out_.full()) {
        iovec v[most_iovecs];
        const int count = outbox_.gather(v, most_iovecs, frames_written_);
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const std::size_t n = messages_out_.write(v, count);
        frames_written_ += outbox_.advance(n);
        moved = moved || n > 0;
        if (n < whole) break;  // now read: both directions of a long exchange move by turns
    }
    if (moved) wake_peer();
}

inline void memory_connection::write_control() {
    bool moved = false;
    while (!control_queue_.empty() && !control_out_.full()) {
        control_frame& f = control_queue_.front();
        f.set_number(control_frames_written_);
        const iovec v{f.data + control_written_, f.bytes - control_written_};
        control_written_ += control_out_.write(&v, 1);
        moved = true;
        if (control_written_ < f.bytes) break;
        ++control_frames_written_;
        control_written_ = 0;
        control_queue_.pop();
    }
    if (moved) ring_doorbell();
    if (own_end_ == own_end::leaving && control_queue_.empty() && outbox_.empty() && !outbox_.cut())
        close_rings(closed_by_leave);
}

inline bool memory_connection::queue_control(const control_message& what) {
    if (peer_end_ != end_of_peer::none || own_end_ == own_end::closed || control_queue_.size() >= most_control)
        return false;
    if (what.what == control_kind::broken) told_broken_ = true;
    if (what.what == control_kind::leave)
        own_end_ = own_end::leaving;
    else
        control_queue_.push(control_frame(what));
    write_control();
    if (has_unwritten()) schedule();
    return true;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// False: the reader has nothing more.
inline bool memory_connection::handle(frame_reader& r, arrival what) {
    switch (what) {
        case arrival::message:
            return true;
        case arrival::control:
            if (listener()) listener()->heard(peer_, r.control());
            return true;
        case arrival::unexpected:
            if (listener())
                listener()->unexpected(peer_, r.wanted().label, r.got().label,
                    static_cast<std::size_t>(r.wanted().bytes), static_cast<std::size_t>(r.got().bytes));
            return true;
        case arrival::held:
        case arrival::nothing:
            return false;
        case arrival::welcome:
        case arrival::garbage:
            break;
    }
    report_lost("what it wrote into the shared memory is not of this protocol");
    return false;
}

inline void memory_connection::read(frame_reader& r, ring_reader& from, int most_reads) {
    for (;; --most_reads) {
        while (handle(r, r.next())) {}
        if (is_over() || most_reads == 0) return;
        iovec v[most_iovecs];
        const int count = r.room(v, most_iovecs);
        const std::size_t n = count == 0 ? 0 : from.read(v, count);
        if (n == 0) return;
        r.add(n);
        wake_peer();  // it may wait for room
    }
}

// The peer has closed its rings, which is reported once they have been read to the end.
inline void memory_connection::check_end() {
    if (is_over()) return;
    read(reader_, messages_in_);
    if (is_over() || reader_.holding()) return;
    if (peer_end_ == end_of_peer::closed) {
        report_lost("it has closed its end");
        return;
    }
    peer_end_ = end_of_peer::reported;
    if (listener()) listener()->heard(peer_, control_message{control_kind::leave});
}

}  // namespace colls::inline v1::detail
