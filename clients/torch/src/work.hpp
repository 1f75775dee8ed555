// class work: a call that torch.distributed has made; class driver: what runs it.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

namespace colls_torch {

using std::chrono::milliseconds;

class work;

/// Runs works, and lets threads wait for them.
class driver {
public:
    virtual ~driver() = default;
    /// Returns when w is over, or false at the end of `timeout`. kNoTimeout: there is no end.
    virtual bool wait(work& w, milliseconds timeout) = 0;
};

/// What torch keeps for this thread, for another one that runs a call of it: inference mode, dispatch keys, profilers.
/// Without gradients.
inline at::ThreadLocalState state_of_caller() {
    at::ThreadLocalState state;
    state.set_grad_mode(false);
    return state;
}

/// What a profiler is told of a call: nothing where none is on.
struct profiled_call {
    const char* title = nullptr;
    std::optional<std::vector<at::Tensor>> inputs{};
};

class work : public c10d::Work {
public:
    /// `outputs`: a list for each input tensor of the call, as the result of the future has them.
    work(int rank, c10d::OpType type, const profiled_call& call, std::shared_ptr<driver> by, std::uint64_t number,
        milliseconds timeout, std::vector<std::vector<at::Tensor>> outputs)
        : c10d::Work(rank, type, call.title, call.inputs),
          by_(std::move(by)),
          number_(number),
          timeout_(timeout),
          outputs_(std::move(outputs)) {}

    /// Waits, and throws the error with which the call has ended.
    bool wait(milliseconds timeout = kNoTimeout) override {
        TORCH_CHECK(over() || by_->wait(*this, timeout), "colls: ", c10d::opTypeToString(retrieveOpType()),
            " is not over after ", timeout.count(), " ms");
        if (const std::exception_ptr failed = exception()) std::rethrow_exception(failed);
        return true;
    }
    void synchronize() override { wait(); }
    std::vector<at::Tensor> result() override {
        TORCH_CHECK(over(), "colls: the call is not over yet: wait for it before its result");
        return outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front();
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
        const std::lock_guard lock(future_mutex_);
        if (!future_) {
            const c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
            future_ =
                c10::make_intrusive<c10::ivalue::Future>(outputs_.size() > 1 ? c10::ListType::create(list) : list);
            if (over_.load(std::memory_order_relaxed)) mark(*future_);
        }
        return future_;
    }
    std::uint64_t getSequencenumber() const override { return number_; }
    milliseconds getTimeout() const override { return timeout_; }
    int sourceRank() const override { return source_; }

    /// Acquire: what the call has written is seen by a thread that finds it over.
    bool over() const { return over_.load(std::memory_order_acquire); }
    /// Ends it, successfully or with an error. Once. Where it returns true, `complete_future` is to be called next.
    bool end(std::exception_ptr failed) {
        finish(std::move(failed));
        const std::lock_guard lock(future_mutex_);
        over_.store(true, std::memory_order_release);
        return static_cast<bool>(future_);
    }
    /// Runs callbacks, which may make calls, and wait for any work.
    void complete_future() { mark(*future_); }
    /// The rank that has sent the message, for a receive from any rank.
    void came_from(int rank) { source_ = rank; }

private:
    void mark(c10::ivalue::Future& f) {
        if (const std::exception_ptr failed = exception())
            f.setError(failed);
        else if (outputs_.size() > 1)
            f.markCompleted(c10::IValue(outputs_));
        else
            f.markCompleted(c10::IValue(outputs_.empty() ? std::vector<at::Tensor>() : outputs_.front()));
    }

    const std::shared_ptr<driver> by_;
    const std::uint64_t number_;
    const milliseconds timeout_;
    const std::vector<std::vector<at::Tensor>> outputs_;
    std::atomic<bool> over_{false};
    int source_ = -1;
    std::mutex future_mutex_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

using work_pointer = c10::intrusive_ptr<work>;

}  // namespace colls_torch
