// The cores that a thread may run on.
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>

#include <sched.h>
#include <cstddef>

namespace colls::inline v1::detail {

/// The affinity of the calling thread.
struct affinity {
    // A set of the usual size is too small for a kernel that knows more than 1,024 cores, which is an error then.
    cpu_set_t set[8];
    int count = 0;  ///< 0: the system does not say

    affinity() {
        for (cpu_set_t& part : set) CPU_ZERO(&part);
        if (sched_getaffinity(0, sizeof set, set) == 0) count = CPU_COUNT_S(sizeof set, set);
    }
    void remove(int core) {
        if (core < 0 || !CPU_ISSET_S(static_cast<std::size_t>(core), sizeof set, set)) return;
        CPU_CLR_S(static_cast<std::size_t>(core), sizeof set, set);
        --count;
    }
    /// Makes it that of the calling thread, which moves if its core is not among them. False: the system refuses.
    bool apply() const { return sched_setaffinity(0, sizeof set, set) == 0; }
};

}  // namespace colls::inline v1::detail
