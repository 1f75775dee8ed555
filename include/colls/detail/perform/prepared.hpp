// What a plan keeps: a call, checked and with its schedule chosen.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/request/call.hpp>
#include <colls/detail/support/list.hpp>

#include <memory>

namespace colls::inline v1::detail {

struct prepared {
    rank_context* e;
    call c;
    schedule_choice blocking, started;
    std::shared_ptr<const void> keep;  ///< the copy of the operator
    list<std::size_t> in_offsets, out_offsets;
    /// The call's own operation; null while it is in use. How many operations are in flight hangs on time, so a run
    /// could find none idle.
    operation_state* own = nullptr;
    bool runs = false;     ///< an operation that it started is not over
    bool dropped = false;  ///< by its owner: the operation that runs is the last to need it, and deletes it
};

}  // namespace colls::inline v1::detail
