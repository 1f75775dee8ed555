// The second thread of a progress_thread.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/perform/started_operation.hpp>
#include <colls/detail/support/rank_error.hpp>

#include <atomic>
#include <thread>

namespace colls::inline v1::detail {

/// Advances the operations of a rank context and of those split from it; false where none is in flight, or where
/// another thread is inside the gate, which advances them.
inline bool progress_locked(rank_context& self) {
    group_cycle& cycle = *self.operations.cycle;
    if (!cycle.gate.try_enter()) return false;
    const gate_lock inside(cycle, false);
    if (cycle.in_flight == 0) return false;
    if (!self.in_call) try {
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
        cycle.gate.share(true);
        thread = std::thread([this] {
            while (!over.load(std::memory_order_relaxed))
                if (progress_locked(self)) {
                    sched_yield();
                } else {
                    const timespec nap{0, 100'000};
                    nanosleep(&nap, nullptr);
                }
        });
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
