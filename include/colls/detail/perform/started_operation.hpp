// Collectives and messages in flight: how they start, and how their owner tests and waits for them; and prepared calls:
// what class plan does.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/perform/perform_call.hpp>
#include <colls/detail/support/rank_error.hpp>

#include <memory>
#include <utility>

namespace colls::inline v1::detail {

/// Makes room for all that may be in flight at once: whoever holds the context has one operation in flight at most.
inline void make_room_in_flight(rank_context& self) {
    self.operations.in_flight.reserve(static_cast<std::size_t>(self.held.use_count()));
}
/// Gives the operation to its caller. It holds the rank context until `release_operation`.
inline operation_state* hand_to_caller(rank_context& self, operation_state& o) {
    o.between_tests.emplace(self);
    o.tested = o.now;
    o.group = self.shared_from_this();
    if (o.of == nullptr) make_room_in_flight(self);
    self.operations.start(o);
    return &o;
}

/// A copy of the operator, for a call that outlives its arguments. Null: the operator has no state.
inline std::shared_ptr<const void> copy_operator(request& q) {
    if (!q.copy_op) return nullptr;
    std::shared_ptr<const void> kept(q.copy_op(q.c.op_value), q.drop_op);
    q.c.op_value = kept.get();
    return kept;
}
/// Starts a call, which `kept` outlives, or else its owner. `of` is the persistent call, or null.
inline operation_state* begin_call(
    rank_context& self, const call& c, const schedule_choice& p, kept_arguments&& kept, prepared* of) {
    if (self.log.has_refused) tell_refusal(self, nullptr);
    const double from = self.trace ? self.trace->begin() : 0;
    taken_collective taken(self, c, p, of);
    taken->arguments.non_blocking = true;
    taken->kept = std::move(kept);  // the data of the tables stays where it is
    guarded(self, name_of(c.what), [&] {
        if (c.packed) c.packed->pack();
        taken->begin();
    });
    executor& o = taken.release();
    if (of) o.of = of->shared_from_this();
    o.traced_from = from;
    return hand_to_caller(self, o);
}
inline operation_state* begin(rank_context& self, request& q) {
    const progress_lock mine(self);
    const schedule_choice p = check(self, q, call_time::in_flight);
    std::shared_ptr<const void> op;
    guarded(self, name_of(q.c.what), [&] {
        op = copy_operator(q);
        change_own_contribution(self, q);
    });
    return begin_call(self, q.c, p, {std::move(op), std::move(q.in_offsets), std::move(q.out_offsets)}, nullptr);
}
inline bool begins_at_once(rank_context& self) {
    const progress_lock mine(self);
    return self.backend->has_room(self);
}

/// Takes back an operation that is over or has failed; returns its share of the group, by which the rank may leave it.
/// A persistent call may end that its plan has dropped.
inline std::shared_ptr<rank_context> release_operation(rank_context& self, operation_state& o) {
    for (std::size_t i = 0; i < self.operations.in_flight.size(); ++i)
        if (self.operations.in_flight[i] == &o) {
            self.operations.drop(i);
            break;
        }
    if (const double from = std::exchange(o.traced_from, 0); from != 0) [[unlikely]] {
        const call& c = o.arguments;
        self.trace->end(c, {o.is_collective ? name_of(c.what) : o.site.what, o.schedule,
                               o.is_collective ? none : o.site.peer, o.number, from, c.non_blocking, !o.done});
    }
    o.between_tests.reset();
    o.kept.op.reset();
    o.arguments.packed = {};
    std::shared_ptr<rank_context> group = std::move(o.group);
    const std::shared_ptr<prepared> of = std::move(o.of);
    if (o.kind == operation_kind::collective)
        give_collective(self, std::unique_ptr<executor>(&static_cast<executor&>(o)), of.get());
    else
        self.operations.idle_messages.push_back(std::unique_ptr<pending>(&o));
    return group;
}
/// Runs f, which works on operation o. Where f throws, or o is over after it, o is released and null.
template <class F>
void run_on(rank_context& self, operation_state*& o, F f) {
    std::shared_ptr<rank_context> group;  // outlives the lock
    const progress_lock mine(self);
    bool failed = true;
    const at_end release_if_over{[&] {
        if (!failed && !o->done) return;
        if (!failed && o->arguments.packed) o->arguments.packed->unpack();
        group = release_operation(self, *std::exchange(o, nullptr));
    }};
    f();
    failed = false;
}
inline void test_operation(rank_context& self, operation_state*& o) {
    run_on(self, o, [&] {
        guarded(self, o->site.what, [&] {
            progress(self);
            if (o->done) return;
            if (o->now != std::exchange(o->tested, o->now)) o->between_tests.emplace(self);  // another wait begins
            o->between_tests->check_without_waiting(o->site);
        });
    });
}
inline void wait_operation(rank_context& self, operation_state*& o) {
    run_on(self, o, [&] { wait_until_done(self, *o); });
}
inline void wait_operation_for(rank_context& self, operation_state*& o, double seconds) {
    const double until = seconds_now() + seconds;
    for (test_operation(self, o); o != nullptr && seconds_now() < until; test_operation(self, o)) {
        call_hooks(self);
        sched_yield();
    }
}

inline void finish_operation(rank_context& self, operation_state*& o, bool unwinding) noexcept {
    try {
        if (unwinding)
            wait_operation_for(self, o, 1);
        else
            wait_operation(self, o);
        if (o == nullptr) return;
        run_on(self, o, [&] {
            break_group(self, errc::peer_failed, none, none,
                error_text() << "colls: rank " << self.rank << ": an exception left its function while its "
                             << o->site.what << " was under way");
            leave(self);
            wait_until_done(self, *o);  // throws
        });
    } catch (...) {  // the group is broken, and every later call on it reports that
    }
    if (o == nullptr || self.is_foreign() || gate_lock::is_within(*self.operations.cycle)) return;
    // Refused, since another thread is in a call with the group, which has broken it: the buffers are given up.
    std::shared_ptr<rank_context> group;  // outlives the lock
    const progress_lock mine(self, progress_lock::quiet{});
    leave(self);
    group = release_operation(self, *std::exchange(o, nullptr));
}

inline prepared* prepare_call(rank_context& self, request& q) {
    const progress_lock mine(self);
    const schedule_choice blocking = check(self, q, call_time::later),
                          started = q.given ? blocking : resolve(self, q.c, false, self.access.starts_near);
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
/// Refuses the call unless the prepared call may run now.
inline void expect_ready(const prepared& p) {
    if (p.held.use_count() > 1)  // by an operation that it has started
        refuse_call(*p.group, errc::invalid_argument,
            error_text() << "colls: rank " << p.group->rank << " in " << name_of(p.q.c.what)
                         << ": the plan's operation is not over, and uses its buffers: wait for it before the next "
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
