// What the promise of a task is made of, and how tasks end.
// IWYU pragma: private, include <colls/interop/coroutine.hpp>
#pragma once

#include <colls/error.hpp>

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace colls::inline v1::detail {

class task_promise_base {
public:
    /// Resumes the coroutine that awaits the task, if there is one.
    struct final_awaiter {
        bool await_ready() noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> h) noexcept {
            const std::coroutine_handle<> next = h.promise().continuation;
            return next ? next : std::noop_coroutine();
        }
        void await_resume() noexcept {}
    };
    std::suspend_always initial_suspend() noexcept { return {}; }
    final_awaiter final_suspend() noexcept { return {}; }
    void unhandled_exception() { failure = std::current_exception(); }

    std::coroutine_handle<> continuation;
    std::exception_ptr failure;
};
template <class Task, class T>
class task_promise : public task_promise_base {
public:
    Task get_return_object() { return Task(std::coroutine_handle<task_promise>::from_promise(*this)); }
    template <class U>
    void return_value(U&& x) {
        value_.emplace(std::forward<U>(x));
    }
    T take() { return std::move(*value_); }

private:
    std::optional<T> value_;
};
template <class Task>
class task_promise<Task, void> : public task_promise_base {
public:
    Task get_return_object() { return Task(std::coroutine_handle<task_promise>::from_promise(*this)); }
    void return_void() {}
    void take() {}
};

/// Throws where a task is not over though its loop has nothing left to wait for.
inline void expect_resumed(bool done) {
    if (!done)
        throw error(errc::invalid_argument,
            "colls: interop::run: a coroutine waits for something that is not an operation of this rank, and would "
            "never be resumed: call loop::poll from the loop that resumes it");
}
inline void rethrow(const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
}

}  // namespace colls::inline v1::detail
