// How fast this machine is between two of its cores, as far as predictions go.
#pragma once

#include <colls/detail/group/backoff.hpp>

#include <sched.h>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

namespace colls::inline v1::detail {

/// Cores that this process may use: counted once, before its threads may have been pinned.
inline int cores() {
    static const int counted = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
        return n > 0 ? n : 1;
    }();
    return counted;
}

/// Measured when first asked for, in a few milliseconds.
const machine& measured();

#ifndef COLLS_SEPARATE
/// What the two threads of the measurement share.
struct probe {
    static constexpr int trips = 4, samples = 250, turns = 4;
    // Where other programs have the cores a trip may take milliseconds: if none comes through, usual figures must do.
    static constexpr double enough = 10e-3, most = 50e-3, plausible = 2e-6;  // seconds
    static constexpr std::size_t bytes = std::size_t{128} << 10, count = bytes / sizeof(float);
    enum request { answer, rewrite, end };
    struct alignas(128) flag {
        std::atomic<int> value{0};
        request task = answer;  // goes with the value
    };
    flag there, back;
    int asked = 0;
    const std::unique_ptr<float[]> far{new float[count]}, near{new float[count]};

    static void wait(const flag& f, int value) {
        for (int spins = 0; f.value.load(std::memory_order_acquire) < value; ++spins)
            if (spins > 10'000) sched_yield();
    }
    void write(float x) {
        for (std::size_t i = 0; i < count; ++i) far[i] = x;
    }
    // The other thread: answers, or rewrites its buffer first, so that its lines are dirty in its cache.
    void serve(int not_on) {
        stay_off(not_on);
        for (int i = 1;; ++i) {
            wait(there, i);
            if (there.task == end) return;
            if (there.task == rewrite) write(static_cast<float>(i));
            back.value.store(i, std::memory_order_release);
        }
    }
    // The scheduler may well start a thread beside its maker, and leave it there for as long as all of this takes; and
    // a maker that is pinned pins what it makes. (The system leaves out of the set what this process may not use.)
    static void stay_off(int core) {
        if (core < 0) return;
        cpu_set_t set;
        CPU_ZERO(&set);
        for (std::size_t c = 0; c < CPU_SETSIZE; ++c)
            if (c != static_cast<std::size_t>(core)) CPU_SET(c, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    void ask(request task) {
        there.task = task;
        there.value.store(++asked, std::memory_order_release);
        if (task != end) wait(back, asked);
    }
    template <class F>
    static double seconds(F f) {
        const double begin = seconds_now();
        f();
        asm volatile("" : : : "memory");
        return seconds_now() - begin;
    }
    machine run() {
        machine x{1, 1, 1, cores()};  // seconds: more than any
        std::thread other;
        if (x.cores > 1)
            other = std::thread([this, here = sched_getcpu()] { serve(here); });
        else
            write(0);
        for (std::size_t i = 0; i < count; ++i) near[i] = 0;
        const auto least = [](double& a, double b) { a = b < a ? b : a; };
        x.alpha = x.cores > 1 ? 1 : 1e-6;
        const double begun = seconds_now();
        const auto goes_on = [&] { return seconds_now() - begun < (x.alpha < plausible ? enough : most); };
        for (int i = 0; i < samples && x.cores > 1 && goes_on(); ++i)
            least(x.alpha, seconds([&] {
                for (int j = 0; j < trips; ++j) ask(answer);
            }) / (2 * trips));
        for (int turn = 0; turn < turns; ++turn) {
            if (x.cores > 1) ask(rewrite);
            least(x.gamma, seconds([&] {
                for (std::size_t i = 0; i < count; ++i) near[i] += far[i];
            }) / bytes);
            if (x.cores > 1) ask(rewrite);
            least(x.beta, seconds([&] { std::memcpy(far.get(), near.get(), bytes); }) / bytes);
        }
        if (x.alpha >= plausible) x.alpha = machine{}.alpha;
        if (x.cores > 1) ask(end);
        if (other.joinable()) other.join();
        // A store need not wait for the one before, a load must. Whatever disturbed the measurement: a push costs less
        // than a pull, or the choice would turn to schedules that pull everything.
        if (x.beta > 0.7 * x.gamma) x.beta = 0.7 * x.gamma;
        return x;
    }
};

COLLS_INLINE const machine& measured() {
    static const machine m = [] {
        try {
            return probe().run();
        } catch (const std::exception&) {  // no second thread, no memory: usual figures will do
            return machine{.cores = cores()};
        }
    }();
    return m;
}
#endif

}  // namespace colls::inline v1::detail
