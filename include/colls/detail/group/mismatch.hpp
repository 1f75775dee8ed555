// Errors of ranks whose calls differ.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/failure.hpp>

namespace colls::inline v1::detail {

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
    const auto& broken = self.memory.poison().state;
    for (const double until = seconds_now() + time_to_tell;
        !has_told(self.memory, peer, at.call) && seconds_now() < until;) {
        if (broken.load(std::memory_order_seq_cst) != 0) {  // another rank has reported it
            leave(self);
            throw_poison(self, &at);
        }
        sched_yield();
    }
    error_text text;
    say_mismatch(text, self, peer, at.call, at.fingerprint, theirs);
    fail(self, errc::mismatch, at, text << "; every rank must make the same calls in the same order");
}

}  // namespace colls::inline v1::detail
