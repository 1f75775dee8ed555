// Messages between ranks that share memory but not buffers: processes of one host, or threads.
//
// Each ordered pair of ranks has two rings: one for messages, one for control messages, so that control messages pass
// messages that nobody has posted a receive for. Through them go the frames of frame.hpp, as through a connection: a
// long message streams, one side copies in while the other copies out, straight into its place. Whoever tells control
// messages counts up the receiver's bell, so that nobody has to look at all rings all the time; and the memory of rings
// that carry nothing is never touched.
//
// What lies in a ring outlives its writer. A rank that leaves closes its rings, which is heard when they are empty; one
// whose process has ended without doing so is lost, after what it had sent.
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/transport/shm/message_ring.hpp>
#include <colls/detail/transport/tcp/frame_reader.hpp>
#include <colls/detail/transport/tcp/frame_writer.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <bit>
#include <functional>
#include <memory>

namespace colls::inline v1::detail {

/// Capacities of a pair's rings, in bytes, rounded up to powers of two; and from how many bytes on a piece is stored
/// past the caches (through a ring that fits a core's own cache it never paid). All ranks of a group have the same.
struct memory_shape {
    std::size_t messages = std::size_t{256} << 10;
    std::size_t control = std::size_t{2} << 10;
    std::size_t stream_from = ~std::size_t{0};
};

/// One of each rank, which the others write to.
struct alignas(line) bell_line {
    std::atomic<std::uint32_t> rung;    ///< how often: there are control messages, or something for a rank that sleeps
    std::atomic<std::uint32_t> asleep;  ///< it sleeps on `rung`
    std::atomic<std::uint32_t> gone;    ///< the rank has done with this memory
};

class memory_transport final : public message_transport {
public:
    /// Of memory that n ranks need, aligned to `line`, for one transport of each; most of it is never touched.
    static std::size_t bytes(int n, const memory_shape& shape = {}) { return layout(n, shape).whole; }
    /// So many of them, the first, must be zero before the first rank comes; the others may be anything.
    static std::size_t zeroed_bytes(int n, const memory_shape& shape = {}) { return layout(n, shape).control_data; }

    /// `at`: where this process has the memory. `dead`: has that rank's process ended? It is asked about once in a
    /// millisecond, of each; it may be empty. Never waits; throws std::bad_alloc.
    memory_transport(std::byte* at, int rank, int n, std::function<bool(int)> dead, const memory_shape& shape = {});
    memory_transport(const memory_transport&) = delete;
    memory_transport& operator=(const memory_transport&) = delete;
    /// Leaves those that have not been told that the group is broken, and waits, at most `linger`, until what is queued
    /// has gone.
    ~memory_transport() override;
    /// Has that rank's transport ended? Then it never touches the memory again.
    static bool over(const std::byte* at, int rank) {
        return reinterpret_cast<const bell_line*>(at)[rank].gone.load(std::memory_order_acquire) != 0;
    }

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        end& e = with(peer);
        const bool first = e.outbox.empty();
        const std::uint64_t number = e.outbox.post(label, pieces, count);
        if (first) write_messages(e);
        if (!e.outbox.empty()) note(e);
        return number;
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        end& e = with(peer);
        const std::uint64_t number = e.inbox.post(label, pieces, count);
        note(e);
        return number;
    }
    std::uint64_t sent(int peer) const override { return with(peer).outbox.sent(); }
    std::uint64_t received(int peer) const override { return with(peer).inbox.arrived(); }
    /// No message moves any more after this, neither those posted before nor later ones. News do.
    void abandon() override {
        for (int r = 0; r < size_; ++r) {
            with(r).inbox.drop();
            with(r).outbox.drop();
            note(with(r));
        }
    }

    bool tell(int peer, const control_message& what) override { return say(with(peer), what); }
    void tell_all(const control_message& what) override {
        for (int r = 0; r < size_; ++r) say(with(r), what);
    }

    void progress() override;
    /// Yields for a while, then sleeps until one of the others has done something.
    void idle(double seconds) override;

private:
    /// What this rank has of one peer.
    struct end {
        int peer = none;
        ring_reader messages_in, control_in;
        ring_writer messages_out, control_out;
        posted_receives inbox;
        frame_reader reader, control_reader;
        frame_writer outbox;
        fifo<control_frame> queue;                     // of control messages
        std::size_t control_done = 0;                  // of the first of them, bytes gone
        std::uint64_t frames = 0, control_frames = 0;  // written
        bell_line* bell = nullptr;                     // the peer's
        bool listed = false;                           // in busy_
        bool told_broken = false, leaving = false, closed = false;
        std::uint32_t peer_closed = 0;
        bool over = false;  // nothing comes any more, and it has been said
    };
    enum how_closed : std::uint32_t { open = 0, left = 1, ended = 2 };
    static constexpr int most_iovecs = 64;
    static constexpr std::size_t buffer_bytes = 1024, most_control = 4096;

    struct layout {
        std::size_t messages, control;                          // capacities
        std::size_t states, message_data, control_data, whole;  // places; at 0 the bells
        layout(int ranks, const memory_shape& s)
            : messages(std::bit_ceil(std::max<std::size_t>(s.messages, 64))),
              control(std::bit_ceil(std::max<std::size_t>(s.control, 64))) {
            const auto n = static_cast<std::size_t>(ranks);
            states = n * sizeof(bell_line);
            control_data = states + n * n * 2 * sizeof(ring_state);
            message_data = (control_data + n * n * control + 4095) / 4096 * 4096;
            whole = (message_data + n * n * messages + line - 1) / line * line;
        }
    };

    end& with(int peer) { return ends_[static_cast<std::size_t>(peer)]; }
    const end& with(int peer) const { return ends_[static_cast<std::size_t>(peer)]; }
    void note(end& e) {
        if (e.listed || e.over || e.peer == rank_) return;
        e.listed = true;
        busy_.push_back(e.peer);
    }
    bool say(end& e, const control_message& what);
    void write_messages(end& e);
    void write_control(end& e);
    void close(end& e, std::uint32_t how);
    static void ring(const end& e) {
        e.bell->rung.fetch_add(1, std::memory_order_release);
        wake(e);
    }
    // The peer may fall asleep while this looks, and neither sees what the other has just written: its sleep is short.
    static void wake(const end& e) {
        if (e.bell->asleep.load(std::memory_order_relaxed) == 0) return;
        e.bell->asleep.store(0, std::memory_order_relaxed);
        e.bell->rung.fetch_add(1, std::memory_order_release);
        syscall(SYS_futex, &e.bell->rung, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }
    void sleep(double seconds);
    bool take(end& e, frame_reader& from, arrival what);
    void read(end& e, frame_reader& r, ring_reader& from, int turns = -1);  // all that is there, or in so many turns
    void serve(end& e);
    void answer_bell();
    void judge(end& e);
    void lose(end& e, const char* why);
    void look_for_deaths();
    static bool moves(const end& e) { return e.inbox.expecting() || e.inbox.dropping(); }
    static bool unsaid(const end& e) { return !e.outbox.empty() || !e.queue.empty() || (e.leaving && !e.closed); }
    bool something_to_do();

    int rank_, size_;
    std::unique_ptr<end[]> ends_;
    std::function<bool(int)> dead_;
    bell_line* bell_;
    std::uint32_t heard_bell_ = 0;
    list<int> busy_;  // peers with something to do; never more than `size_`
    double looked_ = 0;
    unsigned turns_ = 0;
    bool inside_ = false;
};

inline memory_transport::memory_transport(
    std::byte* at, int rank, int n, std::function<bool(int)> dead, const memory_shape& shape)
    : rank_(rank), size_(n), ends_(new end[static_cast<std::size_t>(n)]), dead_(std::move(dead)) {
    const layout l(n, shape);
    const auto bell = [&](int r) { return reinterpret_cast<bell_line*>(at) + r; };
    const auto pair = [&](int from, int to) {
        return static_cast<std::size_t>(from) * static_cast<std::size_t>(n) + static_cast<std::size_t>(to);
    };
    const auto state = [&](std::size_t p, std::size_t which) -> ring_state& {
        return reinterpret_cast<ring_state*>(at + l.states)[2 * p + which];
    };
    bell_ = bell(rank);
    busy_.reserve(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r) {
        end& e = with(r);
        e.peer = r;
        if (r == rank) {
            e.over = true;
            continue;
        }
        e.bell = bell(r);
        const std::size_t in = pair(r, rank), out = pair(rank, r);
        e.messages_in = {state(in, 0), at + l.message_data + in * l.messages, l.messages};
        e.messages_out = {state(out, 0), at + l.message_data + out * l.messages, l.messages, shape.stream_from};
        e.control_in = {state(in, 1), at + l.control_data + in * l.control, l.control};
        e.control_out = {state(out, 1), at + l.control_data + out * l.control, l.control, ~std::size_t{0}};
        e.reader.receives = &e.inbox;
        e.reader.open(buffer_bytes);
        e.control_reader.open(buffer_bytes);
    }
}

// ---- writing --------------------------------------------------------------------------------------------------------

inline void memory_transport::write_messages(end& e) {
    bool moved = false;
    while (!e.outbox.empty() && !e.over && !e.closed && !e.messages_out.full()) {
        iovec v[most_iovecs];
        const int count = e.outbox.gather(v, most_iovecs, e.frames);
        std::size_t whole = 0;
        for (int i = 0; i < count; ++i) whole += v[i].iov_len;
        const std::size_t n = e.messages_out.write(v, count);
        e.frames += e.outbox.advance(n);
        moved = moved || n > 0;
        if (n < whole) break;  // the other direction's turn
    }
    if (moved) wake(e);
}

inline void memory_transport::write_control(end& e) {
    bool told = false;
    while (!e.queue.empty() && !e.control_out.full()) {
        control_frame& n = e.queue.front();
        n.set_number(e.control_frames);
        const iovec v{n.data + e.control_done, n.bytes - e.control_done};
        e.control_done += e.control_out.write(&v, 1);
        told = true;
        if (e.control_done < n.bytes) break;
        ++e.control_frames;
        e.control_done = 0;
        e.queue.pop();
    }
    if (told) ring(e);
    if (e.leaving && !e.closed && e.queue.empty() && e.outbox.empty() && !e.outbox.cut()) close(e, left);
}

inline void memory_transport::close(end& e, std::uint32_t how) {
    e.closed = true;
    e.control_out.close(how);
    ring(e);
}

inline bool memory_transport::say(end& e, const control_message& what) {
    if (e.over || e.closed || e.peer_closed != open || e.queue.size() >= most_control) return false;
    if (what.what == control_kind::broken) e.told_broken = true;
    if (what.what == control_kind::leave)
        e.leaving = true;
    else
        e.queue.push(control_frame(what));
    write_control(e);
    if (unsaid(e)) note(e);
    return true;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// One thing that came. False: nothing more can be made of what was read.
inline bool memory_transport::take(end& e, frame_reader& from, arrival what) {
    switch (what) {
        case arrival::message:
            return true;
        case arrival::control:
            if (listening) listening->heard(e.peer, from.control());
            return true;
        case arrival::unexpected:
            if (listening)
                listening->unexpected(e.peer, from.wanted().label, from.got().label,
                    static_cast<std::size_t>(from.wanted().bytes), static_cast<std::size_t>(from.got().bytes));
            return true;
        case arrival::held:
        case arrival::nothing:
            return false;
        case arrival::welcome:
        case arrival::garbage:
            break;
    }
    lose(e, "what it wrote into the shared memory is not of this protocol");
    return false;
}

inline void memory_transport::read(end& e, frame_reader& r, ring_reader& from, int turns) {
    for (;; --turns) {
        while (take(e, r, r.next())) {}
        if (e.over || turns == 0) return;
        iovec v[most_iovecs];
        const int count = r.room(v, most_iovecs);
        const std::size_t n = count == 0 ? 0 : from.read(v, count);
        if (n == 0) return;
        r.add(n);
        wake(e);  // it may wait for room
    }
}

// ---- progress -------------------------------------------------------------------------------------------------------

inline void memory_transport::serve(end& e) {
    if (moves(e)) read(e, e.reader, e.messages_in, 4);
    write_messages(e);
    write_control(e);
    if (e.peer_closed != open) judge(e);
}

inline void memory_transport::answer_bell() {
    const std::uint32_t bell = bell_->rung.load(std::memory_order_acquire);
    if (bell == heard_bell_) return;
    heard_bell_ = bell;
    for (int r = 0; r < size_; ++r) {
        end& e = with(r);
        if (e.over) continue;
        e.peer_closed = e.control_in.closed();
        read(e, e.control_reader, e.control_in);
        if (e.peer_closed != open) judge(e);
    }
}

// The peer has closed: it is heard once there is nothing before it.
inline void memory_transport::judge(end& e) {
    if (e.over) return;
    read(e, e.reader, e.messages_in);
    if (e.over || e.reader.holding()) return;
    if (e.peer_closed == ended) {
        lose(e, "it has closed its end");
        return;
    }
    e.over = true;
    if (listening) listening->heard(e.peer, control_message{control_kind::leave});
}

inline void memory_transport::lose(end& e, const char* why) {
    if (e.over) return;
    e.over = true;
    e.queue.clear();
    if (listening) listening->lost(e.peer, why);
}

inline void memory_transport::look_for_deaths() {
    if (!dead_) return;
    const double now = seconds_now();
    if (now < looked_ + 1e-3) return;
    looked_ = now;
    for (int r = 0; r < size_; ++r) {
        end& e = with(r);
        if (e.over || !dead_(r)) continue;
        // All that it wrote is there now, whether it had time to ring or not.
        e.peer_closed = e.control_in.closed();
        read(e, e.control_reader, e.control_in);
        read(e, e.reader, e.messages_in);
        if (e.peer_closed == open)
            lose(e, "its process has ended");
        else
            judge(e);
    }
}

inline void memory_transport::progress() {
    if (inside_) return;
    inside_ = true;
    answer_bell();
    for (std::size_t i = 0; i < busy_.size();) {
        end& e = with(busy_[i]);
        if (!e.over) serve(e);
        if (!e.over && (moves(e) || unsaid(e))) {
            ++i;
        } else {
            e.listed = false;
            busy_.drop(i);
        }
    }
    if (++turns_ % 32 == 0) look_for_deaths();
    inside_ = false;
}

inline bool memory_transport::something_to_do() {
    if (bell_->rung.load(std::memory_order_acquire) != heard_bell_) return true;
    for (const int r : busy_) {
        end& e = with(r);
        if (e.over) continue;
        if (moves(e) && !e.messages_in.empty()) return true;
        if ((!e.outbox.empty() && !e.messages_out.full()) || (!e.queue.empty() && !e.control_out.full())) return true;
    }
    return false;
}

inline void memory_transport::idle(double seconds) {
    const double until = seconds_now() + seconds;
    for (int i = 0; !something_to_do(); ++i) {
        const double now = seconds_now();
        if (!(now < until)) return;
        if (dead_ && now >= looked_ + 1e-3) {
            turns_ = 31;  // the next progress looks
            if (i > 0) return;
        }
        if (i < 32) {
            sched_yield();
            continue;
        }
        sleep(std::min(until - now, 200e-6));
    }
}

inline void memory_transport::sleep(double seconds) {
    const timespec t{0, static_cast<long>(seconds * 1e9)};
    bell_->asleep.store(1, std::memory_order_seq_cst);
    if (!something_to_do()) syscall(SYS_futex, &bell_->rung, FUTEX_WAIT, heard_bell_, &t, nullptr, 0);
    bell_->asleep.store(0, std::memory_order_relaxed);
}

inline memory_transport::~memory_transport() {
    listening = nullptr;
    for (int r = 0; r < size_; ++r) {
        end& e = with(r);
        e.inbox.drop();
        if (!e.told_broken) e.leaving = true;
        note(e);
    }
    for (const double until = seconds_now() + linger;;) {
        progress();
        bool waiting = false;
        for (int r = 0; r < size_; ++r) {
            const end& e = with(r);
            waiting = waiting || (!e.over && e.peer_closed == open && (!e.outbox.empty() || !e.queue.empty()));
        }
        const double left_s = until - seconds_now();
        if (!waiting || left_s <= 0) break;
        idle(std::min(left_s, 0.1));
    }
    for (int r = 0; r < size_; ++r) {
        end& e = with(r);
        if (r != rank_ && !e.closed) close(e, e.leaving ? left : ended);
    }
    bell_->gone.store(1, std::memory_order_release);  // and whatever it did there before
}

}  // namespace colls::inline v1::detail
