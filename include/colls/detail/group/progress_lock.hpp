// One thread at a time in the library with the groups of a rank, and no call from within an operator.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/rank_context.hpp>

namespace colls::inline v1::detail {

/// The context with which this thread is in a call; null outside of calls.
inline constinit thread_local const rank_context* in_call_of = nullptr;

/// Is this thread in a call of a context of the same cycle? Then an operator asks for another call.
inline bool is_within_call(const rank_context& self) {
    for (const rank_context* x = in_call_of; x != nullptr; x = x->next == in_call_of ? nullptr : x->next)
        if (x == &self) return true;
    return false;
}
[[noreturn, gnu::cold]] inline void refuse_progress(const rank_context& self) {
    error_text text;
    text << "colls: rank " << self.rank;
    if (self.is_foreign())
        text << ": this process was forked from the rank, whose group it cannot use: a group belongs to the process "
                "that made it";
    else if (in_wait_hook)
        text << ": the wait hook calls the library with the group that waits, or with one that advances with it: it "
                "may call with other groups alone";
    else
        text << ": an operator calls the library while a call of this rank runs it: an operator may compute, but not "
                "communicate or wait";
    throw error(errc::invalid_argument, text.text(), self.rank);
}

/// While it lives, no other thread is in the library with contexts of this cycle. Throws invalid_argument in a forked
/// child, and where an operator calls the library.
class progress_lock {
public:
    struct quiet {};
    explicit progress_lock(const rank_context& self) : progress_lock(self, self.is_foreign() || is_within_call(self)) {
        if (within_) refuse_progress(self);
    }
    /// Never throws: within an operator, the lock of the call that runs it holds already.
    progress_lock(const rank_context& self, quiet) : progress_lock(self, is_within_call(self)) {}
    progress_lock(const progress_lock&) = delete;
    progress_lock& operator=(const progress_lock&) = delete;
    ~progress_lock() {
        in_call_of = outer_;
        if (shared_) shared_->unlock();
    }

private:
    progress_lock(const rank_context& self, bool within)
        : shared_(within ? nullptr : self.shared), outer_(in_call_of), within_(within) {
        if (shared_) shared_->lock();
        in_call_of = &self;
    }
    std::mutex* const shared_;
    const rank_context* const outer_;
    const bool within_;
};

/// Adds a context to those of this thread's groups that advance together though none is split from another.
inline void join_groups_of_thread(rank_context& self) {
    static thread_local const auto latest = std::make_shared<rank_context*>(nullptr);
    if (*latest != nullptr) {
        const progress_lock mine(**latest);
        self.join(**latest);
    }
    self.latest = latest;
    *latest = &self;
}

}  // namespace colls::inline v1::detail
