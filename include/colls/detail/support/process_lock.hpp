// The lock of what a process has once, and how often it was forked.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

#include <pthread.h>
#include <sched.h>
#include <atomic>

namespace colls::inline v1::detail {

/// How many forks led to this process since the library was first used. A forked child is another process, which must
/// not use the groups of its parent.
inline std::atomic<unsigned> forks{0};

/// A lock that a thread may hold several times. (A mutex that a fork finds locked cannot be opened in the child.)
struct owned_lock {
    std::atomic<const void*> owner{nullptr};
    int depth = 0;  ///< the owner's

    void lock() {
        static thread_local const char self = 0;
        const void* open = nullptr;
        if (owner.load(std::memory_order_relaxed) != &self)
            while (!owner.compare_exchange_weak(open, &self, std::memory_order_acquire, std::memory_order_relaxed)) {
                open = nullptr;
                sched_yield();
            }
        ++depth;
    }
    void unlock() {
        if (--depth == 0) owner.store(nullptr, std::memory_order_release);
    }
};
inline owned_lock once_in_process;

/// From now on forks are counted, and wait for the lock, which the thread that forks holds in the child, too.
inline unsigned count_forks() {
    static std::atomic<bool> watching{false};
    if (!watching.load(std::memory_order_relaxed) && !watching.exchange(true, std::memory_order_relaxed))
        pthread_atfork([] { once_in_process.lock(); }, [] { once_in_process.unlock(); },
            [] {
                forks.fetch_add(1, std::memory_order_relaxed);
                once_in_process.unlock();
            });
    return forks.load(std::memory_order_relaxed);
}

/// Held while what a process has once is made or changed. Without it a child that is forked meanwhile by another thread
/// would find that closed for ever, or half made.
class process_lock {
public:
    process_lock() {
        count_forks();
        once_in_process.lock();
    }
    ~process_lock() { once_in_process.unlock(); }
    process_lock(const process_lock&) = delete;
    process_lock& operator=(const process_lock&) = delete;
};

}  // namespace colls::inline v1::detail
