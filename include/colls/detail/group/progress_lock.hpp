// One thread at a time in the library with the groups of a cycle, and no call from within an operator.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/failure.hpp>

namespace colls::inline v1::detail {

/// Is this thread in a call of the same cycle? Then an operator, or a wait hook, asks for another call.
inline bool is_within_call(const rank_context& self) { return gate_lock::is_within(*self.operations.cycle); }

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
/// The group breaks: ranks cannot tell which of the two calls comes first.
[[noreturn, gnu::cold]] inline void refuse_second_thread(rank_context& self) {
    error_text text;
    text << "colls: rank " << self.rank << ": two threads are in calls with the same group " << self.label
         << ": one thread at a time may use a group; split it, and give each thread a group of its own";
    break_group(self, errc::invalid_argument, none, none, text.text());
    throw error(errc::invalid_argument, text.text(), self.rank);
}

/// While it lives, this thread is in a call with a group, and no other thread is in the library with groups of the same
/// cycle, but where the call waits.
class progress_lock {
public:
    struct any_thread {};
    struct quiet {};
    /// Throws invalid_argument in a forked child, where an operator calls the library, and while another thread is in a
    /// call with the same group.
    explicit progress_lock(rank_context& self) : progress_lock(self, any_thread{}) {
        if (self.in_call) refuse_second_thread(self);
        self.in_call = true;
        group_ = &self;
    }
    /// Also while another thread is in a call with the group.
    progress_lock(rank_context& self, any_thread) : progress_lock(self, self.is_foreign() || is_within_call(self)) {
        if (within_) refuse_progress(self);
    }
    /// Never throws: within an operator, the lock of the call that runs it holds already.
    progress_lock(rank_context& self, quiet) : progress_lock(self, is_within_call(self)) {}
    progress_lock(const progress_lock&) = delete;
    progress_lock& operator=(const progress_lock&) = delete;
    ~progress_lock() {
        if (group_) group_->in_call = false;
    }

private:
    progress_lock(const rank_context& self, bool within)
        : within_(within),
          inside_(within ? nullptr : self.operations.cycle.get(), !within && self.operations.cycle->gate.enter()) {}
    const bool within_;
    const gate_lock inside_;
    rank_context* group_ = nullptr;
};

/// Adds a context to those of this thread's groups that advance together though none is split from another.
inline void join_groups_of_thread(rank_context& self) {
    static thread_local const auto own = std::make_shared<groups_of_thread>();
    const std::shared_ptr<group_cycle> before = own->cycle;
    if (before) {
        const gate_lock inside(*before);
        if (own->last != nullptr) {
            self.join(*own->last);
            self.latest = own;
            own->last = &self;
            return;
        }
    }
    own->cycle = self.operations.cycle;
    self.latest = own;
    own->last = &self;
}

}  // namespace colls::inline v1::detail
