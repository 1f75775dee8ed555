// The figures from which the library predicts how long a schedule takes on a group's transport.
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::extend {

/// How fast a transport is between two ranks of a group. `automatic` chooses schedules by it, so all ranks of a group
/// must have the same figures.
struct machine {
    double alpha = 1e-6;   ///< seconds from one rank's store, or send, to the moment at which its peer has seen it
    double beta = 1e-10;   ///< seconds to copy a byte to a peer
    double gamma = 1e-10;  ///< seconds to reduce a byte
    int cores = 1;         ///< cores that the group's ranks share on one host
    double message = 0;    ///< seconds of work that a message costs both sides together; 0: ranks share memory
    double near_below =
        100e-9;  ///< shared memory: where alpha is less ranks pull copies; else push them past the caches
};

}  // namespace colls::inline v1::extend
