// How a rank waits for a peer: spins, yields, sleeps, and meanwhile looks for failures.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/dump.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/detail/group/sleeper.hpp>
#include <colls/detail/support/cores.hpp>

namespace colls::inline v1::detail {

/// Advances all that is in flight in this group, as far as it gets without waiting, but what is waited for: `but`, or
/// null.
inline void advance_all(rank_context& self, const pending* but = nullptr) {
    for (std::size_t i = 0; i < self.operations.in_flight.size();)
        if (pending* const o = self.operations.in_flight[i]; o != but && (o->done || o->advance()))
            self.operations.drop(i);
        else
            ++i;
}
/// Likewise in the other groups of the cycle, so that ranks may wait in different orders. An error in another group
/// breaks that group, and its own next call throws it: thrown here, it would leave this group whole, while peers may
/// still be at buffers that the caller is about to give up. A group that another thread is in a call with, which lets
/// this thread in, is left to that thread: it would not expect to have left its call.
inline void progress_others(rank_context& self) {
    if (self.operations.only_these()) return;
    for (rank_context* x = self.next; x != &self; x = x->next) {
        if (x->operations.in_flight.empty() || x->in_call() ||
            x->memory.poison().state.load(std::memory_order_relaxed) != 0)
            continue;
        try {
            advance_all(*x);
            no_longer_active(*x);
        } catch (...) {
            const std::shared_ptr<rank_context> broken = x->shared_from_this();
            call_threw(*x, "an operation in flight");  // waits, and lets threads in, which may end groups
            no_longer_active(*x);
            x = &self;  // once more: a broken group is passed by
        }
    }
}
inline void progress(rank_context& self) {
    advance_all(self);
    progress_others(self);
}

/// How the report of a rank begins that cannot finish forming a group.
inline constexpr std::string_view origin_is_broken = "the group that it is split from is broken";

/// One wait: called between two looks at what the rank waits for. It spins, then yields, then sleeps, as wait_policy
/// says. Now and then it looks for failures, and throws: what was reported; timeout at the deadline; mismatch where the
/// peer waits in another call; peer_failed where the peer has left, has refused the call, or cannot come.
class backoff {
public:
    explicit backoff(rank_context& self) : self_(&self), limit_(self.waits.first_spins()) {}
    backoff(const backoff&) = delete;
    backoff& operator=(const backoff&) = delete;
    ~backoff() {
        if (spins_ > wait_policy::unasked || rests_ > 0) self_->waits.over(spins_, rests_);
        if (noted_.end != 0) self_->trace->add(noted_);
        if (told_wait_) tell_wait(0);
    }

    void operator()(const wait_site& at) {
        if (self_->trace) note(at);
        gate_lock::let_others_in();
        if (spins_ < limit_) {
            ++spins_;
            if (self_->by_messages) return;  // polling a device, a socket or rings takes longer than a pause
            if (spins_ == 1) correct_core();
            pause();
            return;
        }
        step(at);
        if (self_->trace) note(at);
    }

    /// Instead of waiting, for a caller that polls: the same checks and the same deadline. Never waits.
    void check_without_waiting(const wait_site& at) {
        if (++steps_ % 16 == 0) look(at);
    }

private:
    /// For the trace: the wait is from the first look to the last one, since what the caller does then is no wait.
    [[gnu::cold, gnu::noinline]] void note(const wait_site& at) {
        noted_.end = seconds_now();
        if (noted_.begin == 0) noted_.begin = noted_.end;
        noted_.peer = at.peer;
        noted_.round = at.round;
    }
    [[gnu::noinline]] void step(const wait_site& at) {
        wait_policy& policy = self_->waits;
        if (policy.asks(spins_)) {
            const int beside = rank_on_core();
            // Where two ranks share a core, the higher one moves.
            if (beside != none && beside < self_->rank && policy.moves(seconds_now())) move_to_free_core();
            limit_ = policy.more_spins(spins_, beside != none);
            if (spins_ < limit_) return;
        }
        if (++steps_ % 16 == 0) look(at);
        const bool hooked = call_hooks_outside();
        const bool woken = !hooked && may_sleep_at(at.peer);
        const wait_action next = policy.next(waited_, hooked, woken, rests_++);
        if (next == wait_action::yield) {
            const double before = seconds_now();
            sched_yield();
            policy.yielded(seconds_now() - before);
        } else if (next == wait_action::sleep && self_->by_messages && gate_lock::is_alone()) {
            self_->backend->sleep(*self_);
        } else if (next == wait_action::sleep && woken) {
            sleep_at(at);
        } else if (next == wait_action::sleep) {
            const double most = self_->by_messages ? nap_beside_threads : wait_policy::sleep_for(waited_);
            const gate_lock::open_gate others_may_come;
            sleep_seconds(hooked && most > sleep_between_hooks ? sleep_between_hooks : most);
        }
        progress(*self_);
    }

    /// A hook may call the library with groups of another cycle, whose gate another thread may be inside.
    bool call_hooks_outside() const {
        if (self_->hook == nullptr && wait_hook_set.call.load(std::memory_order_relaxed) == nullptr) return false;
        const gate_lock::open_gate others_may_come;
        return call_hooks(*self_);
    }
    /// Seconds that a rank sleeps over messages where other threads use the same connections, and wake it not.
    static constexpr double nap_beside_threads = 50e-6;
    /// Likewise at a peer's bell, where another group may break that does not ring it.
    static constexpr double tied_sleep = 30e-3;

    /// May this rank sleep until that peer publishes something? Not if it has to look after other operations meanwhile.
    bool may_sleep_at(int peer) const {
        const rank_operations& o = self_->operations;
        return !self_->by_messages && peer != none && peer != self_->rank && self_->forming_from == nullptr &&
               (o.cycle->in_flight == 0 ||
                   (o.cycle->in_flight == 1 && o.in_flight.size() == 1 && o.in_flight[0] == o.current)) &&
               sleeper::may_come(*self_, peer);
    }
    void sleep_at(const wait_site& at) {
        if (!sleeper_.is_at(*self_, at.peer)) return sleeper_.come(*self_, at.peer);
        const auto sleep = [&] {
            const gate_lock::open_gate others_may_come;
            const double most = wait_policy::sleep_at_bell_for(waited_, self_->env.timeout);
            return sleeper_.sleep(self_->tie != 0 && most > tied_sleep ? tied_sleep : most);
        };
        if (!sleep() || self_->memory.poison().state.load(std::memory_order_relaxed) != 0) look(at);
    }

    /// A rank that has published its core, and has left it since, says so in its next wait, however short: else one
    /// that was on the same core would yield to it for good.
    void correct_core() {
        std::atomic<std::uint16_t>& own = self_->memory.core(self_->rank);
        const std::uint16_t said = own.load(std::memory_order_relaxed);
        if (said == 0) return;
        const auto core = static_cast<std::uint16_t>(sched_getcpu() + 1);
        if (core != said) own.store(core, std::memory_order_relaxed);
    }
    /// Publishes the core that this rank is on, and returns the lowest other rank that is there; none: it has the core
    /// for itself, or the system does not say. Relaxed: a core that has just changed only makes this wait spin, or
    /// yield, for longer.
    int rank_on_core() {
        const auto core = static_cast<std::uint16_t>(sched_getcpu() + 1);
        if (core == 0) return none;
        std::atomic<std::uint16_t>& own = self_->memory.core(self_->rank);
        if (own.load(std::memory_order_relaxed) != core) own.store(core, std::memory_order_relaxed);
        for (int r = 0; r < self_->size; ++r)
            if (r != self_->rank && self_->memory.core(r).load(std::memory_order_relaxed) == core) return r;
        return none;
    }
    /// The system may leave two ranks on a core, also while another one is free, or has one other program to run.
    [[gnu::cold, gnu::noinline]] void move_to_free_core() {
        affinity set;
        const affinity whole = set;
        for (int r = 0; r < self_->size; ++r) set.remove(self_->memory.core(r).load(std::memory_order_relaxed) - 1);
        if (set.count == 0 || set.count == whole.count || !set.apply()) return;
        whole.apply();
        correct_core();
    }

    [[gnu::cold, gnu::noinline]] void look(const wait_site& at) {
        if (const unsigned wanted = dumps_wanted.load(std::memory_order_relaxed); self_->dump.seen != wanted) {
            self_->dump.seen = wanted;
            self_->dump.due_at = seconds_now() + self_->backend->ask_for_waits(*self_);
        }
        if (self_->dump.due_at != 0 && seconds_now() >= self_->dump.due_at) {
            self_->dump.due_at = 0;
            print_dump(*self_, &at);
        }
        self_->backend->look(*self_, &at, waited_);
        if (self_->tie != 0) {
            self_->for_tied([](rank_context& x) { x.backend->look(x, nullptr, 0); });
            break_tied(*self_);
        }
        throw_if_broken(*self_, &at, std::memory_order_seq_cst);
        const double now = seconds_now();
        if (start_ == 0) start_ = now;
        waited_ = now - start_;
        if (waited_ > 10e-3) {
            // Relaxed: the word is all that others read of it.
            if (!std::exchange(told_wait_, true))
                self_->status->waits_from.store(static_cast<std::uint64_t>(start_ * 1e3), std::memory_order_relaxed);
            tell_wait(long_wait::word_of(at));
            compare_boards(at);
        }
        if (self_->forming_from) check_origin(at);
        if (at.peer != none) check_peer(at);
        check_deadline(at);
    }

    void tell_wait(std::uint64_t word) {
        self_->memory.state(self_->rank).waits.store(word, std::memory_order_relaxed);
        self_->status->waits.store(word, std::memory_order_relaxed);
    }
    void check_peer(const wait_site& at) {
        const rank_state& peer = self_->memory.state(at.peer);
        if (waited_ > 0.1 && at.fingerprint != no_call) check_refusal(at);
        if (const std::uint64_t away = peer.away.load(std::memory_order_acquire); away != 0) check_absence(away, at);
        // The peer may have done its part before it left: the caller looks once more before this is an error.
        if (peer.gone.load(std::memory_order_acquire) != 0 && peer_gone_++ > 2)
            fail(*self_, errc::peer_failed, at, error_text() << "rank " << at.peer << " has left the group");
    }
    void check_deadline(const wait_site& at) {
        if (waited_ <= self_->env.timeout) return;
        if (at.peer == none)
            fail(*self_, errc::timeout, at,
                error_text() << "no rank has sent a message: waited " << in_tenths(waited_)
                             << " s (COLLS_TIMEOUT sets the deadline)");
        if (!leaves_error_to_peer(at))
            fail(*self_, errc::timeout, at,
                error_text()
                    << "rank " << at.peer << " is unreachable: waited " << in_tenths(waited_) << " s for it"
                    << "; is it stopped, slow, in another call, or cut off? (COLLS_TIMEOUT sets the deadline)");
    }

    // For people: from 1 s on, the time that has passed between the deadline and its check is left out.
    static double in_tenths(double seconds) {
        return seconds < 1 ? seconds : static_cast<double>(static_cast<long long>(10 * seconds)) / 10;
    }

    // The peer may have refused the call for an error on its own side. It has 0.1 s to make the call correctly.
    void check_refusal(const wait_site& at) {
        const refusal_state& refusal = self_->memory.refusal(at.peer);
        if (!self_->log.refused.concerns(refusal.call.load(std::memory_order_acquire), at.call)) return;
        char text[decltype(refusal.text)::most + 1];
        refusal.text.load(text);
        fail(*self_, errc::peer_failed, at, error_text() << "rank " << at.peer << " refused this call: " << text);
    }
    // While a group is being formed: where the group breaks that it is split from, a rank may not come, and no rank has
    // gone on yet.
    [[gnu::cold]] void check_origin(const wait_site& at) {
        rank_context& from = *self_->forming_from;
        from.backend->look(from, nullptr, 0);
        if (from.memory.poison().state.load(std::memory_order_acquire) == 2)
            fail(*self_, errc::peer_failed, at,
                error_text() << origin_is_broken << ": " << report_in(from.memory.poison()));
    }
    // The peer shrinks a group. If this rank is a member of that group, the peer waits for it there.
    [[gnu::cold]] void check_absence(std::uint64_t group, const wait_site& at) {
        for (rank_context* x = self_->next; x != self_; x = x->next) {
            if (x->number != group) continue;
            x->backend->look(*x, nullptr, 0);
            const poison_state& p = x->memory.poison();
            if (p.state.load(std::memory_order_acquire) == 2)
                fail(*self_, errc::peer_failed, at,
                    error_text() << "rank " << at.peer
                                 << " does not come to this call: it shrinks another group of this rank, in which "
                                 << report_in(p));
        }
    }
    // A peer that waits itself knows better which rank does not come: it has a quarter of the deadline more, at most
    // 2 s, to report that.
    bool leaves_error_to_peer(const wait_site& at) const {
        const double longer = self_->env.timeout / 4;
        if (waited_ > self_->env.timeout + (longer < 2 ? longer : 2)) return false;
        const rank_state& peer = self_->memory.state(at.peer);
        const auto call = peer.board_call.load(std::memory_order_relaxed);
        const double said = 1e-3 * static_cast<double>(peer.board_at.load(std::memory_order_relaxed));
        return call != 0 && call + 64 > self_->log.count && seconds_now() - said < self_->env.timeout * 3 / 8;
    }

    // Two ranks may both be waiting, in different calls. A rank that waits for long publishes its call on its board,
    // and compares it with the boards of the others.
    [[gnu::cold]] void compare_boards(const wait_site& at) {
        if (at.fingerprint == no_call) return;
        if (told_ != at.call + 1) tell_calls(self_->memory, self_->rank, self_->log.recent, self_->log.count);
        told_ = at.call + 1;
        rank_state& own = self_->memory.state(self_->rank);
        own.board_call.store(0, std::memory_order_relaxed);
        own.board_fingerprint.store(at.fingerprint, std::memory_order_release);
        own.board_at.store(milliseconds_now(), std::memory_order_relaxed);
        own.board_call.store(at.call + 1, std::memory_order_release);
        // Where two ranks publish, the later one sees the other's board: so there is no hurry to look again.
        if (waited_ < compare_at_) return;
        compare_at_ = 2 * waited_;
        for (int r = 0; r < self_->size; ++r) {
            if (r == self_->rank) continue;
            const rank_state& other = self_->memory.state(r);
            const auto call = other.board_call.load(std::memory_order_acquire);
            const auto theirs = other.board_fingerprint.load(std::memory_order_acquire);
            // The call in which the other rank waits may be over here.
            if (call == 0 || call > self_->log.count || call + 64 <= self_->log.count ||
                self_->log.of(call - 1).fingerprint == theirs)
                continue;
            if (other.board_call.load(std::memory_order_acquire) == call) fail_mismatch(*self_, at, r, theirs);
        }
    }

    rank_context* const self_;
    unsigned limit_;                  // of the spins
    unsigned spins_ = 0, rests_ = 0;  // rests: yields and sleeps
    unsigned steps_ = 0, peer_gone_ = 0;
    std::uint64_t told_ = 0;  // 1 + the call in which this rank has published its calls
    bool told_wait_ = false;
    double start_ = 0, waited_ = 0, compare_at_ = 0;
    sleeper sleeper_;
    traced_part noted_{};
};

}  // namespace colls::inline v1::detail
