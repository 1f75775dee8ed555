// What a waiting rank does between two looks at what it waits for: a state machine without clock, processor or memory
// of others, so that a test can feed it any course of events.
// IWYU pragma: private
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

enum class wait_action { look, yield, sleep };

/// Do ranks that share memory sleep soon where they wait, and wake each other? A few on a core yield to each other
/// faster.
constexpr bool sleep_at_once(int ranks, int cores) { return ranks > 4 * cores; }

/// What the waits of one rank have in common. A wait spins, then yields, then sleeps. It yields at once where ranks
/// outnumber cores, or while another rank uses this rank's core: the other one cannot come while this one spins.
class wait_policy {
public:
    /// Spins of a wait in which the rank does not ask yet where the others run, so that short waits do not pay for it.
    static constexpr unsigned unasked = 32;
    struct bounds {
        unsigned fewest, most;  ///< spins of a wait
        double yields_for;      ///< seconds
    };
    // A spin is a pause of 15 to 70 ns where ranks share memory; of messages it is a look into the system.
    static constexpr bounds of_memory{256, 2000, 3e-3}, of_messages{1, 256, 1e-3};
    /// A yield that takes this many seconds has given the core to another program. While that goes on, ranks sleep
    /// instead, in short waits, too: the system runs a rank soon after it wakes, but not soon after it has yielded.
    static constexpr double core_lost = 1e-3;
    static constexpr unsigned first_sleeps = 8, most_sleeps = 4096;  ///< after such a yield; doubled with each
    /// Where many ranks share a core most peers come while the others have the core once or twice, and a yield takes
    /// less time than a sleep and what ends it.
    static constexpr unsigned yields_before_bell = 2;
    /// Yields on a shared core before one sleep: the system chooses a core for a rank that wakes, and an idle one if
    /// there is one; two ranks that yield to each other it may leave where they are.
    static constexpr unsigned first_streak = 1024, longest_streak = 65536;
    /// Seconds between moves to another core.
    static constexpr double first_pause = 4e-3, longest_pause = 64e-3;

    wait_policy() = default;
    /// `at_once`: where a peer wakes it, it sleeps after `yields_before_bell` yields.
    wait_policy(bool crowded, bool by_messages, bool at_once = false)
        : crowded_(crowded), by_messages_(by_messages), at_once_(at_once) {}

    /// Did another rank run on this rank's core when it last looked? It does not look where ranks outnumber cores.
    bool core_is_shared() const { return shares_core_; }
    /// Spins with which a wait begins.
    unsigned first_spins() const {
        if (crowded_ || shares_core_) return 0;
        return by_messages_ || spins_ < unasked ? spins_ : unasked;
    }
    /// Does a rank that has spun so often ask where the others run?
    bool asks(unsigned spun) const { return !crowded_ && !by_messages_ && (spun < spins_ || shares_core_); }
    /// How often it spins in all, now that it has asked.
    unsigned more_spins(unsigned spun, bool shares_core) {
        shares_core_ = shares_core;
        if (shares_core) return spun;
        streak_ = 0;
        streak_limit_ = first_streak;
        const unsigned next = spun < unasked ? unasked : 2 * spun;
        return next < spins_ ? next : spins_;
    }
    /// A rank finds another one on its core, at that time in seconds. Does it move to a core without ranks, if there is
    /// one? Not soon again, since the system may bring it back.
    bool moves(double now) {
        if (now < moves_next_) return false;
        moves_next_ = now + moves_pause_;
        if (moves_pause_ < longest_pause) moves_pause_ *= 2;
        return true;
    }
    /// After the last spin. `waited`: seconds of this wait. `serves`: another library works between two looks, whose
    /// peers wait for it. It sleeps then only where a rank may want the core, and rests only after several looks, since
    /// a rest takes longer than what that library does.
    /// `woken`: the peer ends a sleep. `rested`: how often this wait has yielded or slept.
    wait_action next(double waited, bool serves = false, bool woken = false, unsigned rested = 0) {
        if (serves && !shares_core_ && (!crowded_ || waited > bounds_.yields_for) && ++served_ % looks_a_rest != 0)
            return wait_action::look;
        if (at_once_ && woken && rested >= yields_before_bell) return wait_action::sleep;
        if (waited > bounds_.yields_for && !(serves && !crowded_)) return wait_action::sleep;
        if (sleeps_ > 0) {
            --sleeps_;
            return wait_action::sleep;
        }
        if (!shares_core_ || ++streak_ < streak_limit_) return wait_action::yield;
        streak_ = 0;
        if (streak_limit_ < longest_streak) streak_limit_ *= 2;
        return wait_action::sleep;
    }
    /// Seconds of a sleep where no message can end it: a wait takes little longer by it. (On a virtual machine a sleep
    /// may cost 16 us of processor time.)
    static double sleep_for(double waited) {
        const double part = waited / 64;
        return part < 50e-6 ? 50e-6 : part < 1e-3 ? part : 1e-3;
    }
    /// Where a peer ends the sleep, a look now and then for failures remains, and one at the deadline.
    static double sleep_at_bell_for(double waited, double timeout) {
        const double most = timeout < 3.2 ? timeout / 8 : 0.4, part = waited < 64e-3 ? 16e-3 : waited / 4,
                     next = part < most ? part : most, left = timeout - waited;
        return left > next ? next : left > 1e-3 ? left : 1e-3;
    }
    /// A yield has taken so long.
    void yielded(double seconds) {
        if (seconds < core_lost) {
            sleeps_next_ = first_sleeps;
            return;
        }
        sleeps_ = sleeps_next_;
        if (sleeps_next_ < most_sleeps) sleeps_next_ *= 2;
    }
    /// A wait of this many spins, and then yields and sleeps, is over. The next ones may spin four times as long as
    /// waits lately took, as long as that is within bounds.
    void over(unsigned spun, unsigned yields) {
        if (crowded_ || shares_core_) return;
        unsigned wanted = spins_;
        if (yields == 0)
            wanted = 4 * spun > spins_ ? 4 * spun : spins_ - (spins_ - 4 * spun) / 16;
        else if (yields > few && yields < many)
            wanted = 2 * spins_;
        else  // the yield brought the peer, or the peer came so late that spinning was in vain
            wanted = spins_ / 2;
        spins_ = wanted < bounds_.fewest ? bounds_.fewest : wanted < bounds_.most ? wanted : bounds_.most;
    }

private:
    static constexpr unsigned few = 2, many = 200;
    static constexpr unsigned looks_a_rest = 32;
    bool crowded_ = false, by_messages_ = false, at_once_ = false, shares_core_ = false;
    bounds bounds_ = by_messages_ ? of_messages : of_memory;
    unsigned spins_ = bounds_.most;  ///< of a wait at most
    unsigned served_ = 0;            ///< looks of another library
    unsigned sleeps_ = 0;            ///< that are left instead of yields
    unsigned sleeps_next_ = first_sleeps;
    unsigned streak_ = 0, streak_limit_ = first_streak;
    double moves_next_ = 0, moves_pause_ = first_pause;
};

}  // namespace colls::inline v1::detail
