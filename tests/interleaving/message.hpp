// Messages (colls/detail/execute/memory_message.hpp) under the interleavings of their ranks.
#pragma once

#include "scheduler.hpp"

#include <vector>

namespace interleaving {

struct started_message {
    int from, to;
    std::size_t bytes;
};

/// Each rank starts its part of these messages in that order, and then completes them in that order. A rank writes the
/// buffer of a message before it and after it. `reached`: receivers copy out of the senders' buffers; otherwise piece
/// by piece through scratch memory. Faults: wrong data, an error, a race, a rank that waits for ever.
outcome explore_messages(int ranks, const std::vector<started_message>& messages, bool reached, int delays);

}  // namespace interleaving
