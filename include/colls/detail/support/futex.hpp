// Sleeping on a word of memory, also of memory that processes share; and a fence on all cores, made by the one of two
// threads that pays for both.
// IWYU pragma: private
#pragma once

#include <colls/detail/support/clock.hpp>

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <atomic>
#include <climits>
#include <cstdint>

namespace colls::inline v1::detail {

/// Sleeps until another thread calls wake_at, or for so long; not at all if the word no longer has that value. A signal
/// may end it early.
inline void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t value, double seconds) {
    const timespec t = timespec_of(seconds);
    syscall(SYS_futex, &word, FUTEX_WAIT, value, &t, nullptr, 0);
}
/// Wakes those that sleep on the word, `most` of them at most.
inline void wake_at(const std::atomic<std::uint32_t>& word, int most = INT_MAX) {
    syscall(SYS_futex, &word, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

/// From now on fences of others include this process's threads. False: the system cannot do that.
inline bool open_to_fences() { return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0; }

/// Each thread of the processes that are open to it has made a fence when this returns: what it stored before can be
/// seen, and what it loads later is newer than what this thread has stored. A thread that has to come out of Dekker's
/// algorithm cheaply keeps the compiler alone from exchanging its store and its load.
[[gnu::cold]] inline void fence_everywhere() {
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        sleep_seconds(1e-3);  // longer than any store takes
}

}  // namespace colls::inline v1::detail
