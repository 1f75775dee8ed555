// Prepared calls: what class plan does.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/detail/perform/prepared.hpp>
#include <colls/detail/perform/started_operation.hpp>

namespace colls::inline v1::detail {

COLLS_INLINE prepared* prepare_call(rank_context& e, request& q) {
    const progress_lock mine(e);
    const schedule_choice blocking = check(e, q, true), started = resolve_schedule(e, q, false);
    // A run may copy the other way than the plan chosen now: what it follows then is made here, so that no run
    // allocates.
    if (!e.by_messages)
        for (const schedule_choice* s : {&blocking, &started})
            if (s->steps != nullptr) copied_otherwise(*s->steps);
    std::shared_ptr<const void> keep = copy_operator(q);
    change_own_contribution(e, q);
    auto* const p = new prepared{&e, q.c, blocking, started, static_cast<std::shared_ptr<const void>&&>(keep),
        static_cast<list<std::size_t>&&>(q.in_offsets), static_cast<list<std::size_t>&&>(q.out_offsets)};
    p->own = new operation_state;
    p->own->of = p;
    ++e.holders;
    make_room_in_flight(e);
    return p;
}
/// Throws invalid_argument unless the prepared call exists and may run now.
inline prepared& expect_ready(prepared* p) {
    if (p == nullptr) throw error(errc::invalid_argument, "colls: this plan is empty: it was moved from");
    if (p->runs)
        throw error(errc::invalid_argument,
            (message()
                << "colls: rank " << p->e->rank << " in " << name_of(p->c.what)
                << ": the plan's operation is not over, and uses its buffers: wait for it before the next start or run")
                .text(),
            p->e->rank);
    return *p;
}
COLLS_INLINE void run_prepared(prepared* p) {
    prepared& now = expect_ready(p);
    const progress_lock mine(*now.e);
    execute(*now.e, now.c, now.blocking, p);
}
COLLS_INLINE operation_state* start_prepared(prepared* p) {
    prepared& now = expect_ready(p);
    const progress_lock mine(*now.e);
    operation_state* const o = begin_call(*now.e, now.c, now.started, now.keep, {}, {}, p);
    now.runs = true;
    return o;
}
COLLS_INLINE void drop_prepared(prepared* p) {
    if (p == nullptr || p->e->is_foreign()) return;
    rank_context* const e = p->e;
    const progress_lock mine(*e, progress_lock::quiet{});
    if (p->runs) {
        p->dropped = true;
    } else {
        if (p->own) drop_operation(*e, p->own);
        delete p;
    }
    drop_holder(e);
}

}  // namespace colls::inline v1::detail
