// What holds while a rank is in a call: one thread at a time is in the library with the groups of a cycle, and none
// calls it from within an operator; and what happens to the group where the call ends by an exception.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/failure.hpp>
#include <colls/detail/group/told_calls.hpp>
#include <colls/detail/support/rank_error.hpp>

#include <exception>
#include <new>
#include <string>

namespace colls::inline v1::detail {

[[noreturn, gnu::cold]] inline void refuse_progress(const rank_context& self) {
    const char* why =
        "an operator calls the library while a call of this rank runs it: an operator may compute, but "
        "not communicate or wait";
    if (in_wait_hook)
        why =
            "the wait hook calls the library with the group that waits, or with one that advances with it: it may "
            "call with other groups alone";
    if (self.is_foreign())
        why =
            "this process was forked from the rank, whose group it cannot use: a group belongs to the process that "
            "made it";
    throw_of_rank(self.rank, errc::invalid_argument, error_text() << why);
}
/// The group breaks: ranks cannot tell which of the two calls comes first.
[[noreturn, gnu::cold]] inline void refuse_second_thread(rank_context& self) {
    error_text text;
    text << "colls: rank " << self.rank << ": two threads are in calls with the same group " << self.label
         << ": one thread at a time may use a group; split it, and give each thread a group of its own";
    break_group(self, errc::invalid_argument, none, none, text.text());
    throw error(errc::invalid_argument, text.text(), self.rank);
}

/// Calls f at the end of the scope.
template <class F>
struct at_end {
    F f;
    ~at_end() { f(); }
};
template <class F>
at_end(F) -> at_end<F>;

/// While it lives, this thread is in a call with a group, and no other thread is in the library with groups of the same
/// cycle, but where the call waits.
class progress_lock {
public:
    struct any_thread {};
    struct quiet {};
    /// Throws invalid_argument in a forked child, where an operator calls the library, and while another thread is in a
    /// call with the same group.
    explicit progress_lock(rank_context& self) : inside_(cycle_of(self, true)), group_(&self) {
        auto& in_call = self.status->in_call;
        if (in_call.load(std::memory_order_relaxed) != 0) refuse_second_thread(self);
        in_call.store(1, std::memory_order_relaxed);
    }
    /// Also while another thread is in a call with the group.
    progress_lock(const rank_context& self, any_thread) : inside_(cycle_of(self, true)) {}
    /// Never throws: within an operator, the lock of the call that runs it holds already.
    progress_lock(const rank_context& self, quiet) : inside_(cycle_of(self, false)) {}
    progress_lock(const progress_lock&) = delete;
    progress_lock& operator=(const progress_lock&) = delete;
    ~progress_lock() {
        if (group_) group_->status->in_call.store(0, std::memory_order_relaxed);
    }

private:
    /// Null where this thread is in a call of the same cycle: an operator, or a wait hook, asks for another call.
    static group_cycle* cycle_of(const rank_context& self, bool refuses) {
        group_cycle* const cycle = self.operations.cycle.get();
        const bool within = gate_lock::is_within(*cycle);
        if (refuses && (within || self.is_foreign())) refuse_progress(self);
        return within ? nullptr : cycle;
    }
    const gate_lock inside_;
    rank_context* const group_ = nullptr;
};

/// Adds a context to those of this thread's groups that advance together though none is split from another.
inline void join_groups_of_thread(rank_context& self) {
    static thread_local const auto own = std::make_shared<groups_of_thread>();
    const std::shared_ptr<group_cycle> before = own->cycle;
    const gate_lock inside(before.get());
    if (own->last != nullptr) self.join(*own->last);
    own->cycle = self.operations.cycle;
    self.latest = own;
    own->last = &self;
}

/// Says that this rank loads from and stores to no other rank's memory any more: see activate.
inline void no_longer_active(rank_context& self) {
    auto& active = self.memory.state(self.rank).active;
    if (active.load(std::memory_order_relaxed) != 0) active.store(0, std::memory_order_release);
}

/// In a handler: breaks the group, unless it is broken, so that no rank waits for this one. The library's own errors
/// have broken it before they were thrown; an operator's exceptions have not, nor has a lack of memory.
[[gnu::cold]] inline void call_threw(rank_context& self, const char* what) {
    if (self.memory.poison().state.load(std::memory_order_seq_cst) == 0) {
        error_text text;
        text << "colls: rank " << self.rank << " in " << what << ": ";
        try {
            throw;
        } catch (const std::bad_alloc&) {
            text << "there is no more memory";
        } catch (const error& x) {
            text << quoted(x.what());
        } catch (const std::exception& x) {
            text << "the operator threw: " << x.what();
        } catch (...) {
            text << "the operator threw";
        }
        break_group(self, errc::peer_failed, none, none, text.text());
    }
    leave(self);
}
/// In a handler: an error of the library says which calls the rank has made.
[[gnu::cold]] [[gnu::noinline]] inline void add_latest_calls(const rank_context& self) {
    try {
        throw;
    } catch (error& x) {
        self.status->add_error(x.what());
        try {
            std::string lines;
            for_latest_calls(
                self.log.recent, self.log.count, [&](const error_text& text) { lines.append(text.text()) += '\n'; });
            x.set_calls(static_cast<std::string&&>(lines));
        } catch (const std::bad_alloc&) {}  // then it does not say
    } catch (...) {}
}

/// In a handler of what a call has thrown, which may be a user's operator: breaks the group before the exception goes
/// on. However a call ends, this rank is not active after it.
[[gnu::cold]] [[gnu::noinline]] inline void call_ended_by_error(rank_context& self, const char* what) {
    call_threw(self, what);
    no_longer_active(self);
    add_latest_calls(self);
}
/// Runs f, which is a part of a call.
template <class F>
void guarded(rank_context& self, const char* what, F f) {
    try {
        f();
    } catch (...) {
        call_ended_by_error(self, what);
        throw;
    }
    no_longer_active(self);
}

}  // namespace colls::inline v1::detail
