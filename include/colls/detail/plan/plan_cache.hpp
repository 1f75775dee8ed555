// The execution plans of this process: each is made once, when it is first asked for.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/plan/execution_plan.hpp>

#ifndef COLLS_SEPARATE
#include <colls/detail/plan/make_execution_plan.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/detail/support/process_lock.hpp>

#endif

namespace colls::inline v1::detail {

/// The plan of the schedule at n ranks, which stays valid until the process ends. Threads may call it at once. Throws
/// what make_execution_plan() throws, at every call.
const execution_plan* execution_plan_for(const any_schedule& s, int n, reach within, copying how);
inline const execution_plan* execution_plan_for(const any_schedule& s, int n, reach within = reach::buffers) {
    return execution_plan_for(s, n, within, usual_copying(s.implements));
}
#ifndef COLLS_SEPARATE
COLLS_INLINE const execution_plan* execution_plan_for(const any_schedule& s, int n, reach within, copying how) {
    const process_lock lock;
    // Never destroyed: threads may outlive main.
    static list<const execution_plan*>& cache = *new list<const execution_plan*>;
    for (const execution_plan* p : cache)
        if (p->size == n && p->within == within && p->copies == how && p->schedule == s) return p;
    cache.push_back(make_execution_plan(s, n, within, how).release());
    return cache.back();
}
#endif

/// The plan in `kept`, which at first is found for the schedule of `plan`.
inline const execution_plan& related_plan(
    std::atomic<const execution_plan*>& kept, const execution_plan& plan, reach within, copying how) {
    const execution_plan* found = kept.load(std::memory_order_acquire);
    if (found == nullptr) {
        found = execution_plan_for(plan.schedule, plan.size, within, how);
        kept.store(found, std::memory_order_release);
    }
    return *found;
}
/// The plan of the same schedule that pulls its copies where this one pushes them, or the reverse.
inline const execution_plan& copied_otherwise(const execution_plan& plan) {
    return related_plan(
        plan.otherwise, plan, plan.within, plan.copies == copying::pulled ? copying::pushed : copying::pulled);
}
/// The plan of the same schedule for buffers that other ranks cannot reach: staged, or by single copies.
inline const execution_plan& out_of_reach_plan(const execution_plan& direct, bool single_copy) {
    return related_plan(single_copy ? direct.single_copy : direct.staged, direct,
        single_copy ? reach::processes : reach::scratch, usual_copying(direct.schedule.implements));
}

}  // namespace colls::inline v1::detail
