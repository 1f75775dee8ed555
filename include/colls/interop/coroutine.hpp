// Calls in coroutines: co_await an operation, and run many coroutines on a rank at once.
//
//   interop::task<> train(colls::communicator& comm, std::span<float> x) {
//       co_await colls::start::all_reduce(comm, x, colls::sum);       // other coroutines of the rank go on meanwhile
//       co_await prepared.start();                                    // a plan, too
//   }
//   interop::run(train(comm, a), train(comm, b));                     // returns when both are over
//
// A failed operation throws its colls::error out of co_await. A coroutine that is destroyed while it waits waits for
// its operation first, as any owner of one does. A wait allocates nothing: it is a part of the coroutine's frame.
//
// Any coroutine type may await operations, where a loop (loop.hpp) runs on its thread; without one co_await waits as
// operation::wait does.
#pragma once

#include <colls/interop/detail/operation_awaiter.hpp>
#include <colls/interop/detail/task_promise.hpp>
#include <colls/interop/loop.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace colls::inline v1 {
namespace interop {

/// A coroutine that returns T. It begins when `run` or `start` is called, or another task awaits it, and is destroyed
/// with this object. Its arguments that are references must outlive it, and so must the lambda where it is one's.
template <class T = void>
class [[nodiscard]] task {
public:
    using promise_type = detail::task_promise<task, T>;  ///< for the compiler
    /// For its promise.
    explicit task(std::coroutine_handle<promise_type> h) : coroutine_(h) {}
    task(task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, nullptr)) {}
    /// Swaps the two.
    task& operator=(task&& other) noexcept {
        std::swap(coroutine_, other.coroutine_);
        return *this;
    }
    ~task() {
        if (coroutine_) coroutine_.destroy();
    }

    /// Begins it: it goes on, in the loop, until its first wait. Once.
    void start(loop& in) {
        in.within([&] { coroutine_.resume(); });
    }
    /// Has it returned, or thrown?
    bool done() const { return coroutine_.done(); }
    /// What it has returned, which is moved; throws what it has thrown. Once, after done().
    T get() {
        if (coroutine_.promise().failure) std::rethrow_exception(coroutine_.promise().failure);
        return coroutine_.promise().take();
    }
    /// What it has thrown; null: nothing.
    std::exception_ptr failure() const { return coroutine_.promise().failure; }

    /// In another coroutine: runs this one to its end, and returns or throws what it does.
    auto operator co_await() {
        struct awaiter {
            task& of;
            bool await_ready() { return of.done(); }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<> h) {
                of.coroutine_.promise().continuation = h;
                return of.coroutine_;
            }
            T await_resume() { return of.get(); }
        };
        return awaiter{*this};
    }

private:
    std::coroutine_handle<promise_type> coroutine_;
};

/// Begins the tasks of a range in their order, and returns when all are over. Where some throw it still waits for the
/// others, and then throws what the first of the range has thrown. Throws colls::error with invalid_argument where a
/// task waits for something that is not an operation of this rank, since nothing would resume it (loop::poll serves a
/// program that has a loop of its own).
template <class Tasks>
    requires requires(Tasks& tasks) { tasks.begin(); }
void run(loop& in, Tasks&& tasks) {
    for (auto& t : tasks) t.start(in);
    in.run();
    for (auto& t : tasks) detail::expect_resumed(t.done());
    for (auto& t : tasks) detail::rethrow(t.failure());
}
/// The same in a loop of its own, which resumes in the order in which the waits began.
template <class Tasks>
    requires requires(Tasks& tasks) { tasks.begin(); }
void run(Tasks&& tasks) {
    loop own;
    run(own, tasks);
}
/// The same for the tasks given, in their order.
template <class... T>
    requires(sizeof...(T) > 0)
void run(loop& in, task<T>... tasks) {
    (tasks.start(in), ...);
    in.run();
    (detail::expect_resumed(tasks.done()), ...);
    (detail::rethrow(tasks.failure()), ...);
}
/// The same in a loop of its own.
template <class... T>
    requires(sizeof...(T) > 0)
void run(task<T>... tasks) {
    loop own;
    run(own, std::move(tasks)...);
}

}  // namespace interop

/// Waits for an operation in a coroutine (interop/coroutine.hpp). Throws colls::error where it has failed. The
/// operation is empty afterwards.
inline detail::operation_awaiter operator co_await(operation&& o) { return detail::operation_awaiter(o); }
/// The same.
inline detail::operation_awaiter operator co_await(operation& o) { return detail::operation_awaiter(o); }

}  // namespace colls::inline v1
