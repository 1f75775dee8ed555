// How a group breaks, also where the calls of ranks differ, how every rank hears of it, and how a rank leaves a call by
// an error.
//
// The first report stands: it is written into the group's poison_state, which every wait reads. Where ranks share no
// memory, each has a poison_state of its own, and the backend tells the others.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/group/sleeper.hpp>

#include <sched.h>

namespace colls::inline v1::detail {

/// To stderr, for COLLS_DEBUG.
[[gnu::cold]] [[gnu::noinline]] inline void say(const error_text& what) { std::fprintf(stderr, "%s\n", what.text()); }

/// Appends a warning to an error where a rank has not left its call in time.
[[gnu::cold]] inline void warn_of_lingering(error_text& text, const rank_context& self) {
    if (self.lingers != none)
        text << "; rank " << self.lingers
             << " has not left its call: should it wake before shrink returns, it may yet write into buffers from "
                "allocate()";
}

/// The report, which names the rank that reports.
[[gnu::cold]] inline std::string_view report_in(const poison_state& p) { return quoted(p.text); }

[[noreturn, gnu::cold]] inline void throw_poison(rank_context& self, const wait_site* at = nullptr) {
    poison_state& p = self.memory.poison();
    // The rank that writes the report may be killed before it is complete.
    for (const double until = seconds_now() + 1; p.state.load(std::memory_order_acquire) == 1 && seconds_now() < until;)
        sched_yield();
    error_text text;
    text << "colls: rank " << self.rank;
    if (at) text << *at;
    if (p.state.load(std::memory_order_acquire) == 1) {
        text << ": the group is broken, by a rank that died before it said why";
        throw error(errc::peer_failed, text.text(), self.rank);
    }
    text << ": the group is broken: " << report_in(p);
    const group_memory& m = self.memory;
    if (const std::uint32_t decided = m.decision().decided.load(std::memory_order_acquire);
        decided != 0 && m.members(static_cast<int>(decided) - 1)[self.rank] == 0)
        text << "; the others have shrunk the group without this rank";
    warn_of_lingering(text, self);
    // The peer to blame: the peer that the report blames, unless that is this rank; then the rank that reports.
    const int peer = p.peer == none || p.peer == self.rank ? p.rank : p.peer;
    throw error(static_cast<errc>(p.code), text.text(), self.rank, peer, p.round);
}

/// Breaks the group, so that every rank's waits end. The first report stands: false for a later one.
[[gnu::cold]] inline bool poison(
    const group_memory& memory, errc code, int rank, int peer, int round, const char* text) {
    poison_state& p = memory.poison();
    std::uint32_t whole = 0;
    // seq_cst: `activate` relies on one order of this store and the loads of `active`.
    if (!p.state.compare_exchange_strong(whole, 1, std::memory_order_seq_cst)) return false;
    p.code = static_cast<int>(code);
    p.rank = rank;
    p.peer = peer;
    p.round = round;
    std::snprintf(p.text, sizeof p.text, "%.*s", static_cast<int>(sizeof p.text) - 1, text);
    p.state.store(2, std::memory_order_seq_cst);
    wake_all(memory);
    return true;
}
/// The reports of a broken group go to all ranks, to some over connections that do not exist yet, and this rank may not
/// make another call for long: it advances them here.
[[gnu::cold]] inline void send_reports(rank_context& self) {
    for (const double until = seconds_now() + 20e-3; self.by_messages && seconds_now() < until;) {
        self.backend->look(self, nullptr, 0);
        self.for_tied([](rank_context& x) { x.backend->look(x, nullptr, 0); });
        self.backend->sleep(self);
    }
}
/// Where this group, or one that is tied to it, is broken, all of them are.
[[gnu::cold]] inline void break_tied(rank_context& self) {
    const auto is_broken = [](const rank_context& x) {
        return x.memory.poison().state.load(std::memory_order_acquire) == 2;
    };
    rank_context* broken = is_broken(self) ? &self : nullptr;
    self.for_tied([&](rank_context& x) {
        if (broken == nullptr && is_broken(x)) broken = &x;
    });
    bool tells = false;
    const auto break_it = [&](rank_context& x) {
        if (x.memory.poison().state.load(std::memory_order_relaxed) != 0) return;
        const poison_state& why = broken->memory.poison();
        poison(x.memory, static_cast<errc>(why.code), x.rank, none, none,
            error_text() << "colls: rank " << x.rank << ": group " << broken->label
                         << ", to which this one is tied, is broken: " << report_in(why));
        x.backend->broke(x);
        tells = true;
    };
    if (broken == nullptr) return;
    break_it(self);
    self.for_tied(break_it);
    if (tells) send_reports(self);
}
/// Breaks the group in the name of one of its ranks, and tells the others.
[[gnu::cold]] inline void break_group(rank_context& self, errc code, int peer, int round, const char* text) {
    if (!poison(self.memory, code, self.rank, peer, round, text)) return;
    self.backend->broke(self);
    if (self.tie != 0) break_tied(self);
}

/// Before an error leaves a call, no other rank may still touch this rank's buffers: waits until every rank has said
/// that it is out of its call, or is dead. Bounded by the deadline and by 2 s: after that a rank may still be in its
/// call, and the memory that it may write to is not used again.
[[gnu::cold]] inline void leave(rank_context& self) {
    self.backend->abandon(self);
    self.memory.state(self.rank).active.store(0, std::memory_order_seq_cst);
    const double most = self.env.timeout < 2 ? self.env.timeout : 2;
    const double until = seconds_now() + (self.lingers == none ? most : 0);  // one such wait is enough
    for (int r = 0; r < self.size; ++r) {
        const auto inside = [&] {
            return r != self.rank && self.memory.state(r).active.load(std::memory_order_seq_cst) != 0 &&
                   !self.backend->dead(r);
        };
        while (inside() && seconds_now() < until) {
            self.backend->look(self, nullptr, 0);
            sched_yield();
            gate_lock::let_others_in();
        }
        if (!inside()) continue;
        self.lingers = r;
        self.backend->pin();
    }
}

/// Breaks the group before a shrink, if it is not broken yet. The report gives the cause as far as it is known, also
/// where the cause was reported in another group of this rank.
[[gnu::cold]] inline void break_to_shrink(rank_context& self) {
    // Backends look for dead ranks once a millisecond: a rank that has just died is found first. Relaxed: nothing of
    // the report is read here.
    for (const double until = seconds_now() + 3e-3;
        self.memory.poison().state.load(std::memory_order_relaxed) == 0 && seconds_now() < until;)
        self.backend->look(self, nullptr, 0);
    error_text text;
    text << "colls: rank " << self.rank << " shrinks the group";
    for (rank_context* x = self.next; x != &self; x = x->next)
        if (x->memory.poison().state.load(std::memory_order_acquire) == 2) {
            text << ", after an error in another one: " << report_in(x->memory.poison());
            break;
        }
    break_group(self, errc::peer_failed, none, none, text.text());
    leave(self);
}

/// Tells ranks that may wait for this one why it does not make its next call; null: it makes the call after all.
[[gnu::cold]] [[gnu::noinline]] inline void tell_refusal(rank_context& self, const char* why) {
    refusal_state& refusal = self.memory.refusal(self.rank);
    refusal.call.store(0, std::memory_order_relaxed);
    if (why) {
        refusal.text.store(quoted(why));
        self.status->add_error(why);
        refusal.call.store(self.log.refused.add(self.log.count), std::memory_order_release);
    }
    self.log.has_refused = why != nullptr;
    self.backend->refused(self);
}

/// Where the group is broken: leaves the call, and throws what broke it.
inline void throw_if_broken(rank_context& self, const wait_site* at, std::memory_order order) {
    if (self.memory.poison().state.load(order) == 0) return;
    leave(self);
    throw_poison(self, at);
}

/// From here on this rank may touch the memory of other ranks. Dekker's algorithm with `leave`: either this rank sees
/// the poison here, or the rank that poisoned the group sees that this rank is active, and waits for it.
inline void activate(rank_context& self) {
    auto& active = self.memory.state(self.rank).active;
    if (active.load(std::memory_order_relaxed) != 0) return;  // only this rank stores it
    active.store(1, std::memory_order_seq_cst);
    throw_if_broken(self, nullptr, std::memory_order_seq_cst);
}

/// After the last load from other ranks' buffers, before a call is over: a rank that has left the call by an error
/// meanwhile may be using its buffers for something else already.
inline void confirm(rank_context& self, const wait_site& at) {
    // The loads of data come before the load of the poison, for the compiler, and for processors that may do loads in
    // another order: all but x86.
    std::atomic_signal_fence(std::memory_order_seq_cst);
#if !defined(__x86_64__)
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
    throw_if_broken(self, &at, std::memory_order_seq_cst);
}

/// Breaks the group with this rank's error, leaves the call, and throws.
[[noreturn, gnu::cold]] inline void fail(rank_context& self, errc code, const wait_site& at, const error_text& why) {
    error_text text;
    text << "colls: rank " << self.rank << at << ": " << why.text();
    break_group(self, code, at.peer, at.round, text.text());
    leave(self);
    warn_of_lingering(text, self);
    throw error(code, text.text(), self.rank, at.peer, at.round);
}

inline const char* collective_in(std::uint64_t fingerprint) {
    const auto c = static_cast<int>(fingerprint >> 60);
    return c <= static_cast<int>(collective::redistribute) ? name_of(static_cast<collective>(c)) : "send/recv";
}

/// For how many seconds a rank that has found a mismatch waits for the peer's own account of its calls.
inline constexpr double time_to_tell = 0.3;

/// What may differ in calls of one collective, where the peer has not published its own.
inline constexpr const char* may_differ =
    ", with a different count, type, operator (perhaps another function of the same type), root or schedule, or "
    "started and not blocking, now or in a call before";

/// Appends what differs between the peer and this rank in the call of that number, or in a call before it, as far as
/// that is known.
[[gnu::cold]] inline void say_mismatch(
    error_text& text, rank_context& self, int peer, std::uint64_t call, std::uint64_t own, std::uint64_t theirs) {
    if (say_difference(text, self.memory, self.rank, peer, self.log.recent, call)) return;
    text << "rank " << peer << " called " << collective_in(theirs) << ", this rank " << collective_in(own);
    if (theirs >> 60 == own >> 60) text << may_differ;
}

[[noreturn, gnu::cold]] inline void fail_mismatch(rank_context& self, wait_site at, int peer, std::uint64_t theirs) {
    at.peer = peer;
    // A peer publishes its calls once it has waited for a while; a peer that does not wait does not publish them.
    tell_calls(self.memory, self.rank, self.log.recent, self.log.count);
    for (const double until = seconds_now() + time_to_tell;
        !has_told(self.memory, peer, at.call) && seconds_now() < until; sched_yield()) {
        self.backend->look(self, nullptr, 0);                   // over messages, the account comes by one
        throw_if_broken(self, &at, std::memory_order_seq_cst);  // another rank has reported it
    }
    error_text text;
    say_mismatch(text, self, peer, at.call, at.fingerprint, theirs);
    fail(self, errc::mismatch, at, text << "; every rank must make the same calls in the same order");
}

}  // namespace colls::inline v1::detail
