// Which thread of a process is in the library with the groups of a cycle.
// IWYU pragma: private
//
// Nearly always it is one thread, which must not pay for others. So the gate has an owner, which enters by a store and
// two loads. Other threads enter by turn: they take numbers, and the one whose turn it is takes the gate from its
// owner. (Dekker's algorithm: the owner stores that it is inside and loads whether it still owns the gate; the other
// one stores that there is no owner, makes a fence on all cores, and loads whether the owner is inside.) A thread that
// has entered by turn often enough, and is alone, becomes the owner. Each owner after the first needs sixteen times as
// many turns, since it costs some microseconds to take the gate from it.
//
// A thread that waits for another rank lets the others in between two looks. So a call of one group never keeps a call
// of another one from being made, and ranks may make the calls of several groups in different orders.
#pragma once

#include <colls/detail/support/futex.hpp>

#include <sched.h>
#include <atomic>
#include <cstdint>

namespace colls::inline v1::detail {

/// The number of this thread, from 1 on; 0: it has not yet been given one.
inline constinit thread_local unsigned thread_number = 0;
inline constinit std::atomic<unsigned> thread_numbers{0};

class thread_gate {
public:
    /// Returns when this thread is inside: true as the owner, false by turn, as `leave` has to know.
    bool enter() {
        // Relaxed: only this thread makes the gate its own.
        if (const unsigned me = thread_number; owner_.load(std::memory_order_relaxed) == me) {
            inside_.store(true, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (owner_.load(std::memory_order_relaxed) == me) return true;
            inside_.store(false, std::memory_order_release);
        }
        return enter_by_turn();
    }
    /// Also the owner; then the gate has none.
    bool enter_by_turn() {
        wait_for(next_.fetch_add(1, std::memory_order_relaxed));
        return false;
    }
    /// By turn, and only if no other thread is inside, or waits.
    bool try_enter() {
        std::uint32_t turn = serving_.load(std::memory_order_relaxed);
        if (!next_.compare_exchange_strong(turn, turn + 1, std::memory_order_relaxed)) return false;
        wait_for(turn);
        return true;
    }
    /// Release: the next thread sees what this one has done.
    void leave(bool as_owner) {
        if (as_owner) return inside_.store(false, std::memory_order_release);
        leave_turn();
    }
    /// Does another thread wait until this one, which is inside, lets it in?
    bool is_wanted(bool as_owner) const {
        const std::uint32_t given = next_.load(std::memory_order_relaxed);
        return given - serving_.load(std::memory_order_relaxed) > (as_owner ? 0u : 1u);
    }
    /// By a thread that is inside, and sets it by turn: does a progress thread come now and then? Then there is no
    /// owner.
    bool is_shared() const { return shared_; }
    void share(bool on) { shared_ = on; }

private:
    static constexpr unsigned nobody = ~0u;
    static constexpr unsigned most_turns = 1u << 16;  ///< that a thread needs to become the owner

    [[gnu::cold, gnu::noinline]] void wait_for(std::uint32_t turn) {
        // Acquire: what the thread before has done.
        rest_until([&] { return serving_.load(std::memory_order_acquire) == turn; });
        if (owner_.load(std::memory_order_relaxed) == nobody) return;
        owner_.store(nobody, std::memory_order_relaxed);
        fence_everywhere();
        rest_until([&] { return !inside_.load(std::memory_order_acquire); });
    }
    static void rest_until(auto over) {
        for (unsigned looks = 0; !over(); ++looks)
            if (looks < 200)
                sched_yield();
            else
                sleep_seconds(50e-6);
    }
    [[gnu::cold, gnu::noinline]] void leave_turn() {
        if (thread_number == 0) thread_number = thread_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
        if (last_ != thread_number) last_ = thread_number, turns_ = 0;
        if (++turns_ >= turns_to_own_ && !shared_ && !is_wanted(false) && open_to_fences()) {
            owner_.store(last_, std::memory_order_relaxed);
            turns_to_own_ = turns_to_own_ < most_turns ? 16 * turns_to_own_ : most_turns;
        }
        serving_.store(serving_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

    std::atomic<unsigned> owner_{nobody};
    std::atomic<bool> inside_{false};                  ///< the owner is
    std::atomic<std::uint32_t> next_{0}, serving_{0};  ///< turns: the next to be given, and whose it is
    // Written by a thread that is inside by turn.
    bool shared_ = false;
    unsigned last_ = 0, turns_ = 0;  ///< the thread that was the last to leave by turn, and its turns without another's
    unsigned turns_to_own_ = 1;
};

/// What groups share that advance together.
struct group_cycle {
    /// Operations in flight: a wait looks through thousands of groups only where there are some.
    std::size_t in_flight = 0;
    thread_gate gate;
};

/// While it lives, this thread is inside the gate of a cycle, but where it lets others in. The cycle outlives it.
class gate_lock {
public:
    /// Null: nothing is entered, since a lock further out holds already.
    explicit gate_lock(group_cycle* cycle)
        : cycle_(cycle), outer_(innermost), as_owner_(cycle != nullptr && cycle->gate.enter()) {
        innermost = this;
    }
    /// By a thread that has entered the gate, as its owner or by turn.
    gate_lock(group_cycle& cycle, bool as_owner) : cycle_(&cycle), outer_(innermost), as_owner_(as_owner) {
        innermost = this;
    }
    gate_lock(const gate_lock&) = delete;
    gate_lock& operator=(const gate_lock&) = delete;
    ~gate_lock() {
        innermost = outer_;
        if (cycle_ != nullptr) cycle_->gate.leave(as_owner_);
    }
    static bool is_within(const group_cycle& cycle) {
        for (const gate_lock* x = innermost; x != nullptr; x = x->outer_)
            if (x->cycle_ == &cycle) return true;
        return false;
    }
    /// Is this thread in no call, or is it the only one that uses groups of the cycle?
    static bool is_alone() { return innermost == nullptr || innermost->as_owner_; }
    /// In a wait: other threads that want to may come and go. Their calls may make and end groups and operations.
    static void let_others_in() {
        if (innermost != nullptr && innermost->cycle_ != nullptr &&
            innermost->cycle_->gate.is_wanted(innermost->as_owner_))
            const open_gate here;
    }

    /// While it lives, this thread, which is in a call, is outside of the gate.
    class open_gate {
    public:
        open_gate() : lock_(innermost != nullptr && innermost->cycle_ != nullptr ? innermost : nullptr) {
            if (lock_ != nullptr) lock_->cycle_->gate.leave(lock_->as_owner_);
        }
        open_gate(const open_gate&) = delete;
        open_gate& operator=(const open_gate&) = delete;
        ~open_gate() {
            if (lock_ != nullptr) lock_->as_owner_ = lock_->cycle_->gate.enter();
        }

    private:
        gate_lock* const lock_;
    };

private:
    /// This thread's; null outside of calls.
    static inline constinit thread_local gate_lock* innermost = nullptr;

    group_cycle* const cycle_;
    gate_lock* const outer_;
    bool as_owner_;
};

}  // namespace colls::inline v1::detail
