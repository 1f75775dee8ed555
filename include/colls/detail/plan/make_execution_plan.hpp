// From a schedule to its execution plan at one group size.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// The schedule is read once (step_table), and its slots are named as parts of the users' buffers (unit_map). Then one
// of two lowerings makes programs: memory_lowering those of all ranks, where ranks reach the memory of their peers, and
// message_lowering that of one rank, where messages pass. What both do is in lowering: they follow the slots round by
// round (slot_states), derive the waits (dependencies), and make the folds.
#pragma once

#include <colls/detail/plan/memory_lowering.hpp>
#include <colls/detail/support/hash.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace colls::inline v1::detail {

/// A hash of the schedule's type and steps: ranks that make different calls differ in it. In groups of more than
/// 262,144 steps it covers as many ranks as have about that many, evenly spaced, and always rank 0. (Schedules of one
/// type are one function of the group size, but for their state: what tells states apart shows in the steps of any
/// rank. Two layouts may differ in few steps, so all steps of a redistribution count.)
[[gnu::cold]] inline std::uint64_t fingerprint_of(const step_table& shape) {
    constexpr double most_steps = 1 << 18;
    const any_schedule& s = shape.schedule;
    const int n = shape.size;
    const double steps = all_steps(s, n);
    const int stride = steps <= most_steps || shape.what == collective::redistribute ? 1
                       : steps >= most_steps * n                                     ? n
                                                 : static_cast<int>(steps / most_steps) + 1;
    std::uint64_t h = hash_mix(hash_text(s.type()), static_cast<std::uint64_t>(shape.blocks));
    const auto mix = [&h](int a, int b) {
        h = hash_mix(h, static_cast<std::uint64_t>(static_cast<unsigned>(a)) << 32 | static_cast<unsigned>(b));
    };
    for (int r = 0; r < n; r += stride)
        for (int k = 0; k < shape.rounds; ++k)
            for (int p = 0; p < shape.ports; ++p) {
                const step st = shape.of(r, k, p);
                const block_set &sent = st.send.blocks, &received = st.recv.blocks;
                mix(st.send.peer, st.recv.peer);
                mix(sent.size(), received.size());
                if (!sent.empty()) mix(sent[0], sent[sent.size() - 1]);
                if (!received.empty()) mix(received[0], static_cast<int>(st.recv.action));
            }
    return h;
}

/// Throws errc::unsupported where a rank both copies and reduces into one block in one round.
[[gnu::cold]] inline void expect_one_action_a_block(const any_schedule& s, int n) {
    const int rounds = s.rounds(n), ports = s.ports(n);
    list<long> copied;  // by slot: the round in which it was last copied into, counted over all ranks
    copied.resize(static_cast<std::size_t>(s.blocks(n)) + static_cast<std::size_t>(s.scratch(n)), -1);
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < rounds; ++k)
            for (const bool reducing : {false, true})
                for (int p = 0; p < ports; ++p) {
                    const receive_part to = s.at(r, n, k, p).recv;
                    if (to.peer == none || (to.action == action::reduce) != reducing) continue;
                    for (int i = 0; i < to.blocks.size(); ++i) {
                        long& last = copied[to.blocks[i]];
                        if (reducing && last == long{r} * rounds + k)
                            refuse_schedule(s, n, errc::unsupported, "one round copies and reduces into one block");
                        if (!reducing) last = long{r} * rounds + k;
                    }
                }
}

[[noreturn]] inline void refuse_size(const any_schedule& s, int n) {
    error_text what;
    put_brief(what << "colls: ", s.name()) << " does not support " << n << " ranks: take ";
    if (s.folds(n)) put_brief(what << "folded<", s.name()) << ">, ";
    throw error(errc::unsupported, (what << "direct or automatic").text());
}

/// Throws errc::unsupported where the schedule does not support n ranks, has a form that cannot be planned, or would
/// take too much memory, and errc::wrong_schedule where the proof rejects it.
[[gnu::cold]] inline std::unique_ptr<execution_plan> make_execution_plan(
    const any_schedule& s, int n, reach within, copying how) {
    if (!s.supports(n)) refuse_size(s, n);
    if (const error_text why = too_large(s, n, within); !why.empty())
        refuse_schedule(s, n, errc::unsupported, why.text());
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
        plan->own_blocks_only = planner_of_messages.moves_own_blocks_only(steps, units);
    std::move(units).describe(*plan);
    return plan;
}

[[gnu::cold]] COLLS_INLINE const rank_program& execution_plan::make_program(int rank) const {
    const step_table steps(schedule, size, rank, 1);
    const unit_map units(steps);
    return add_program(rank, planner_of_messages.program(steps, units));
}

}  // namespace colls::inline v1::detail
