// Small programs, right and wrong, on which the scheduler itself is tested.
#pragma once

#include "scheduler.hpp"

namespace interleaving {

enum class small_program : unsigned char {
    handed_over,       ///< rank 0 writes data and raises a flag, for which rank 1 waits
    flag_first,        ///< the flag is raised before the data are there
    flag_relaxed,      ///< the flag does not publish the data
    wait_relaxed,      ///< the wait does not acquire them
    fenced,            ///< relaxed operations between fences
    lost_update,       ///< both ranks add 1 by a load and a store
    added,             ///< both ranks add 1 by fetch_add
    crossed,           ///< each rank waits for the other before it raises its own flag
    late_by_two,       ///< wrong only where rank 0 is held up twice
    polls_two,         ///< rank 1 waits until two flags are raised, which it looks at in turn
    throws_while_held  ///< both ranks wait within handlers of exceptions
};
outcome explore_small(small_program which, int delays);

}  // namespace interleaving
