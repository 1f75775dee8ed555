// The lock of what a process has once, and how often it was forked.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

#include <pthread.h>
#include <atomic>
#include <memory>
#include <mutex>

namespace colls::inline v1::detail {

/// How many forks led to this process since the library was first used. A forked child is another process, which must
/// not use the groups of its parent.
inline std::atomic<unsigned> forks{0};
inline std::recursive_mutex once_in_process;

/// From now on forks are counted, and wait for the lock. A child gets a new one: the thread that forked is another one
/// there, which could not open it.
inline unsigned count_forks() {
    static std::atomic<bool> watching{false};
    if (!watching.load(std::memory_order_relaxed) && !watching.exchange(true, std::memory_order_relaxed))
        pthread_atfork([] { once_in_process.lock(); }, [] { once_in_process.unlock(); },
            [] {
                forks.fetch_add(1, std::memory_order_relaxed);
                std::construct_at(&once_in_process);
            });
    return forks.load(std::memory_order_relaxed);
}

/// Held while what a process has once is made or changed; the same thread may hold it several times. Without it a child
/// that is forked meanwhile by another thread would find that closed for ever, or half made.
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
