// A fence on all cores, made by the one of two threads that pays for both.
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace colls::inline v1::detail {

/// From now on fences of others include this process's threads. False: the system cannot do that.
inline bool open_to_fences() { return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0; }

/// Each thread of the processes that are open to it has made a fence when this returns: what it stored before can be
/// seen, and what it loads later is newer than what this thread has stored. A thread that has to come out of Dekker's
/// algorithm cheaply keeps the compiler alone from exchanging its store and its load.
[[gnu::cold]] inline void fence_everywhere() {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0) return;
    const timespec longer_than_any_store_takes{0, 1'000'000};
    nanosleep(&longer_than_any_store_takes, nullptr);
}

}  // namespace colls::inline v1::detail
