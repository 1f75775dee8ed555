// The figures of this machine that predictions are made from, measured between two of its cores.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/copy.hpp>
#include <colls/detail/support/cores.hpp>
#include <colls/detail/support/process_lock.hpp>
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

/// Two threads on different cores, between which something is measured: the one that makes this, and another, which
/// does what it is asked.
class two_threads {
public:
    two_threads() : other_([this, here = sched_getcpu()] { serve(here); }) {
        together([] {});  // it has begun
        begun_ = seconds_now();
    }
    ~two_threads() {
        ask_.call = nullptr;
        ask_.value.store(asked_ + 1, std::memory_order_release);
        other_.join();
    }
    /// Calls `own` in this thread while the other calls `theirs`; returns when both are over.
    template <class A, class B = void (*)()>
    void together(const A& theirs, const B& own = [] {}) {
        ask_.what = &theirs;
        ask_.call = [](const void* f) { (*static_cast<const A*>(f))(); };
        ask_.value.store(++asked_, std::memory_order_release);
        own();
        wait(answer_, asked_);
    }
    /// Is it time to end? Where other programs use the cores each question may take milliseconds.
    bool late() const { return seconds_now() - begun_ > most; }

private:
    static constexpr double most = 30e-3;  // seconds
    // Something is measured only while both threads run: so they yield late, but soon at first, perhaps on one core.
    static constexpr int patience = 3'000'000, at_first = 10'000;  // milliseconds, microseconds
    struct alignas(128) flag {
        std::atomic<int> value{0};
        void (*call)(const void*) = nullptr;  ///< null: end. Is written before the value, as is the next.
        const void* what = nullptr;
    };
    static void wait(const flag& f, int value) {
        for (int spins = 0; f.value.load(std::memory_order_acquire) < value; ++spins)
            if (spins > (value == 1 ? at_first : patience)) sched_yield();
    }
    void serve(int askers_core) {
        stay_off(askers_core);
        for (int i = 1;; ++i) {
            wait(ask_, i);
            if (!ask_.call) return;
            ask_.call(ask_.what);
            answer_.value.store(i, std::memory_order_release);
        }
    }
    /// Moves the calling thread off its creator's core. Without this the scheduler may start it there, and leave it
    /// there for as long as the measurement takes; and a thread that is pinned pins the threads that it creates. (The
    /// system leaves out of the set the cores that this process may not use.)
    static void stay_off(int core) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (std::size_t c = 0; c < CPU_SETSIZE; ++c)
            if (c != static_cast<std::size_t>(core)) CPU_SET(c, &set);
        sched_setaffinity(0, sizeof set, &set);
    }

    flag ask_, answer_;
    int asked_ = 0;
    double begun_ = 0;
    std::thread other_;
};

/// The least of several measurements of the same counts.
inline void least(double& a, double b) { a = b < a ? b : a; }
template <class F>
double seconds_of(F f) {
    const double begin = seconds_now();
    f();
    asm volatile("" : : : "memory");
    return seconds_now() - begin;
}

/// Those in the file of COLLS_TUNE; null: it has none. Throws invalid_argument where the file is wrong. (Groups bring
/// it with them, as their engine.)
const machine* tuned_figures();
/// The figures of this machine. The first call in a process measures them, which takes a few milliseconds, or takes
/// them from the file of COLLS_TUNE, whose errors it throws.
const machine& measured();

#ifndef COLLS_SEPARATE
/// The measurement. Cores that others use may make any figure implausible: then the usual one takes its place.
struct probe {
    static constexpr int trips = 4, samples = 250, turns = 4;
    static constexpr double enough = 10e-3, plausible = 2e-6;  // seconds: for all trips, and of one
    static constexpr std::size_t bytes = std::size_t{128} << 10, count = bytes / sizeof(float);

    const std::unique_ptr<float[]> far{new float[count]}, near{new float[count]()};  ///< the other's, this thread's
    two_threads threads{};

    /// The lines of the other thread's buffer become dirty in its cache.
    void rewrite() {
        threads.together([&] {
            for (std::size_t i = 0; i < count; ++i) far[i] = static_cast<float>(i);
        });
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
    /// Seconds of a trip, one way.
    double line() {
        double found = 1;  // 1 s: more than any measurement
        const double begun = seconds_now();
        for (int i = 0; i < samples && !threads.late() && (found >= plausible || seconds_now() - begun < enough); ++i)
            least(found, seconds_of([&] {
                for (int j = 0; j < trips; ++j) threads.together([] {});
            }) / (2 * trips));
        return found;
    }
    /// Is it better, between these two cores, to pull a block than to push it past the caches? What is measured at this
    /// distance moves the usual limit.
    [[gnu::cold]] void compare_copies(machine& found) {
        constexpr std::size_t block = bytes / 4;
        double pull = 1, push = 1;
        for (int turn = 0; turn < turns; ++turn) {
            if (threads.late()) return;
            rewrite();
            least(pull, seconds_of([&] { copy_bytes(near.get(), far.get(), block); }));
            rewrite();
            least(push, seconds_of([&] { stream_bytes(far.get(), near.get(), block); }));
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
        machine found{.cores = cores()};
        const double alpha = line();
        if (alpha >= plausible) return found;
        found.alpha = alpha;
        double gamma = 1, beta = 1;
        for (int turn = 0; turn < turns; ++turn) {
            if (threads.late()) return found;
            rewrite();
            least(gamma, seconds_of([&] { add(); }) / bytes);
            rewrite();
            least(beta, seconds_of([&] { copy_bytes(far.get(), near.get(), bytes); }) / bytes);
        }
        found.gamma = gamma;
        // A push costs less than a pull, since a store need not wait for the one before it. If the measurement was
        // disturbed and says otherwise, the choice would prefer schedules that pull everything.
        found.beta = beta > 0.7 * gamma ? 0.7 * gamma : beta;
        compare_copies(found);
        return found;
    }
};

COLLS_INLINE const machine& measured() {
    const process_lock lock;
    static const machine m = [] {
        if (const machine* const tuned = tuned_figures()) {
            machine read = *tuned;
            read.cores = cores();
            return read;
        }
        const machine usual{.cores = cores()};
        if (!second_core()) return usual;
        try {
            return probe().run();
        } catch (const std::exception&) {  // no second thread, or no memory
            return usual;
        }
    }();
    return m;
}
#endif

}  // namespace colls::inline v1::detail
