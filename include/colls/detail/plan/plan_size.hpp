// Whether the execution plan of a schedule would fit into memory, before it is made.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/slot_states.hpp>
#include <colls/detail/support/error_text.hpp>

namespace colls::inline v1::detail {

/// About the bytes that it takes to make a plan: of all ranks, or of one where messages pass.
[[gnu::cold]] inline double planning_bytes(const any_schedule& s, int n, reach within) {
    constexpr double step_bytes = sizeof(step) + 3 * sizeof(instruction), slot_bytes = sizeof(slot_state) + 32;
    const double ranks = within == reach::nothing ? 1 : n, size = n;
    const double steps = static_cast<double>(s.rounds(n)) * s.ports(n), slots = double(s.blocks(n)) + s.scratch(n);
    return ranks * (steps * step_bytes + slots * slot_bytes + 8 * size) + 16 * size;
}

/// Why no plan can be made of the schedule at n ranks, which it supports; empty: one can.
[[gnu::cold]] inline error_text too_large(const any_schedule& s, int n, reach within) {
    constexpr double gigabyte = 1 << 30, most = 4 * gigabyte, most_of_one = gigabyte;
    const bool messages = within == reach::nothing;
    error_text why;
    // Clocks are kept in 16 bits, and a round takes two values.
    if (!messages && s.rounds(n) >= 30000)
        return why << "more than 30,000 rounds in shared memory: take one of few rounds, such as circulant or tree";
    const double bytes = planning_bytes(s, n, within);
    if (bytes <= (messages ? most_of_one : most)) return why;
    why << "its execution plan" << (messages ? " for one rank" : ", which has the programs of all ranks,");
    put_gigabytes(why << " would take about ", bytes)
        << ", and may take " << (messages ? 1 : 4) << ": take "
        << (messages ? "" : "messages (COLLS_TRANSPORT=tcp), where a rank needs only its own program, or ")
        << "a schedule of fewer rounds and peers, such as tree";
    return why;
}

}  // namespace colls::inline v1::detail
