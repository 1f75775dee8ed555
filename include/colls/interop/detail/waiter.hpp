// A wait for an operation that a loop tests: a part of a coroutine's frame or of the state of a sender, so that a wait
// allocates nothing.
// IWYU pragma: private, include <colls/interop/loop.hpp>
#pragma once

#include <colls/operation.hpp>

#include <exception>

namespace colls::inline v1::detail {

class waiter_list;

class waiter {
public:
    waiter() = default;
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;

    std::exception_ptr failure;  ///< of the operation, once it is over

protected:
    ~waiter() { leave(); }
    void leave() noexcept;

private:
    friend class waiter_list;
    /// The operation is over, and this is in no list. It may be destroyed in here.
    virtual void over() = 0;

    operation* of_ = nullptr;
    waiter_list* in_ = nullptr;
    waiter *before_ = nullptr, *after_ = nullptr;
};

/// The waits of a loop, in the order in which they began.
class waiter_list {
public:
    waiter_list() = default;
    waiter_list(const waiter_list&) = delete;
    waiter_list& operator=(const waiter_list&) = delete;
    /// Those in it wait for nothing any more.
    ~waiter_list() {
        while (first_ != nullptr) drop(*first_);
    }

    bool empty() const { return first_ == nullptr; }
    void append(waiter& w, operation& of) {
        w.of_ = &of;
        w.in_ = this;
        w.before_ = last_;
        w.after_ = nullptr;
        (last_ != nullptr ? last_->after_ : first_) = &w;
        last_ = &w;
        ++size_;
    }
    void drop(waiter& w) {
        if (next_ == &w) next_ = w.after_;
        (w.before_ != nullptr ? w.before_->after_ : first_) = w.after_;
        (w.after_ != nullptr ? w.after_->before_ : last_) = w.before_;
        w.in_ = nullptr;
        --size_;
    }

    /// Waits for the first one, or tests it, and then resumes it; false where it is not over.
    bool resume_first(bool waits) { return resume(*first_, waits); }
    /// Tests all that are in it now, and resumes those that are over; false where none is.
    bool resume_any() {
        bool any = false;
        std::size_t left = size_;
        for (next_ = first_; next_ != nullptr && left > 0; --left) {
            waiter& w = *next_;
            next_ = w.after_;
            any = resume(w, false) || any;
        }
        next_ = nullptr;
        return any;
    }

private:
    bool resume(waiter& w, bool waits) {
        try {
            if (waits)
                w.of_->wait();
            else if (!w.of_->test())
                return false;
        } catch (...) {
            w.failure = std::current_exception();
        }
        drop(w);
        w.over();  // not within the handler: what it resumes may throw and catch
        return true;
    }

    waiter *first_ = nullptr, *last_ = nullptr;
    waiter* next_ = nullptr;  ///< of the pass under way
    std::size_t size_ = 0;
};

inline void waiter::leave() noexcept {
    if (in_ != nullptr) in_->drop(*this);
}

}  // namespace colls::inline v1::detail
