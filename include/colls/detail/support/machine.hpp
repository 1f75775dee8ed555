// The figures of this machine that predictions are made from, measured between two of its cores.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/copy.hpp>
#include <colls/detail/support/cores.hpp>
#include <colls/extend/machine.hpp>

#include <sched.h>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

namespace colls::inline v1::detail {

using extend::machine;

/// The figures of a part of a group: where ranks outnumber cores, it has as many of them as is its part.
inline machine with_cores_of(machine m, std::size_t part, std::size_t all) {
    if (m.cores >= cores_together::plenty) return m;
    const std::size_t cores = static_cast<std::size_t>(m.cores) * part / all;
    m.cores = cores < 1 ? 1 : static_cast<int>(cores);
    return m;
}

/// For the second thread of a measurement: moves it off its creator's core. Without this the scheduler may start it
/// there, and leave it there for as long as the measurement takes; and a thread that is pinned pins the threads that it
/// creates. (The system leaves out of the set the cores that this process may not use.)
inline void stay_off(int core) {
    if (core < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t c = 0; c < CPU_SETSIZE; ++c)
        if (c != static_cast<std::size_t>(core)) CPU_SET(c, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/// Those in the file of COLLS_TUNE; null: it has none. Throws invalid_argument where the file is wrong. (Groups bring
/// it with them, as their engine.)
const machine* tuned_figures();
/// The figures of this machine. The first call in a process measures them, which takes a few milliseconds, or takes
/// them from the file of COLLS_TUNE, whose errors it throws.
const machine& measured();

#ifndef COLLS_SEPARATE
/// The measurement, by two threads on different cores: one asks, the other answers.
struct probe {
    static constexpr int trips = 4, samples = 250, turns = 4;
    // Where other programs use the cores a trip may take milliseconds. The time of a trip is plausible below 2 us: it
    // is measured for 10 ms at most if it is, for 50 ms at most if not, and then replaced by a usual figure.
    static constexpr double enough = 10e-3, most = 50e-3, plausible = 2e-6;  // seconds
    static constexpr std::size_t bytes = std::size_t{128} << 10, count = bytes / sizeof(float);
    enum request { answer, rewrite, end };
    struct alignas(128) flag {
        std::atomic<int> value{0};
        request task = answer;  ///< is written before the value
    };
    flag there, back;
    int asked = 0;
    const std::unique_ptr<float[]> far{new float[count]}, near{new float[count]};  ///< of the other thread, of this one

    static void wait(const flag& f, int value) {
        for (int spins = 0; f.value.load(std::memory_order_acquire) < value; ++spins)
            if (spins > 10'000) sched_yield();
    }
    void write(float x) {
        for (std::size_t i = 0; i < count; ++i) far[i] = x;
    }
    /// The other thread, which stays off the core of this one. It answers, or first rewrites its buffer, so that the
    /// buffer's lines are dirty in its cache.
    void serve(int askers_core) {
        stay_off(askers_core);
        for (int i = 1;; ++i) {
            wait(there, i);
            if (there.task == end) return;
            if (there.task == rewrite) write(static_cast<float>(i));
            back.value.store(i, std::memory_order_release);
        }
    }
    void ask(request task) {
        there.task = task;
        there.value.store(++asked, std::memory_order_release);
        if (task != end) wait(back, asked);
    }
    /// Adds the other buffer to this one. By vectors, whatever the compiler's options are: a loop of single elements
    /// would be slower than the memory that is to be measured.
    void add() {
        using four = float __attribute__((vector_size(16)));
        float* const to = near.get();
        const float* const from = far.get();
        for (std::size_t i = 0; i < count; i += 4) {
            four a, b;
            std::memcpy(&a, to + i, sizeof a);
            std::memcpy(&b, from + i, sizeof b);
            a += b;
            std::memcpy(to + i, &a, sizeof a);
        }
    }
    static void least(double& a, double b) { a = b < a ? b : a; }
    template <class F>
    static double seconds(F f) {
        const double begin = seconds_now();
        f();
        asm volatile("" : : : "memory");
        return seconds_now() - begin;
    }
    /// Seconds of a trip, one way.
    double line() {
        double found = 1;  // 1 s: more than any measurement
        const double begun = seconds_now();
        const auto goes_on = [&] { return seconds_now() - begun < (found < plausible ? enough : most); };
        for (int i = 0; i < samples && goes_on(); ++i)
            least(found, seconds([&] {
                for (int j = 0; j < trips; ++j) ask(answer);
            }) / (2 * trips));
        return found;
    }
    /// Is it better, between these two cores, to pull a block than to push it past the caches? What is measured at this
    /// distance moves the usual limit.
    [[gnu::cold]] void compare_copies(machine& found) {
        constexpr std::size_t block = bytes / 4;
        double pull = 1, push = 1;
        for (int turn = 0; turn < turns; ++turn) {
            ask(rewrite);
            least(pull, seconds([&] { copy_bytes(near.get(), far.get(), block); }));
            ask(rewrite);
            least(push, seconds([&] { stream_bytes(far.get(), near.get(), block); }));
        }
        // The hypervisor may have moved the cores since the line was measured: then the two do not belong together.
        const double before = found.alpha, after = line();
        constexpr double clear = 1.5;  // less may be a disturbance
        if (after > clear * before || before > clear * after) return;
        least(found.alpha, after);
        if (clear * pull < push && found.near_below < 1.5 * found.alpha) found.near_below = 1.5 * found.alpha;
        if (pull > clear * push && found.near_below > found.alpha / 1.5) found.near_below = found.alpha / 1.5;
    }
    [[gnu::cold]] machine run() {
        machine found{1, 1, 1, cores()};  // 1 s: more than any measurement
        const bool two = second_core();
        std::thread other;
        if (two)
            other = std::thread([this, here = sched_getcpu()] { serve(here); });
        else
            write(0);
        for (std::size_t i = 0; i < count; ++i) near[i] = 0;
        found.alpha = two ? line() : 1e-6;
        for (int turn = 0; turn < turns; ++turn) {
            if (two) ask(rewrite);
            least(found.gamma, seconds([&] { add(); }) / bytes);
            if (two) ask(rewrite);
            least(found.beta, seconds([&] { copy_bytes(far.get(), near.get(), bytes); }) / bytes);
        }
        if (found.alpha >= plausible)
            found.alpha = machine{}.alpha;
        else if (two)
            compare_copies(found);
        if (two) ask(end);
        if (other.joinable()) other.join();
        // A push costs less than a pull, since a store need not wait for the one before it. If the measurement was
        // disturbed and says otherwise, the choice would prefer schedules that pull everything.
        if (found.beta > 0.7 * found.gamma) found.beta = 0.7 * found.gamma;
        return found;
    }
};

COLLS_INLINE const machine& measured() {
    static const machine m = [] {
        if (const machine* const tuned = tuned_figures()) {
            machine read = *tuned;
            read.cores = cores();
            return read;
        }
        try {
            return probe().run();
        } catch (const std::exception&) {  // no second thread, or no memory: usual figures
            return machine{.cores = cores()};
        }
    }();
    return m;
}
#endif

}  // namespace colls::inline v1::detail
