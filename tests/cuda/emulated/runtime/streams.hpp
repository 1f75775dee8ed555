// Streams and events, for the parts of the stand-in that look into them.
#pragma once

#include "runtime.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

namespace emulated {

/// Work in the order of its stream. (A graph is captured from one stream, so it is a line.)
struct graph {
    std::vector<std::function<void()>> work;
};

/// Its launches run one after the other, in whichever streams they are.
struct executable_graph {
    const graph of;
    std::mutex mutex;
    ticket last;  ///< of its last launch
};

struct event {
    ticket after;  ///< of no stream until it is recorded
    std::chrono::steady_clock::time_point time;
};
std::shared_ptr<event> event_of(cudaEvent_t);

}  // namespace emulated
