// Messages between ranks that share memory but not buffers (processes of one host, or threads): one memory_connection
// for each rank of a group.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/detail/transport/shm/memory_connection.hpp>

#include <time.h>
#include <functional>
#include <memory>

namespace colls::inline v1::detail {

class memory_transport final : public message_transport {
public:
    /// How many bytes of memory n ranks need, aligned to `line`, for one transport of each. Most of it is never
    /// touched.
    static std::size_t bytes(int n, const memory_shape& shape = {}) { return memory_layout(n, shape).whole; }
    /// How many of them, the first, must be zero before any rank makes its transport. The others may be anything.
    static std::size_t zeroed_bytes(int n, const memory_shape& shape = {}) {
        return memory_layout(n, shape).control_data;
    }

    /// `at`: where this process has the memory. `dead(rank)` says whether that rank's process has ended; it is asked
    /// about once a millisecond for each rank, and may be empty. Never waits; throws std::bad_alloc.
    memory_transport(std::byte* at, int rank, int n, std::function<bool(int)> dead, const memory_shape& shape = {});
    memory_transport(const memory_transport&) = delete;
    memory_transport& operator=(const memory_transport&) = delete;
    /// Leaves the peers that have not been told that the group is broken, and waits, at most `linger`, until what is
    /// queued has been written.
    ~memory_transport() override;
    /// That rank's transport has ended: it never touches the memory again.
    static bool over(const std::byte* at, int rank) {
        return memory_layout::doorbell_of(at, rank).ended.load(std::memory_order_acquire) != 0;
    }

    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        return with(peer).send(label, pieces, count);
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        return with(peer).receive(label, pieces, count);
    }
    std::uint64_t sent(int peer) const override { return with(peer).sent(); }
    std::uint64_t received(int peer) const override { return with(peer).received(); }
    /// No message moves any more after this, neither those posted before nor later ones. Control messages do.
    void abandon() override {
        for (int r = 0; r < size_; ++r) with(r).abandon();
    }

    bool tell(int peer, const control_message& what) override { return with(peer).queue_control(what); }
    void tell_all(const control_message& what) override {
        for (int r = 0; r < size_; ++r) with(r).queue_control(what);
    }

    void progress() override;
    /// Yields for a while, then sleeps until a peer has written or read something.
    void idle(double seconds) override;

private:
    static constexpr unsigned calls_between_checks = 32;
    static constexpr double check_interval = 1e-3;  // seconds

    memory_connection& with(int peer) { return peers_[static_cast<std::size_t>(peer)]; }
    const memory_connection& with(int peer) const { return peers_[static_cast<std::size_t>(peer)]; }
    void answer_doorbell();
    void check_for_dead_peers();
    bool can_progress();
    void sleep(double seconds);

    memory_transport_state shared_;
    int size_;
    std::unique_ptr<memory_connection[]> peers_;
    std::function<bool(int)> dead_;
    doorbell& doorbell_;  // this rank's
    std::uint32_t rings_heard_ = 0;
    double checked_at_ = 0;     // when `dead_` was last asked
    double yields_from_ = 0;    // until then `idle` sleeps
    unsigned calls_ = 0;        // of `progress`
    bool progressing_ = false;  // a listener may call `progress` again
};

inline memory_transport::memory_transport(
    std::byte* at, int rank, int n, std::function<bool(int)> dead, const memory_shape& shape)
    : shared_{*this, at, memory_layout(n, shape), rank},
      size_(n),
      peers_(new memory_connection[static_cast<std::size_t>(n)]),
      dead_(std::move(dead)),
      doorbell_(memory_layout::doorbell_of(at, rank)) {
    shared_.busy.reserve(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r)
        if (r != rank) with(r).bind(shared_, r, shape.stream_from);
}

inline void memory_transport::answer_doorbell() {
    const std::uint32_t rings = doorbell_.rings.load(std::memory_order_acquire);
    if (rings == rings_heard_) return;
    rings_heard_ = rings;
    for (int r = 0; r < size_; ++r) with(r).read_control();
}

inline void memory_transport::check_for_dead_peers() {
    if (!dead_) return;
    const double now = seconds_now();
    if (now < checked_at_ + check_interval) return;
    checked_at_ = now;
    for (int r = 0; r < size_; ++r)
        if (!with(r).is_over() && dead_(r)) with(r).peer_has_died();
}

inline void memory_transport::progress() {
    if (progressing_) return;
    progressing_ = true;
    answer_doorbell();
    for (std::size_t i = 0; i < shared_.busy.size();) {
        if (with(shared_.busy[i]).progress())
            ++i;
        else
            shared_.busy.drop(i);
    }
    if (++calls_ % calls_between_checks == 0) check_for_dead_peers();
    progressing_ = false;
}

inline bool memory_transport::can_progress() {
    if (doorbell_.rings.load(std::memory_order_acquire) != rings_heard_) return true;
    for (const int r : shared_.busy)
        if (with(r).can_progress()) return true;
    return false;
}

inline void memory_transport::idle(double seconds) {
    const double until = seconds_now() + seconds;
    for (int i = 0; !can_progress(); ++i) {
        const double now = seconds_now();
        if (!(now < until)) return;
        if (dead_ && now >= checked_at_ + check_interval) {
            calls_ = calls_between_checks - 1;  // the next `progress` checks
            if (i > 0) return;
        }
        if (i < 32 && now >= yields_from_) {
            sched_yield();
            // Other programs have the core by turns: a rank that sleeps is woken at once, one that yields waits its
            // turn.
            if (const double after = seconds_now(); after - now > 100e-6) yields_from_ = after + 20e-3;
            continue;
        }
        sleep(std::min(until - now, 200e-6));
    }
}

inline void memory_transport::sleep(double seconds) {
    const timespec t{0, static_cast<long>(seconds * 1e9)};
    doorbell_.asleep.store(1, std::memory_order_seq_cst);
    if (!can_progress()) syscall(SYS_futex, &doorbell_.rings, FUTEX_WAIT, rings_heard_, &t, nullptr, 0);
    doorbell_.asleep.store(0, std::memory_order_relaxed);
}

inline memory_transport::~memory_transport() {
    listening = nullptr;
    for (int r = 0; r < size_; ++r) with(r).begin_leaving();
    for (const double until = seconds_now() + linger;;) {
        progress();
        bool waiting = false;
        for (int r = 0; r < size_; ++r) waiting = waiting || with(r).is_leaving();
        const double remaining = until - seconds_now();
        if (!waiting || remaining <= 0) break;
        idle(std::min(remaining, 0.1));
    }
    for (int r = 0; r < size_; ++r) with(r).close();
    doorbell_.ended.store(1, std::memory_order_release);  // behind all that this rank has written to the memory
}

}  // namespace colls::inline v1::detail
