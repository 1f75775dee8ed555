// Whether the cores of a group's ranks are near each other, which decides how bytes are copied (copy_policy.hpp).
// IWYU pragma: private, include <colls/collectives.hpp>
//
// A system that moves threads, or a hypervisor that moves cores, may change that at any time. So at the end of some
// operations rank 0 and another rank send a cache line to and fro, which rank 0 times. When the samples agree that the
// distance has changed, rank 0 decides so for an operation that no rank has begun. A rank that is not there within a
// few microseconds is not waited for.
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/support/clock.hpp>

namespace colls::inline v1::detail {

/// Decides, for the operations of a group in their order, whether its ranks are near each other.
class distance {
public:
    /// As decided for operation `sequence`, alike on all ranks. This rank has passed wait_for_slot() of that operation:
    /// so rank 0 has finished the operation `window` before it, and with it all decisions for this one.
    static bool is_near(const rank_context& self, std::uint64_t sequence) {
        const distance_state& shared = self.memory.distance();
        std::uint64_t latest = 0;
        for (const auto& d : shared.decisions)
            if (const std::uint64_t v = d.load(std::memory_order_relaxed); v >> 2 <= sequence && v > latest) latest = v;
        return latest != 0 ? (latest & near) != 0 : self.access.starts_near;
    }

    /// The eager path takes no samples. Of the calls that it may be taken for and that would post this many bytes, one
    /// of these runs by a schedule instead, and takes one.
    static constexpr std::uint64_t eager_calls_for_sample = 128;
    static constexpr std::size_t eager_bytes_for_sample = 1024;

    /// At the end of an operation of `bytes` bytes: takes part in a sample if it is time for one, or `due`.
    static void sample(rank_context& self, std::uint64_t sequence, std::size_t bytes, bool due) {
        // The logarithm of the number of operations from one sample to the next. A sample takes a microsecond.
        const unsigned log = due || bytes >= (std::size_t{4} << 20) ? 0
                             : bytes >= (std::size_t{1} << 20)      ? 2
                             : bytes >= (std::size_t{64} << 10)     ? 5
                                                                    : 7;
        const bool is_early = sequence < 8 && sequence % 2 == 1;  // a new group knows what the machine was like once
        if (const std::uint64_t last = (std::uint64_t{1} << log) - 1; !is_early && (sequence & last) != last) return;
        const int other = 1 + static_cast<int>((sequence >> log) % static_cast<std::uint64_t>(self.size - 1));
        if (self.rank == 0)
            take_sample(self, sequence, trip(self, sequence));
        else if (self.rank == other)
            answer(self, sequence);
    }

    /// What a sample of this many seconds, one way, changes. (Apart, for tests.)
    static void take_sample(rank_context& self, std::uint64_t sequence, double seconds) {
        if (seconds > 2e-6) return;  // no answer, or a rank was preempted
        int& votes = self.eager.near_votes;
        votes += seconds < self.backend->figures().near_below ? 1 : -1;
        votes = votes > enough ? enough : votes < -enough ? -enough : votes;
        if (votes == enough || votes == -enough) decide(self, sequence, votes > 0);
    }

private:
    static constexpr std::uint64_t near = 1, decided = 2;  // a decision: first operation << 2 | decided | near
    static constexpr int enough = 2;
    static constexpr std::uint64_t trips = 3;
    static constexpr double patience = 4e-6;  // seconds

    /// Waits for a word to have a value; false: it took too long.
    static bool comes(const std::atomic<std::uint64_t>& word, std::uint64_t value, double until) {
        for (int spins = 1; word.load(std::memory_order_acquire) != value; ++spins)
            if (spins % 32 == 0 && seconds_now() > until) return false;
        return true;
    }
    /// Seconds of the fastest of a few trips, one way; much where there is no answer.
    static double trip(const rank_context& self, std::uint64_t sequence) {
        distance_state& shared = self.memory.distance();
        double least = 1, begin = seconds_now();
        const double until = begin + patience;
        for (std::uint64_t i = 0; i < trips; ++i) {
            shared.there.value.store(sequence * trips + i, std::memory_order_release);
            if (!comes(shared.back.value, sequence * trips + i, until)) return 1;
            const double now = seconds_now();
            if (i > 0 && now - begin < 2 * least) least = (now - begin) / 2;  // the first one waits for the other rank
            begin = now;
        }
        return least;
    }
    static void answer(const rank_context& self, std::uint64_t sequence) {
        distance_state& shared = self.memory.distance();
        const double until = seconds_now() + patience;
        for (std::uint64_t i = 0; i < trips; ++i) {
            if (!comes(shared.there.value, sequence * trips + i, until)) return;
            shared.back.value.store(sequence * trips + i, std::memory_order_release);
        }
    }
    /// Two decisions are kept: a rank may be `window` operations behind, and need the one before the last. So a third
    /// is made only when the last has been in force for so long.
    static void decide(rank_context& self, std::uint64_t sequence, bool is) {
        auto& all = self.memory.distance().decisions;
        const std::uint64_t a = all[0].load(std::memory_order_relaxed), b = all[1].load(std::memory_order_relaxed);
        const std::uint64_t last = a > b ? a : b;
        if (last != 0 ? ((last & near) != 0) == is || (last >> 2) + window > sequence : self.access.starts_near == is)
            return;
        // Relaxed: ranks read it after they have seen, with acquire, that this operation is over.
        (a > b ? all[1] : all[0])
            .store((sequence + window) << 2 | decided | (is ? near : 0), std::memory_order_relaxed);
    }
};

// How ordinary buffers go between processes, where the distance of the cores is no longer what it was when that was
// measured: far from each other stores past the caches are faster than plain ones and than the kernel's copies, near
// each other the kernel's copies are the fastest (docs/measurements/tried.md).

/// Are data that ranks at that distance stage for each other best stored past the caches?
inline bool streams_at(const rank_context& self, bool near) {
    return near == self.access.starts_near ? self.access.streams : !near;
}
/// Does this rank store what it stages past the caches? Not while another rank runs on its core, whose caches hold it.
inline bool streams_staged(const rank_context& self, bool near) {
    return streams_at(self, near) && !self.waits.core_is_shared();
}
/// Does the kernel copy what is not reduced between the processes of ranks at that distance?
inline bool copies_at(const rank_context& self, bool near) {
    return self.access.copies_between &&
           (self.access.copies_always || (near == self.access.starts_near ? self.access.copies_faster : near));
}

}  // namespace colls::inline v1::detail
