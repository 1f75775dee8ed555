// How a rank sleeps until a peer has published something.
// IWYU pragma: private
//
// A rank that is about to sleep says so at its peer's bell, looks once more at what it waits for, and sleeps. The peer,
// behind each word that it publishes, looks at its own bell, and wakes the ranks that sleep there. Of the store and the
// load of each side, one must see the other's (Dekker), for which both need a fence between them. Where ranks outnumber
// cores both have one. Elsewhere it would cost the peer 20 cycles a word, though hardly ever a rank sleeps: so the one
// that goes to sleep has the system make a fence on all cores (membarrier), and the peer only keeps the compiler from
// exchanging the two. Where the system does not do that for the peer's process, no rank sleeps at its bell.
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/support/futex.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// From now on ranks may sleep at this rank's bell.
[[gnu::cold]] inline void open_bell(const rank_context& self) {
    if (self.crowded || open_to_fences()) self.memory.bell(self.rank).is_open.store(1, std::memory_order_release);
}

[[gnu::cold, gnu::noinline]] inline void wake_all_at(bell_line& bell) {
    bell.rings.fetch_add(1, std::memory_order_release);
    wake_at(bell.rings);
}
/// Wakes the ranks that sleep until this one publishes something: called behind each store of it.
inline void wake_sleepers(const rank_context& self) {
    if (self.crowded)
        std::atomic_thread_fence(std::memory_order_seq_cst);
    else
        std::atomic_signal_fence(std::memory_order_seq_cst);
    bell_line& own = self.memory.bell(self.rank);
    if (own.sleepers.load(std::memory_order_relaxed) != 0) wake_all_at(own);
}
/// Wakes all ranks: the group is broken.
[[gnu::cold]] inline void wake_all(const group_memory& m) {
    for (int r = 0; r < m.size(); ++r)
        if (m.bell(r).sleepers.load(std::memory_order_seq_cst) != 0) wake_all_at(m.bell(r));
}

/// A rank at a peer's bell. What it waits for is looked at between `come` and the first `sleep`, and between two.
class sleeper {
public:
    sleeper() = default;
    sleeper(const sleeper&) = delete;
    sleeper& operator=(const sleeper&) = delete;
    ~sleeper() { go(); }

    /// May ranks sleep at the peer's bell?
    static bool may_come(const rank_context& self, int peer) {
        return self.memory.bell(peer).is_open.load(std::memory_order_acquire) != 0;
    }
    bool is_at(const rank_context& self, int peer) const { return bell_ == &self.memory.bell(peer); }
    /// This rank is about to sleep at that peer's bell, and at no other.
    void come(const rank_context& self, int peer) {
        go();
        bell_ = &self.memory.bell(peer);
        heard_ = bell_->rings.load(std::memory_order_acquire);
        bell_->sleepers.fetch_add(1, std::memory_order_seq_cst);
        if (self.crowded)
            std::atomic_thread_fence(std::memory_order_seq_cst);
        else
            fence_everywhere();
    }
    void go() {
        if (bell_ != nullptr) bell_->sleepers.fetch_sub(1, std::memory_order_relaxed);
        bell_ = nullptr;
    }
    /// Until the peer rings, or for so long. False: it has not rung.
    bool sleep(double seconds) {
        sleep_on(bell_->rings, heard_, seconds);
        const std::uint32_t before = std::exchange(heard_, bell_->rings.load(std::memory_order_acquire));
        return before != heard_;
    }

private:
    bell_line* bell_ = nullptr;
    std::uint32_t heard_ = 0;  ///< rings of it
};

}  // namespace colls::inline v1::detail
