// What communicators do beside collectives: split, shrink, leave, abort, dump; and the second thread of a
// progress_thread.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/backend/split.hpp>
#include <colls/detail/perform/interface.hpp>
#include <colls/detail/support/rank_error.hpp>

#include <atomic>
#include <limits>
#include <memory>
#include <thread>

namespace colls::inline v1::detail {

inline joined_group split(rank_context& self, int color, int key) { return joined(split_off(self, color, key)); }
/// A shrink, in which f() makes the new group.
template <class F>
joined_group shrink_by(rank_context& self, F f) {
    const progress_lock mine(self);
    std::atomic<std::uint32_t>& stage = self.memory.state(self.rank).shrinks;
    if (stage.load(std::memory_order_relaxed) == shrink_stage::over)
        throw_in_call(self.rank, "shrink", errc::invalid_argument,
            error_text() << "this rank has shrunk the group already: go on with the group that it got then");
    // This rank takes no part in calls of its other groups meanwhile: their ranks are told not to wait for it. Another
    // thread may make such calls, and nothing is told then.
    const bool alone = gate_lock::is_alone() || self.operations.cycle->gate.is_shared();
    const auto tell = [&](std::uint64_t number) {
        if (!alone) return;
        self.for_others([number](rank_context& x) {
            x.memory.state(x.rank).away.store(number, std::memory_order_release);
            x.backend->absent(x, number);
        });
    };
    tell(self.number);
    const at_end back{[&] { tell(0); }};
    std::unique_ptr<rank_context> left = f();
    stage.store(shrink_stage::over, std::memory_order_relaxed);
    left->join(self);  // the two share a progress thread, and what is behind their backends
    put_label(*left, error_text() << self.label << ".shrunk");
    left->began = self.began;
    return joined(std::move(left));
}
inline joined_group shrink(rank_context& self) {
    return shrink_by(self, [&] { return self.backend->shrink(self); });
}
inline void leave_group(rank_context& self) {
    if (self.is_foreign()) return;
    std::shared_ptr<rank_context> share;  // outlives the lock
    const progress_lock mine(self, progress_lock::quiet{});
    share = std::move(self.held);
}
inline host_map hosts_of(const rank_context& self) { return self.layout.hosts; }
inline void dump(rank_context& self) {
    const progress_lock mine(self, progress_lock::any_thread{});
    for (const double until = seconds_now() + self.backend->ask_for_waits(self); seconds_now() < until; sched_yield())
        self.backend->look(self, nullptr, 0);
    print_dump(self, nullptr);
}
inline void abort_group(rank_context& self, std::string_view why) {
    const progress_lock mine(self, progress_lock::any_thread{});
    break_group(
        self, errc::peer_failed, none, none, error_text() << "colls: rank " << self.rank << " aborted: " << why);
    if (!self.in_call()) leave(self);  // else the thread that is in a call leaves it
    send_reports(self);
}
inline void tie_parts(rank_context& self) {
    const progress_lock mine(self);
    static std::atomic<unsigned> ties{0};
    if (self.tie == 0) self.tie = ties.fetch_add(1, std::memory_order_relaxed) + 1;
}
inline void set_timeout(rank_context& self, double seconds, bool off) {
    const progress_lock mine(self);
    if (!(seconds > 0))
        throw_in_call(self.rank, "set_timeout", errc::invalid_argument,
            error_text() << seconds << " s: a deadline is above 0, and duration::max() means none");
    self.env.timeout = off ? std::numeric_limits<double>::infinity() : seconds;
}

/// Advances the operations of a rank context and of those split from it; false where none is in flight, or where
/// another thread is inside the gate, which advances them.
inline bool progress_locked(rank_context& self) {
    group_cycle& cycle = *self.operations.cycle;
    if (!cycle.gate.try_enter()) return false;
    const gate_lock inside(cycle, false);
    if (cycle.in_flight == 0) return false;
    if (!self.in_call()) try {
            advance_all(self);
            no_longer_active(self);
        } catch (...) {  // the group is broken, and its next call reports that
            call_threw(self, "an operation in flight");
            no_longer_active(self);
        }
    progress_others(self);
    return true;
}

struct progress_worker final : held_by_program {
    explicit progress_worker(rank_context& own) : group(own.shared_from_this()), self(own) {
        if (self.is_foreign() || gate_lock::is_within(*self.operations.cycle)) refuse_progress(self);
        group_cycle& cycle = *self.operations.cycle;
        const gate_lock inside(cycle, cycle.gate.enter_by_turn());
        if (cycle.gate.is_shared())
            throw_of_rank(self.rank, errc::invalid_argument,
                error_text() << "a progress_thread already serves this communicator, or one that it was split from or "
                                "into: one is enough");
        thread = std::thread([this] {
            while (!over.load(std::memory_order_relaxed))
                if (progress_locked(self))
                    sched_yield();
                else
                    sleep_seconds(100e-6);
        });
        cycle.gate.share(true);
    }
    void end() override {
        if (!self.is_foreign()) delete this;  // a forked process does not have the thread
    }
    ~progress_worker() {
        over.store(true, std::memory_order_relaxed);
        thread.join();
        const progress_lock mine(self, progress_lock::quiet{});
        self.operations.cycle->gate.share(false);
    }

    const std::shared_ptr<rank_context> group;  // gone last
    rank_context& self;
    std::atomic<bool> over{false};
    std::thread thread;
};
inline held_by_program* start_progress(rank_context& self) { return new progress_worker(self); }

}  // namespace colls::inline v1::detail
