// Whether the cores of a group's ranks are near each other, which decides how bytes are copied (store_policy.hpp).
// IWYU pragma: private, include <colls/collectives.hpp>
//
// A system that moves threads, or a hypervisor that moves cores, may change that at any time. So rank 0 times, in some
// of its operations, how long a cache line takes that a peer has just written: one load, in which the peer takes no
// part. (A line that it wrote long ago may have left its core's cache, and says nothing.) When the samples agree that
// the distance has changed, rank 0 decides so for an operation that no rank has begun.
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/support/clock.hpp>

namespace colls::inline v1::detail {

/// Decides, for the operations of a group in their order, whether its ranks are near each other.
class distance {
public:
    /// As decided for operation `sequence`, alike on all ranks. This rank has passed wait_for_slot() of that operation:
    /// so rank 0 has finished the operation `window` before it, and with it all decisions for this one.
    static bool is_near(const rank_context& e, std::uint64_t sequence) {
        const distance_state& shared = e.memory.distance();
        std::uint64_t latest = 0;
        for (const auto& d : shared.decisions)
            if (const std::uint64_t v = d.load(std::memory_order_relaxed); v >> 2 <= sequence && v > latest) latest = v;
        return latest != 0 ? (latest & near) != 0 : starts_near(e);
    }

    /// Should this rank take a sample in an operation of `bytes` bytes? A sample takes about 0.1 us.
    static bool is_due(const rank_context& e, std::uint64_t sequence, std::size_t bytes) {
        return e.rank == 0 && (bytes >= (std::size_t{64} << 10) || sequence % 8 == 0);
    }
    /// Loads a word that a peer may have just written; if it has, the time is a sample. Returns the word.
    template <class IsNew>
    static std::uint64_t timed_load(
        rank_context& e, std::uint64_t sequence, const std::atomic<std::uint64_t>& word, IsNew is_new) {
        std::uint64_t seen = 0;
        const double seconds = net_seconds([&] { seen = word.load(std::memory_order_acquire); });
        if (is_new(seen)) take_sample(e, sequence, seconds);
        return seen;
    }

    /// What a sample of so many seconds changes. (Apart, for tests.)
    static void take_sample(rank_context& e, std::uint64_t sequence, double seconds) {
        if (seconds > 2e-6) return;  // this rank was preempted
        int& votes = e.near_votes;
        votes += seconds < e.backend->figures().near_below ? 1 : -1;
        votes = votes > enough ? enough : votes < -enough ? -enough : votes;
        if (votes == enough || votes == -enough) decide(e, sequence, votes > 0);
    }

private:
    static constexpr std::uint64_t near = 1, decided = 2;  // a decision: first operation << 2 | decided | near
    static constexpr int enough = 4;

    static bool starts_near(const rank_context& e) {
        const machine& m = e.backend->figures();
        return m.line < m.near_below;
    }
    /// Two decisions are kept: a rank may be `window` operations behind, and need the one before the last. So a third
    /// is made only when the last has been in force for so long.
    static void decide(rank_context& e, std::uint64_t sequence, bool is) {
        auto& all = e.memory.distance().decisions;
        const std::uint64_t a = all[0].load(std::memory_order_relaxed), b = all[1].load(std::memory_order_relaxed);
        const std::uint64_t last = a > b ? a : b;
        if (last != 0 ? ((last & near) != 0) == is || (last >> 2) + window > sequence : starts_near(e) == is) return;
        // Relaxed: ranks read it after they have seen, with acquire, that this operation is over.
        (a > b ? all[1] : all[0])
            .store((sequence + window) << 2 | decided | (is ? near : 0), std::memory_order_relaxed);
    }
};

}  // namespace colls::inline v1::detail
