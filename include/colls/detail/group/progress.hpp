// How what is in flight makes progress: each wait of a rank advances all of it.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/guarded.hpp>

namespace colls::inline v1::detail {

/// Advances all that is in flight in this group, as far as it gets without waiting, but what is waited for: `but`, or
/// null.
inline void advance_all(rank_context& self, const pending* but = nullptr) {
    for (std::size_t i = 0; i < self.operations.in_flight.size();)
        if (pending* const o = self.operations.in_flight[i]; o != but && (o->done || o->advance()))
            self.operations.drop(i);
        else
            ++i;
}
/// Likewise in the other groups of the cycle, so that ranks may wait in different orders. An error in another group
/// breaks that group, and its own next call throws it: thrown here, it would leave this group whole, while peers may
/// still be at buffers that the caller is about to give up. A group that another thread is in a call with, which lets
/// this thread in, is left to that thread: it would not expect to have left its call.
inline void progress_others(rank_context& self) {
    if (self.operations.only_these()) return;
    for (rank_context* x = self.next; x != &self; x = x->next) {
        if (x->operations.in_flight.empty() || x->in_call ||
            x->memory.poison().state.load(std::memory_order_relaxed) != 0)
            continue;
        try {
            advance_all(*x);
            no_longer_active(*x);
        } catch (...) {
            const std::shared_ptr<rank_context> broken = x->shared_from_this();
            call_threw(*x, "an operation in flight");  // waits, and lets threads in, which may end groups
            no_longer_active(*x);
            x = &self;  // once more: a broken group is passed by
        }
    }
}
inline void progress(rank_context& self) {
    advance_all(self);
    progress_others(self);
}

}  // namespace colls::inline v1::detail
