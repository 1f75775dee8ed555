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
/// Likewise in the thread's other groups, too, so that ranks may wait in different orders. An error in another group
/// breaks that group, and its own next call throws it: thrown here, it would leave this group whole, while peers may
/// still be at buffers that the caller is about to give up.
inline void progress(rank_context& self) {
    advance_all(self);
    if (self.operations.only_these()) return;
    for (rank_context* x = self.next; x != &self; x = x->next) {
        if (x->operations.in_flight.empty() || x->memory.poison().state.load(std::memory_order_relaxed) != 0) continue;
        try {
            advance_all(*x);
        } catch (...) {
            call_threw(*x, "an operation in flight");
        }
        no_longer_active(*x);
    }
}

}  // namespace colls::inline v1::detail
