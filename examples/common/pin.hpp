// Binding ranks to cores.
#pragma once

#include <sched.h>

namespace example {

/// Binds this thread to one of the cores that it may use: rank r to core r, counted around. Without it two ranks may
/// share a core while another core idles, or does something else.
inline void pin_to_core(int rank) {
    cpu_set_t usable, own;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
    int skip = rank % CPU_COUNT(&usable);
    for (unsigned core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &usable) && skip-- == 0) {
            CPU_ZERO(&own);
            CPU_SET(core, &own);
            sched_setaffinity(0, sizeof own, &own);
        }
}

}  // namespace example
