// What a plan keeps: a call, checked and with its schedule chosen.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/detail/execute/executor.hpp>
#include <colls/detail/request/request.hpp>

#include <memory>

namespace colls::inline v1::detail {

/// Its plan and the operation that it has started share it.
struct prepared : std::enable_shared_from_this<prepared> {
    prepared(rank_context& self, request&& checked)
        : group(self.shared_from_this()), q(static_cast<request&&>(checked)) {}

    std::shared_ptr<rank_context> group;
    request q;
    schedule_choice blocking, started;
    std::shared_ptr<const void> op;  ///< the copy of the operator
    /// The call's own executor; null while it is in use. How many operations are in flight depends on time, so a run
    /// could find none idle.
    std::unique_ptr<executor> own;
    std::shared_ptr<prepared> held;  ///< the plan's share: this object itself
};

}  // namespace colls::inline v1::detail
