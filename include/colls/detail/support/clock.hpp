// Monotonic time, and the processor's hint that a loop spins.
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>

#include <time.h>
#include <cstdint>

namespace colls::inline v1::detail {

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

inline double seconds_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

/// Seconds as the system takes them.
inline timespec timespec_of(double seconds) {
    const auto whole = static_cast<time_t>(seconds);
    return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}
inline void sleep_seconds(double seconds) {
    const timespec t = timespec_of(seconds);
    nanosleep(&t, nullptr);
}

inline std::uint64_t milliseconds_now() { return static_cast<std::uint64_t>(seconds_now() * 1e3); }

}  // namespace colls::inline v1::detail
