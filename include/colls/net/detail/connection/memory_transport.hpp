// Messages between ranks that share memory but not buffers (processes of one host, or threads): one memory_connection
// for each rank of a group.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/connection/memory_connection.hpp>

#include <functional>

namespace colls::inline v1::detail {

class memory_transport final : public stream_transport<memory_connection> {
public:
    /// How many bytes of memory n ranks need, aligned to `line`, for one transport of each. Most of it is never
    /// touched.
    static std::size_t bytes(int n, const memory_shape& shape = {}) { return memory_layout(n, shape).whole; }
    /// How many of them, the first, must be zero before any rank makes its transport. The others may be anything.
    static std::size_t zeroed_bytes(int n, const memory_shape& shape = {}) {
        return memory_layout(n, shape).data[memory_layout::control];
    }

    /// `at`: where this process has the memory. `dead(rank)` says whether that rank's process has ended; it is asked
    /// about once a millisecond for each rank, and may be empty. Never waits; throws std::bad_alloc.
    memory_transport(std::byte* at, int rank, int n, std::function<bool(int)> dead, const memory_shape& shape = {})
        : stream_transport(rank, static_cast<unsigned>(n), at, memory_layout(n, shape)),
          dead_(std::move(dead)),
          doorbell_(memory_layout::doorbell_of(at, rank)) {
        for (int r = 0; r < n; ++r)
            if (r != rank) this->at(r).bind(shared_, r, shape.stream_from);
    }
    ~memory_transport() override {
        listening = nullptr;
        leave_all();
        for (int r = 0; r < size_; ++r) at(r).close();
        doorbell_.ended.store(1, std::memory_order_release);  // behind all that this rank has written to the memory
    }
    /// That rank's transport has ended: it never touches the memory again.
    static bool over(std::byte* at, int rank) {
        return memory_layout::doorbell_of(at, rank).ended.load(std::memory_order_acquire) != 0;
    }

    void progress() override {
        if (std::exchange(progressing_, true)) return;
        answer_doorbell();
        progress_busy();
        if (++calls_ % calls_between_checks == 0) check_for_dead_peers();
        progressing_ = false;
    }
    /// Yields for a while, then sleeps until a peer has written or read something.
    void idle(double seconds) override {
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

private:
    static constexpr unsigned calls_between_checks = 32;
    static constexpr double check_interval = 1e-3;  // seconds

    void answer_doorbell() {
        const std::uint32_t rings = doorbell_.rings.load(std::memory_order_acquire);
        if (rings == rings_heard_) return;
        rings_heard_ = rings;
        for (int r = 0; r < size_; ++r) at(r).read_control();
    }
    void check_for_dead_peers() {
        if (!dead_) return;
        const double now = seconds_now();
        if (now < checked_at_ + check_interval) return;
        checked_at_ = now;
        for (int r = 0; r < size_; ++r)
            if (!at(r).is_over() && dead_(r)) at(r).peer_has_died();
    }
    bool can_progress() {
        if (doorbell_.rings.load(std::memory_order_acquire) != rings_heard_) return true;
        for (const int r : shared_.busy)
            if (at(r).can_progress()) return true;
        return false;
    }
    void sleep(double seconds) {
        doorbell_.asleep.store(1, std::memory_order_seq_cst);
        if (!can_progress()) sleep_on(doorbell_.rings, rings_heard_, seconds);
        doorbell_.asleep.store(0, std::memory_order_relaxed);
    }

    std::function<bool(int)> dead_;
    doorbell& doorbell_;  // this rank's
    std::uint32_t rings_heard_ = 0;
    double checked_at_ = 0;   // when `dead_` was last asked
    double yields_from_ = 0;  // until then `idle` sleeps
};

}  // namespace colls::inline v1::detail
