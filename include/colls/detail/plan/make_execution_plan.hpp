// From a schedule to its execution plan at one group size.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// The schedule is read once (step_table), and its slots are named as parts of the users' buffers (unit_map). Then one
// of two lowerings makes the programs of all ranks: memory_lowering where ranks reach the memory of their peers,
// message_lowering where messages pass. Both follow the slots round by round (slot_states), derive the waits
// (dependencies), and have the folds in common (local_work).
#pragma once

#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/memory_lowering.hpp>
#include <colls/detail/plan/message_lowering.hpp>
#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>

#include <memory>
#include <utility>

namespace colls::inline v1::detail {

[[noreturn]] inline void refuse_size(const any_schedule& s, int n) {
    message what;
    put_brief(what << "colls: ", s.name()) << " does not support " << n << " ranks: take ";
    if (s.folds(n)) put_brief(what << "folded<", s.name()) << ">, ";
    throw error(errc::unsupported, (what << "direct or automatic").text());
}

/// Throws errc::unsupported where the schedule does not support n ranks or has a form that cannot be planned, and
/// errc::wrong_schedule where the proof rejects it.
inline std::unique_ptr<execution_plan> make_execution_plan(const any_schedule& s, int n, reach within, copying how) {
    if (!s.supports(n)) refuse_size(s, n);
    std::unique_ptr<execution_plan> plan(new execution_plan(s, n, within, how));
    if (s.needs_proof()) {
        const finding f = s.prove(n);
        if (!f.right) refuse_schedule(s, n, errc::wrong_schedule, f.text.text(), f.rank, f.round);
        plan->order_preserving = f.order_preserving;
        plan->one_expression = f.one_expression;
    }
    const step_table steps(s, n);
    plan->fingerprint = steps.fingerprint();
    plan->rounds = steps.rounds;
    plan->root = steps.root;
    unit_map units(steps);
    if (within == reach::nothing)
        message_lowering(steps, units, *plan).lower();
    else
        memory_lowering(steps, units, *plan).lower();
    std::move(units).describe(*plan);
    return plan;
}

}  // namespace colls::inline v1::detail
