// From a schedule to its execution plan at one group size.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// The schedule is read once (step_table), and its slots are named as parts of the users' buffers (unit_map). Then one
// of two lowerings makes programs: memory_lowering those of all ranks, where ranks reach the memory of their peers, and
// message_lowering that of one rank, where messages pass. Both follow the slots round by round (slot_states), derive
// the waits (dependencies), and have the folds in common (local_work).
#pragma once

#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/group_facts.hpp>
#include <colls/detail/plan/memory_lowering.hpp>
#include <colls/detail/plan/message_lowering.hpp>
#include <colls/detail/plan/plan_size.hpp>
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

/// Throws errc::unsupported where the schedule does not support n ranks, has a form that cannot be planned, or would
/// take too much memory, and errc::wrong_schedule where the proof rejects it.
inline std::unique_ptr<execution_plan> make_execution_plan(const any_schedule& s, int n, reach within, copying how) {
    if (!s.supports(n)) refuse_size(s, n);
    if (const message why = too_large(s, n, within); !why.empty()) refuse_schedule(s, n, errc::unsupported, why.text());
    std::unique_ptr<execution_plan> plan(new execution_plan(s, n, within, how));
    if (s.needs_proof()) {
        const finding f = s.prove(n);
        if (f.unproven) refuse_schedule(s, n, errc::unsupported, f.text.text());
        if (!f.right) refuse_schedule(s, n, errc::wrong_schedule, f.text.text(), f.rank, f.round);
        plan->order_preserving = f.order_preserving;
        plan->one_expression = f.one_expression;
        plan->expressions_known = f.expressions_known;
        expect_one_action_a_block(s, n);
    }
    const bool all = within != reach::nothing;
    const step_table steps(s, n, 0, all ? n : 0);
    plan->fingerprint = fingerprint_of(steps);
    plan->rounds = steps.rounds;
    plan->root = steps.root;
    unit_map units(steps);
    if (all)
        memory_lowering(steps, units, *plan).lower();
    else if (owned(steps.what) && rooted(steps.what))
        plan->own_blocks_only = moves_own_blocks_only(steps, units);
    std::move(units).describe(*plan);
    return plan;
}

COLLS_INLINE const rank_program& execution_plan::make_program(int rank) const {
    const step_table steps(schedule, size, rank, 1);
    const unit_map units(steps);
    return add_program(rank, message_lowering(steps, units).lower());
}

/// With the usual copying.
inline std::unique_ptr<execution_plan> make_execution_plan(const any_schedule& s, int n, reach within) {
    return make_execution_plan(s, n, within, usual_copying(s.implements));
}

}  // namespace colls::inline v1::detail
