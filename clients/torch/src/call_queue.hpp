// class call_queue: the collective calls of one process group, run one after the other.
#pragma once

#include "callbacks.hpp"
#include "group.hpp"
#include "work.hpp"

#include <colls/communicator.hpp>

#include <ATen/ThreadLocalState.h>
#include <c10/core/GradMode.h>
#include <c10/util/thread_name.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include <unistd.h>

namespace colls_torch {

/// All ranks make the same collective calls in the same order, so one after the other never waits for ever. Whichever
/// thread finds the queue free runs them: a synchronous call runs in the thread that makes it, an asynchronous one in
/// the queue's own thread, or in the thread that waits for it first.
class call_queue final : public driver, public std::enable_shared_from_this<call_queue> {
public:
    call_queue(colls::communicator comm, membership who, std::shared_ptr<const abort_hooks> hooks)
        : comm_(std::move(comm)), who_(std::move(who)), hooks_(std::move(hooks)) {}
    ~call_queue() override { stop(); }

    /// Makes a call: f(communicator), in this thread or later. Returns its work, which has the error where f throws.
    template <class F>
    work_pointer run(work_pointer w, bool async, milliseconds timeout, F&& f) {
        std::unique_lock lock(mutex_);
        TORCH_CHECK(!stopped_, "colls: this process group has been destroyed");
        if (!async && !busy_ && waiting_.empty()) {
            busy_ = true;
            lock.unlock();
            w->end(attempt(timeout, f));
            lock.lock();
            busy_ = false;
            if (!waiting_.empty() || sleepers_ > 0) changed_.notify_all();
            return w;
        }
        // Another thread makes the call with what holds for this thread, such as inference mode. That is read without
        // the lock: it may need Python's.
        lock.unlock();
        queued_call call{
            w, timeout, [of_caller = state_of_caller(), f = std::forward<F>(f)](colls::communicator& comm) {
                const at::ThreadLocalStateGuard as_caller(of_caller);
                f(comm);
            }};
        lock.lock();
        TORCH_CHECK(!stopped_, "colls: this process group has been destroyed");
        waiting_.push_back(std::move(call));
        provide_worker();
        if (!busy_) changed_.notify_all();
        return w;
    }

    bool wait(work& w, milliseconds timeout) override {
        const auto until = std::chrono::steady_clock::now() + timeout;
        std::unique_lock lock(mutex_);
        while (!w.over()) {
            // A call of the library cannot be left before its own deadline: with a timeout another thread runs it.
            if (timeout == kNoTimeout && !busy_ && !waiting_.empty()) {
                run_first(lock);
                continue;
            }
            ++sleepers_;
            const bool in_time = timeout == kNoTimeout ? (changed_.wait(lock), true)
                                                       : changed_.wait_until(lock, until) == std::cv_status::no_timeout;
            --sleepers_;
            if (!in_time && !w.over()) return false;
        }
        return true;
    }

    /// Breaks the group, so that all ranks' calls fail, also the one that is under way in another thread.
    void abort(std::string_view why) {
        if (!leaves_.load(std::memory_order_relaxed)) hooks_->run();
        std::deque<queued_call> waiting;
        {
            const std::lock_guard lock(mutex_);
            waiting.swap(waiting_);
            if (comm_.size() > 0) comm_.abort(why);
        }
        const auto failed = std::make_exception_ptr(c10::DistBackendError(
            {__func__, __FILE__, __LINE__}, "colls: rank " + std::to_string(who_.rank) + ": " + std::string(why)));
        for (queued_call& c : waiting)
            if (c.result->end(failed)) callbacks_.run(c.result);
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
    }
    /// Leaves the group for another one. What is not over ends by an error that says why; where all is, the other ranks
    /// can finish their calls.
    void leave(std::string_view why) {
        leaves_.store(true, std::memory_order_relaxed);
        const bool idle = [&] {
            const std::lock_guard lock(mutex_);
            return !busy_ && waiting_.empty();
        }();
        if (!idle) abort(why);
        stop();
    }
    /// Runs what has been queued, and leaves the group. In a process that was forked from the rank it does nothing.
    void stop() {
        if (getpid() != process_) return;
        std::unique_lock lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
        while (!workers_.empty()) {
            std::thread t = std::move(workers_.back());
            workers_.pop_back();
            lock.unlock();
            t.get_id() == std::this_thread::get_id() ? t.detach() : t.join();
            lock.lock();
        }
        while (busy_) ++sleepers_, changed_.wait(lock), --sleepers_;
        comm_ = {};
        lock.unlock();
        callbacks_.stop();
    }
    const membership& who() const { return who_; }

private:
    struct queued_call {
        work_pointer result;
        milliseconds timeout;
        std::function<void(colls::communicator&)> body;
    };

    template <class F>
    std::exception_ptr attempt(milliseconds timeout, F& f) {
        try {
            const c10::AutoGradMode no_gradients(false);
            if (timeout != timeout_) {
                comm_.set_timeout(timeout);
                timeout_ = timeout;
            }
            f(comm_);
            return nullptr;
        } catch (...) {
            return leaves_.load(std::memory_order_relaxed) ? as_torch_error(who_) : as_failure_of_call(who_, *hooks_);
        }
    }
    void run_first(std::unique_lock<std::mutex>& lock) {
        queued_call c = std::move(waiting_.front());
        waiting_.pop_front();
        busy_ = true;
        lock.unlock();
        const std::exception_ptr failed = attempt(c.timeout, c.body);
        c.body = nullptr;  // tensors are freed without the lock
        const bool has_future = c.result->end(failed);
        lock.lock();
        busy_ = false;
        ending_ += has_future;
        provide_worker();
        if (sleepers_ > 0) changed_.notify_all();
        lock.unlock();
        if (has_future) c.result->complete_future();
        c.result.reset();
        lock.lock();
        ending_ -= has_future;
    }
    /// A future's callbacks may wait for calls: one thread more than those that run callbacks is there for these.
    void provide_worker() {
        if (!waiting_.empty() && workers_.size() <= ending_) workers_.emplace_back([this] { serve(); });
    }
    void serve() {
        c10::setThreadName("colls_calls");
        std::unique_lock lock(mutex_);
        while (!stopped_ || !waiting_.empty()) {
            if (!busy_ && !waiting_.empty()) {
                run_first(lock);
            } else {
                ++sleepers_;
                changed_.wait(lock);
                --sleepers_;
            }
        }
    }

    colls::communicator comm_;
    const membership who_;
    const std::shared_ptr<const abort_hooks> hooks_;
    milliseconds timeout_{0};  ///< that the communicator has; 0: none has been set
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<queued_call> waiting_;
    bool busy_ = false, stopped_ = false;
    std::atomic<bool> leaves_{false};  ///< no failure: no hook is to run
    int sleepers_ = 0;                 ///< threads that wait for a change
    std::size_t ending_ = 0;           ///< threads that run callbacks of a work that is over
    std::vector<std::thread> workers_;
    callbacks callbacks_;  ///< of calls that abort ends
    const pid_t process_ = getpid();
};

}  // namespace colls_torch
