// co_await of an operation.
// IWYU pragma: private, include <colls/interop/coroutine.hpp>
#pragma once

#include <colls/interop/loop.hpp>

#include <coroutine>
#include <exception>

namespace colls::inline v1::detail {

/// What co_await waits with; it refers to the operation.
class operation_awaiter final : private waiter {
public:
    explicit operation_awaiter(operation& of) : of_(of) {}

    bool await_ready() {
        if (of_.empty()) return true;
        const interop::loop* const l = interop::loop::current();
        if (l == nullptr) of_.wait();
        // Where the order is to be that of the waits, one that is over on this rank may not be over on another.
        return l == nullptr || (l->order() == interop::resume_order::as_finished && of_.test());
    }
    void await_suspend(std::coroutine_handle<> h) {
        waiting_ = h;
        interop::loop::current()->append(*this, of_);
    }
    void await_resume() const {
        if (failure) std::rethrow_exception(failure);
    }

private:
    void over() override { waiting_.resume(); }
    operation& of_;
    std::coroutine_handle<> waiting_;
};

}  // namespace colls::inline v1::detail
