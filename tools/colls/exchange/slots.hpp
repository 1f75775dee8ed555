// The chunks of a plan as slots of a schedule. A schedule has one buffer for input and output, and scratch slots; what
// the plan copies from one memory of a rank to another only to go on with it there takes one slot.
#pragma once

#include "program.hpp"

#include <vector>

namespace exchange {

/// A move between slots. Times order all accesses of the plan: a read is even, a write is odd.
struct slot_move {
    colls::action action = colls::action::copy;
    int from = 0, from_slot = 0, to = 0, to_slot = 0;
    long read_time = 0, write_time = 0;
    int group = 0;
};
struct slot_program {
    std::vector<slot_move> moves;
    int groups = 0;            ///< those of the plan, and one for each rank that copies its output at the end
    std::vector<int> scratch;  ///< slots of each rank
    std::vector<int> apart;    ///< of each rank: blocks of the output that are copied at the end
    /// all_to_all: of each rank the source of what each slot holds at the end. Empty: as blocks are numbered.
    std::vector<std::vector<int>> outputs;
};

/// Throws refuted where two steps access one chunk in no order, where a step reads what nothing has written, or where
/// a chunk of the output is never written. `reuse`: scratch memory takes slots of the user's, while these hold nothing
/// that is needed; that can delay messages.
slot_program slots_of(const program& plan, bool reuse);

}  // namespace exchange
