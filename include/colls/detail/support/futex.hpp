// Sleeping on a word of memory, also of memory that processes share.
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <atomic>
#include <climits>
#include <cstdint>

namespace colls::inline v1::detail {

/// Sleeps until another thread calls wake_at, or for so long; not at all if the word no longer has that value. A signal
/// may end it early.
inline void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t value, double seconds) {
    const auto whole = static_cast<time_t>(seconds);
    const timespec t{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    syscall(SYS_futex, &word, FUTEX_WAIT, value, &t, nullptr, 0);
}
/// Wakes those that sleep on the word, `most` of them at most.
inline void wake_at(const std::atomic<std::uint32_t>& word, int most = INT_MAX) {
    syscall(SYS_futex, &word, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

}  // namespace colls::inline v1::detail
