// How a rank leaves a group: when the last of those that hold its context goes.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/rank_context.hpp>

namespace colls::inline v1::detail {

/// This rank is no member any more.
inline void end_membership(std::unique_ptr<rank_context> e) {
    e->memory.core(e->rank).store(0, std::memory_order_relaxed);  // it shares a core with no rank any more
    // Release: all that this rank did for the others is done.
    e->memory.state(e->rank).gone.store(1, std::memory_order_release);
    e->backend->close();
}

/// From here on a communicator, operations, prepared calls and progress threads share the context. The communicator's
/// share is `held`.
inline rank_context& hold(std::unique_ptr<rank_context> e) {
    const std::shared_ptr<rank_context> shared(
        e.release(), [](rank_context* last) { end_membership(std::unique_ptr<rank_context>(last)); });
    shared->held = shared;
    return *shared;
}

}  // namespace colls::inline v1::detail
