// What transports over streams of bytes have in common: TCP, and rings in shared memory.
//
// Between two ranks, messages and control messages go through streams of frames of their own (frame_stream.hpp), so
// that control messages pass messages that no receive has been posted for.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/net/detail/connection/frame_stream.hpp>
#include <colls/schedule.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// What the connections of one transport share.
struct stream_state {
    message_transport& transport;  ///< its listener gets what arrives
    int rank;
    list<int> busy{};  ///< peers with work to do, each once
};

/// What one rank has of one peer. `Self`, which is derived from this, owns the streams, and says how they are read and
/// written, and when the peer's end is reported. `State` is derived from stream_state; a `Stream` has a frame_reader
/// `reader`, and counts its `frames_written`.
template <class Self, class State, class Stream>
class stream_connection {
public:
    using shared_state = State;

    std::uint64_t send(const message_label& label, const piece* pieces, int count) {
        const bool first = outbox_.empty();
        const std::uint64_t number = outbox_.post(label, pieces, count);
        self().connect();
        if (first) self().write_messages();
        schedule();
        return number;
    }
    std::uint64_t receive(const message_label& label, const piece* pieces, int count) {
        const std::uint64_t number = inbox_.post(label, pieces, count);
        self().connect();
        schedule();
        return number;
    }
    posted_messages& sends() { return outbox_; }
    posted_messages& receives() { return inbox_; }
    void abandon() {
        inbox_.drop();
        outbox_.drop();
        schedule();
    }

    /// Queues a control message; does not connect. False: there is no way to the peer.
    bool queue_control(const control_message& what) {
        if (!self().is_reachable() || control_.size() >= most_control) return false;
        told_broken_ = told_broken_ || what.what == control_kind::broken;
        if (what.what != control_kind::leave || self().start_leave()) control_.push(control_frame(what));
        self().write_control();
        schedule();
        return true;
    }
    /// Connects, if this rank has not, and queues a control message. False: there is no way to the peer.
    bool tell(const control_message& what) {
        self().connect();
        return queue_control(what);
    }

    void schedule() {
        if (scheduled_ || self().is_over()) return;
        scheduled_ = true;
        shared_->busy.push_back(peer_);
    }
    /// The transport is being destroyed: drops the receives, and says `leave` unless the peer knows that the group is
    /// broken.
    void begin_leaving() {
        inbox_.drop();
        if (!self().is_connected()) return;
        if (!told_broken_) queue_control(control_message{control_kind::leave});
        schedule();
    }

protected:
    static constexpr int most_iovecs = 64;
    static constexpr std::size_t most_control = 4096;

    message_transport::listener* listener() const { return shared_->transport.listening; }

    // True: the frame has been written whole. Otherwise `control_on_` says whether it has its number already.
    bool write_frame(Stream& s, control_frame& f) {
        if (control_on_ == nullptr) {
            f.set_number(s.frames_written++);
            control_on_ = &s;
            control_written_ = 0;
        }
        while (control_written_ < f.bytes) {
            const std::size_t n = self().write_some(s, f.data + control_written_, f.bytes - control_written_);
            if (n == 0) return false;
            control_written_ += n;
        }
        control_on_ = nullptr;
        return true;
    }

    // Reads the stream, at most this many times, and reports what has arrived.
    void read(Stream& s, int most) {
        for (int reads = 0;; ++reads) {
            report_arrivals(s);
            if (reads == most || !self().may_read(s, reads == 0)) return;
            iovec v[most_iovecs];
            const int count = s.reader.room(v, most_iovecs);
            const std::size_t n = count == 0 ? 0 : self().read_some(s, v, count);
            if (n == 0) return;
            s.reader.add(n);
        }
    }

    State* shared_ = nullptr;
    int peer_ = none;
    posted_messages inbox_;
    frame_writer outbox_;
    fifo<control_frame> control_;
    Stream* control_on_ = nullptr;     // where the first of them has a number; null: it has none yet
    std::size_t control_written_ = 0;  // bytes of it, once it has a number
    bool scheduled_ = false;           // in `busy`
    bool told_broken_ = false;         // this rank has said that the group is broken

private:
    friend Self;
    stream_connection() = default;

    Self& self() { return static_cast<Self&>(*this); }

    void report_arrivals(Stream& s) {
        for (;;) {
            const arrival what = s.reader.next();
            switch (what) {
                case arrival::control:
                    if (self().should_report(s, s.reader.control()) && listener())
                        listener()->heard(peer_, s.reader.control());
                    continue;
                case arrival::unexpected:
                    if (const message_header &wanted = s.reader.wanted(), &got = s.reader.got(); listener())
                        listener()->unexpected(peer_, wanted.label, got.label, static_cast<std::size_t>(wanted.bytes),
                            static_cast<std::size_t>(got.bytes));
                    continue;
                case arrival::nothing:
                case arrival::held:
                    return;
                case arrival::welcome:
                    if constexpr (requires { s.welcomed; }) {
                        s.welcomed = true;
                        continue;
                    }
                    [[fallthrough]];
                case arrival::garbage:
                    return self().end_by_garbage(s);
            }
        }
    }
};

/// Until when a rank that leaves waits for what may never come.
inline double moment_of(double linger) { return seconds_now() + std::min(linger / 4, 0.5); }

/// Makes progress until `done`, for at most t.linger seconds.
template <class Done>
void linger_until(message_transport& t, Done done) {
    for (const double begin = seconds_now();;) {
        t.progress();
        const double now = seconds_now();
        if (done() || now - begin > t.linger) return;
        t.idle(std::min((now - begin) / 4 + 1e-4, 0.02));  // no event tells that the last byte has been acknowledged
    }
}

/// The transport of one rank: a connection for each rank of the group.
template <class Connection>
class stream_transport : public message_transport {
public:
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) final {
        return at(peer).send(label, pieces, count);
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) final {
        return at(peer).receive(label, pieces, count);
    }
    std::uint64_t sent(int peer) const final { return at(peer).sends().finished(); }
    std::uint64_t received(int peer) const final { return at(peer).receives().finished(); }
    /// No message moves any more after this, neither those posted before nor later ones. Control messages do.
    void abandon() final {
        for (int r = 0; r < size_; ++r) at(r).abandon();
    }
    bool tell(int peer, const control_message& what) final { return at(peer).tell(what); }
    void tell_all(const control_message& what) final {
        for (int r = 0; r < size_; ++r)
            if (at(r).is_connected()) at(r).queue_control(what);
    }

protected:
    /// `more`: what the state of the connections has beside a stream_state. Throws std::bad_alloc.
    template <class... More>
    stream_transport(int rank, std::size_t size, More&&... more)
        : shared_{{*this, rank}, std::forward<More>(more)...},
          size_(static_cast<int>(size)),
          peers_(new Connection[size]) {
        shared_.busy.reserve(size);
    }

    Connection& at(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }

    void progress_busy() {
        for (std::size_t i = 0; i < shared_.busy.size();)
            if (at(shared_.busy[i]).progress())
                ++i;
            else
                shared_.busy.drop(i);
    }
    // Says `leave` to the peers that have not been told that the group is broken, and waits, at most `linger`, until
    // what is queued has gone.
    void leave_all() {
        for (int r = 0; r < size_; ++r) at(r).begin_leaving();
        const double moment = moment_of(linger);
        linger_until(*this, [&] {
            const bool patient = seconds_now() <= moment;
            bool waiting = false;
            for (int r = 0; r < size_; ++r) waiting = waiting || at(r).is_leaving(patient);
            return !waiting;
        });
    }

    typename Connection::shared_state shared_;
    int size_;
    unsigned calls_ = 0;        // of `progress`
    bool progressing_ = false;  // a listener may call `progress` again

private:
    std::unique_ptr<Connection[]> peers_;
};

}  // namespace colls::inline v1::detail
