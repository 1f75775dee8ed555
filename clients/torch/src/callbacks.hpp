// class callbacks: the threads that run the callbacks of futures.
#pragma once

#include "work.hpp"

#include <c10/util/thread_name.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace colls_torch {

/// Completes the futures of works that are over. A callback may wait for any work, and for its future: so none waits
/// for the thread that runs another one, and a thread that moves calls or messages runs none while others need it.
class callbacks {
public:
    callbacks() = default;
    callbacks(const callbacks&) = delete;
    callbacks& operator=(const callbacks&) = delete;
    ~callbacks() { stop(); }

    void run(work_pointer w) {
        const std::lock_guard lock(mutex_);
        due_.push_back(std::move(w));
        provide_thread();
        changed_.notify_one();
    }
    /// Runs those that are due.
    void stop() {
        std::unique_lock lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
        while (!threads_.empty()) {
            std::thread t = std::move(threads_.back());
            threads_.pop_back();
            lock.unlock();
            t.get_id() == std::this_thread::get_id() ? t.detach() : t.join();
            lock.lock();
        }
    }

private:
    void provide_thread() {
        if (free_ > 0 || due_.empty()) return;
        threads_.emplace_back([this] { serve(); });
        ++free_;
    }
    void serve() {
        c10::setThreadName("colls_futures");
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stopped_ || !due_.empty(); });
            --free_;
            if (due_.empty()) return;
            work_pointer w = std::move(due_.front());
            due_.pop_front();
            provide_thread();
            lock.unlock();
            w->complete_future();
            lock.lock();
            ++free_;
            const bool last = stopped_ && due_.empty();
            lock.unlock();
            w.reset();  // which frees this object where the callback has destroyed the group
            if (last) return;
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<work_pointer> due_;
    std::vector<std::thread> threads_;
    int free_ = 0;  ///< threads that run none
    bool stopped_ = false;
};

}  // namespace colls_torch
