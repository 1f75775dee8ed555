// What resumes coroutines (coroutine.hpp) and senders (sender.hpp) whose operations are over: operations move on only
// while their rank waits or tests.
#pragma once

#include <colls/interop/detail/waiter.hpp>

#include <utility>

namespace colls::inline v1 {
namespace interop {

/// In which order a loop resumes.
enum class resume_order : unsigned char {
    /// In the order in which the waits began. Coroutines that begin in the same order on all ranks are then resumed,
    /// and so make their calls, in the same order on all of them: they may share a communicator. One that is over waits
    /// for those before it.
    as_started,
    /// As soon as a wait is over. Another order on each rank: a coroutine that makes more than one call needs a
    /// communicator that no other one uses (split), or sends and receives messages alone.
    as_finished
};

/// The waits of a rank that are under way in coroutines and senders. One thread uses it, the one that uses the
/// communicators; it may have several, one within the other. The waits in it are parts of coroutines' frames and
/// senders' states: it allocates nothing.
class loop {
public:
    /// A loop without waits.
    explicit loop(resume_order order = resume_order::as_started) : order_(order) {}
    loop(const loop&) = delete;
    loop& operator=(const loop&) = delete;

    /// Resumes what is over, without waiting; false where nothing is left to wait for. For a program that has another
    /// loop of its own. What a resumed coroutine throws, it throws.
    bool poll() {
        const current_loop here(*this);
        if (order_ == resume_order::as_finished)
            waits_.resume_any();
        else
            while (!waits_.empty() && waits_.resume_first(false)) {}
        return !waits_.empty();
    }
    /// Resumes what is over until nothing is left to wait for, with the waits and deadlines of operation::wait and of
    /// wait_any.
    void run() {
        run_until([] { return false; });
    }
    /// The same until `done()`, which is asked before each wait.
    template <class Done>
    void run_until(Done done) {
        const current_loop here(*this);
        for (double since = 0; !done() && !waits_.empty();)
            if (order_ == resume_order::as_started)
                waits_.resume_first(true);
            else
                since = waits_.resume_any() ? 0 : detail::pause_between_tests(since);
    }
    /// Calls f, with this as the loop in which coroutines and senders that begin in it wait.
    template <class F>
    void within(F f) {
        const current_loop here(*this);
        f();
    }

    /// The loop in whose poll, run or within this thread is; null: none.
    static loop* current() { return current_; }
    /// For the library: w waits for the operation.
    void append(detail::waiter& w, operation& of) { waits_.append(w, of); }
    /// As it was made.
    resume_order order() const { return order_; }

private:
    class current_loop {
    public:
        explicit current_loop(loop& l) : before_(std::exchange(current_, &l)) {}
        current_loop(const current_loop&) = delete;
        current_loop& operator=(const current_loop&) = delete;
        ~current_loop() { current_ = before_; }

    private:
        loop* before_;
    };
    static inline thread_local loop* current_ = nullptr;
    detail::waiter_list waits_;
    resume_order order_;
};

}  // namespace interop
}  // namespace colls::inline v1
