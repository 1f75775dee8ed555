// Prepared calls: what class plan does.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/detail/perform/started_operation.hpp>
#include <colls/detail/support/rank_error.hpp>

namespace colls::inline v1::detail {

inline prepared* prepare_call(rank_context& self, request& q) {
    const progress_lock mine(self);
    const schedule_choice blocking = check(self, q, true), started = resolve_schedule(self, q, false);
    // A run may copy the other way than the plan chosen now: what it follows then is made here, so that no run
    // allocates.
    if (!self.by_messages)
        for (const schedule_choice* s : {&blocking, &started})
            if (s->plan != nullptr) copied_otherwise(*s->plan);
    std::shared_ptr<const void> op = copy_operator(q);
    change_own_contribution(self, q);
    const auto p = std::make_shared<prepared>(self, static_cast<request&&>(q));
    p->q.of = p.get();
    p->blocking = blocking;
    p->started = started;
    p->op = std::move(op);
    p->own.reset(static_cast<executor*>(self.backend->make_collective(self).release()));
    p->own->is_prepared = true;
    p->held = p;
    make_room_in_flight(self);
    return p.get();
}
/// Throws invalid_argument unless the prepared call may run now.
inline void expect_ready(const prepared& p) {
    if (p.held.use_count() > 1)  // by an operation that it has started
        throw_in_call(p.group->rank, name_of(p.q.c.what), errc::invalid_argument,
            error_text() << "the plan's operation is not over, and uses its buffers: wait for it before the next "
                            "start or run");
}
inline void run_prepared(prepared& p) {
    expect_ready(p);
    perform(*p.group, p.q);
}
inline operation_state* start_prepared(prepared& p) {
    expect_ready(p);
    const progress_lock mine(*p.group);
    return begin_call(*p.group, p.q.c, p.started, {p.op, {}, {}}, &p);
}
inline void drop_prepared(prepared& p) {
    if (p.group->is_foreign()) return;
    const std::shared_ptr<rank_context> group = p.group;  // outlives the lock
    const progress_lock mine(*group, progress_lock::quiet{});
    const std::shared_ptr<prepared> plans = std::move(p.held);  // an operation that runs may still hold it
}

}  // namespace colls::inline v1::detail
