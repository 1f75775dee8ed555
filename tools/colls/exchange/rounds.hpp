// The moves of a plan in rounds: each in the first one in which its data is there, and its place is free.
#pragma once

#include "program.hpp"
#include "transfer_table.hpp"

#include <string>
#include <vector>

namespace exchange {

/// A message or local step of the plan, and its place in the schedule.
struct placed_group {
    int round = 0;
    int from = 0, to = 0;             ///< ranks
    int read_at = 0, written_at = 0;  ///< events of the plan, or none: a copy that was added
};

/// A plan as a schedule.
struct imported {
    program plan;
    transfer_table table;
    std::vector<placed_group> groups;
    int copied_ahead = 0;  ///< messages whose data is first copied, since their place is written before they arrive
    int apart = 0;         ///< blocks, of all ranks, whose output cannot be where their input is

    /// What the plan does at a rank in a round of the schedule: its steps, in words.
    std::string steps_at(int rank, int round) const;
};

/// Throws refuted where the plan waits for ever, races, or reads what nothing has written. `reuse`: as for slots_of.
imported in_rounds(const program& plan, bool reuse);
/// Without scratch slots, if slots of the user's suffice: executors have none for schedules of several blocks.
imported in_rounds(const program& plan);

}  // namespace exchange
