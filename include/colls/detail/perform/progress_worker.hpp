// The second thread of a progress_thread.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/perform/started_operation.hpp>

#include <atomic>
#include <mutex>
#include <thread>

namespace colls::inline v1::detail {

/// Advances the operations of a rank context and of those split from it; false where none is in flight.
inline bool progress_locked(rank_context& self) {
    const progress_lock mine(self);
    if (*self.operations.of_cycle == 0) return false;
    try {
        progress(self);
        no_longer_active(self);
    } catch (...) {  // the group is broken, and its next call reports that
        call_threw(self, "an operation in flight");
        no_longer_active(self);
    }
    return true;
}

struct progress_worker {
    explicit progress_worker(rank_context& own) : group(own.shared_from_this()), self(own) {
        if (self.shared != nullptr)
            throw error(errc::invalid_argument,
                (error_text() << "colls: rank " << self.rank
                              << ": a progress_thread already serves this communicator, "
                                 "or one that it was split from or into: one is enough")
                    .text(),
                self.rank);
        share(&mutex);
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
    ~progress_worker() {
        over.store(true, std::memory_order_relaxed);
        thread.join();
        share(nullptr);
    }
    /// Sets the mutex of progress_lock in all rank contexts that were split from one another.
    void share(std::mutex* m) {
        self.shared = m;
        for (rank_context* x = self.next; x != &self; x = x->next) x->shared = m;
    }

    const std::shared_ptr<rank_context> group;  // gone last
    rank_context& self;
    std::mutex mutex;
    std::atomic<bool> over{false};
    std::thread thread;
};
COLLS_INLINE progress_worker* start_progress(rank_context& self) { return new progress_worker(self); }
COLLS_INLINE void stop_progress(progress_worker* w) {
    if (!w->self.is_foreign()) delete w;  // a forked process does not have the thread
}

}  // namespace colls::inline v1::detail
