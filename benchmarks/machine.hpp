// What a measurement needs of the machine: a clock, futexes, pinning, and two reference figures that are measured
// beside every result: the latency of a cache line and the bandwidth of a copy.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace bench {

/// A clock that every core shares, read in a few nanoseconds.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
    unsigned aux;
    return __rdtscp(&aux);
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

inline double measure_ticks_per_ns() {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    const auto first = ticks();
    while (clock::now() - begin < std::chrono::milliseconds(50)) {}
    const auto last = ticks();
    return static_cast<double>(last - first) / std::chrono::duration<double, std::nano>(clock::now() - begin).count();
}

/// Ticks that a few hundred independent additions take: up to 1.5 times as many while another hardware thread of the
/// core is busy. In a virtual machine that may be another machine's.
inline std::uint64_t ticks_of_work() {
    std::uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
    const std::uint64_t begin = ticks();
    for (std::uint64_t i = 0; i < 200; ++i) {
        a += b ^ i, b += c, c ^= d + i, d += e, e ^= f, f += a;
        asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    return ticks() - begin;
}

inline void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// A futex shared between processes. The idle side must sleep: spinning, it would take a core from the other side.
inline void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t value, double seconds = 0) {
    const auto whole = static_cast<time_t>(seconds);
    const timespec limit{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    syscall(SYS_futex, &word, FUTEX_WAIT, value, seconds > 0 ? &limit : nullptr, nullptr, 0);
}
inline void wake_all(std::atomic<std::uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

inline void pin_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(core), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/// Copies with stores past the caches (`streaming`) or through them: the reference for memory bandwidth.
inline void copy_through(std::span<const float> in, std::span<float> out, bool streaming) {
    std::size_t i = 0;
#if defined(__x86_64__)
    if (streaming)
        for (; i + 16 <= in.size(); i += 16)
            for (std::size_t k = 0; k < 16; k += 4) _mm_stream_ps(&out[i + k], _mm_loadu_ps(&in[i + k]));
    _mm_sfence();
#else
    (void)streaming;
#endif
    if (i < in.size()) std::memcpy(&out[i], &in[i], (in.size() - i) * sizeof(float));
}

/// The latency of a cache line from one core to another, one way, in ns: the median of 21 batches of exchanges.
inline double line_latency(int core_a, int core_b, double ticks_per_ns) {
    struct alignas(128) line {
        std::atomic<std::uint32_t> value{0};
    };
    line ping, pong;
    constexpr std::uint32_t batches = 21, batch = 100;
    double ns[batches];
    std::thread other([&] {
        pin_to(core_b);
        for (std::uint32_t i = 1; i <= batches * batch; ++i) {
            while (ping.value.load(std::memory_order_acquire) != i) {}
            pong.value.store(i, std::memory_order_release);
        }
    });
    std::thread self([&] {
        pin_to(core_a);
        std::uint32_t i = 0;
        for (double& t : ns) {
            const auto begin = ticks();
            for (std::uint32_t k = 0; k < batch; ++k) {
                ping.value.store(++i, std::memory_order_release);
                while (pong.value.load(std::memory_order_acquire) != i) {}
            }
            t = static_cast<double>(ticks() - begin) / ticks_per_ns / (2.0 * batch);
        }
    });
    self.join();
    other.join();
    for (double& a : ns)
        for (double* b = ns; b < &a; ++b)
            if (a < *b) std::swap(a, *b);
    return ns[batches / 2];
}

/// Two threads that spin meet here.
class line_barrier {
public:
    void meet(int rank) {
        const std::uint32_t phase = at_[rank].value.load(std::memory_order_relaxed) + 1;
        at_[rank].value.store(phase, std::memory_order_release);
        for (int spins = 0; at_[1 - rank].value.load(std::memory_order_acquire) < phase; ++spins)
            if (spins > 100'000) sched_yield();
    }

private:
    struct alignas(128) line {
        std::atomic<std::uint32_t> value{0};
    };
    line at_[2];
};

}  // namespace bench
