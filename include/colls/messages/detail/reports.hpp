// What the ranks of a group that pass messages report to each other: why the group is broken, where each waits, the
// calls it has made or refused. Ranks that share memory read that there; here each rank keeps a group_memory of its
// own, into which these reports are written, so that waiting and failing are the same code for both.
// IWYU pragma: private, include <colls/extend/message_group.hpp>
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/transport/vocabulary.hpp>
#include <colls/error.hpp>

#include <algorithm>
#include <memory>

namespace colls::inline v1::detail {

/// What the control messages of a group say: a type for each kind that has several numbers. The wire has three and a
/// text for all of them.
namespace control {

/// Kinds `offer` and `accept`: a message between two ranks.
struct terms {
    std::uint64_t number;  ///< in its direction
    std::uint64_t bytes, type;

    control_message as(control_kind kind) const { return {kind, number, bytes, type, ""}; }
    static terms of(const control_message& m) { return {m.a, m.b, m.c}; }
};

/// Kind `board`: the call in which the sender waits.
struct board {
    std::uint64_t call, fingerprint;
    bool for_receiver;  ///< it waits for the receiver, which answers where it waits itself

    operator control_message() const { return {control_kind::board, call, fingerprint, for_receiver ? 0u : 1u, ""}; }
    static board of(const control_message& m) { return {m.a, m.b, m.c == 0}; }
};

/// Kind `broken`: why the group is broken, and which rank reports it.
struct breach {
    errc code;
    int rank, peer, round;  ///< peer, round: or none
    const char* text;

    operator control_message() const {
        const auto high = static_cast<std::uint64_t>(static_cast<std::uint32_t>(peer + 1)) << 32;
        return {control_kind::broken, static_cast<std::uint64_t>(code), high | static_cast<std::uint32_t>(round + 1),
            static_cast<std::uint64_t>(rank), text};
    }
    static breach of(const control_message& m) {
        return {static_cast<errc>(m.a), static_cast<int>(m.c), static_cast<int>(m.b >> 32) - 1,
            static_cast<int>(m.b & 0xffffffffu) - 1, m.text};
    }
    /// Is it one that a rank of a group of n can send?
    static bool valid(const control_message& m, int n) {
        return m.a >= 1 && m.a <= static_cast<std::uint64_t>(errc::peer_failed) && m.c < static_cast<std::uint64_t>(n);
    }
};

/// The kinds that have one number, and those that have none.
inline control_message plain(control_kind kind, std::uint64_t number = 0, const char* text = "") {
    return {kind, number, 0, 0, text};
}

}  // namespace control

/// A rank of a group, with its two transports: what the parts of its backend share.
struct message_links {
    rank_context* self = nullptr;
    std::unique_ptr<message_transport> collectives, messages;
};

class rank_reports {
public:
    rank_reports(const message_links& links, std::size_t n) : links_(links) {
        dead_.resize(n);
        is_ahead_.resize(n);
    }

    bool dead(int rank) const { return dead_[rank]; }
    /// A rank that learns that the group is broken tells all ranks that it is connected to. Each rank that waits hears
    /// of it: it waits for a rank that has died, that waits itself, or that has told it.
    void spread(const poison_state& p) {
        const control_message what = control::breach{static_cast<errc>(p.code), p.rank, p.peer, p.round, p.text};
        links_.messages->tell_all(what);
        // Also to ranks that it has no connection to: one that comes only after this rank has gone would take this rank
        // for the one that failed. In a large group, distant ranks hear it from others.
        const int n = self().size;
        if (n > few) links_.collectives->tell_all(what);
        for (int far = 1; far<n; far = n> few ? 2 * far : far + 1)
            links_.collectives->tell((self().rank + far) % n, what);
    }
    void breaks(const control::breach& b) {
        if (poison(self().memory, b.code, b.rank, b.peer, b.round, b.text)) spread(self().memory.poison());
    }
    void breaks(errc code, int peer, int round, const error_text& why) {
        error_text text;
        text << "colls: rank " << self().rank << ": " << why.text();
        breaks({code, self().rank, peer, round, text});
    }
    void lost(int peer, const char* why) {
        dead_[peer] = true;
        if (self().memory.state(peer).gone.load(std::memory_order_relaxed) == 0)
            breaks(errc::peer_failed, peer, none,
                error_text() << "rank " << peer << " has died, or cannot be reached any more: " << why);
    }

    /// In a wait of `seconds` so far: a rank that waits for long tells its peer in which call, and tells the ranks that
    /// wait for it that it waits.
    void tell_of_wait(const wait_site& at) {
        if (at.fingerprint == no_call) {  // a message has no call number: the peer hears that this rank waits for it
            if (waited_for_ != at.peer || waited_at_ + 0.1 < seconds_now())
                links_.collectives->tell(at.peer, control::board{no_call, 0, false});
            waited_for_ = at.peer;
            waited_at_ = seconds_now();
            waiting_ = {};
            return;
        }
        waiting_ = at;
        waited_at_ = seconds_now();
        // Repeated now and then: the answer shows that the peer is alive.
        const bool again = told_call_ == at.call + 1 && told_peer_ == at.peer;
        if (again && waited_at_ < told_at_ + std::min(self().env.timeout, environment::most_linger) / 8) return;
        told_call_ = at.call + 1;
        told_peer_ = at.peer;
        told_at_ = waited_at_;
        links_.collectives->tell(at.peer, control::board{at.call, at.fingerprint, true});
        if (again) return;
        for (int r = 0; r < self().size; ++r)
            if (const auto call = self().memory.state(r).board_call.load(std::memory_order_relaxed);
                call != 0 && call + 64 > self().log.count && r != at.peer)
                links_.collectives->tell(r, control::board{at.call, at.fingerprint, false});
    }
    void tell_refusal() {
        const refusal_state& refusal = self().memory.refusal(self().rank);
        char text[decltype(refusal.text)::most + 1];
        refusal.text.load(text);
        const std::uint64_t call = refusal.call.load(std::memory_order_relaxed);
        const control_message what = control::plain(control_kind::refused, call, text);
        if (call == 0)
            links_.collectives->tell_all(what);
        else
            tell_every_rank(what);  // this rank may not call the library again for long
        for (const double until = seconds_now() + (call == 0 ? 0 : 5e-3);
            links_.collectives->progress(), seconds_now() < until;)
            sched_yield();
    }
    void tell_absence(std::uint64_t group) {
        absent_ = group;
        links_.collectives->tell_all(control::plain(control_kind::away, group));
    }
    void ask_for_waits() {
        for (int r = 0; r < self().size; ++r)
            if (r != self().rank) self().memory.state(r).waits.store(long_wait::unanswered, std::memory_order_relaxed);
        tell_every_rank(control::plain(control_kind::inquire, of_waits));
    }
    /// This rank has begun a call: ranks that have said that they wait in it are compared now.
    void call_begun() {
        for (std::size_t i = 0; i < ahead_.size();) {
            const int r = ahead_[i];
            if (self().memory.state(r).board_call.load(std::memory_order_relaxed) > self().log.count) {
                ++i;
                continue;
            }
            ahead_.drop(i);
            is_ahead_[r] = false;
            compare_board(r);
        }
    }
    void heard(int peer, const control_message& what) {
        rank_state& s = self().memory.state(peer);
        if (what.what == control_kind::board) {
            heard_board(peer, control::board::of(what));
        } else if (what.what == control_kind::inquire) {
            answer(peer, what);
        } else if (what.what == control_kind::told) {
            tell_call(self().memory.told(peer, what.a), what.a, what.b, what.text);
        } else if (what.what == control_kind::refused) {
            refusal_state& refusal = self().memory.refusal(peer);
            refusal.text.store(what.text);
            refusal.call.store(what.a, std::memory_order_relaxed);
        } else if (what.what == control_kind::broken) {
            if (control::breach::valid(what, self().size)) breaks(control::breach::of(what));
        } else if (what.what == control_kind::away) {
            s.away.store(what.a, std::memory_order_relaxed);
        } else if (what.what == control_kind::leave) {
            s.gone.store(1, std::memory_order_relaxed);
        } else if (what.what == control_kind::waits) {
            s.waits.store(what.a, std::memory_order_relaxed);
        }
    }

    /// The peer has sent the message `got` where this rank expects `wanted`.
    void unexpected(int peer, const message_label& wanted, const message_label& got, std::size_t wanted_bytes,
        std::size_t got_bytes) {
        if (wanted.fingerprint == got.fingerprint)
            return breaks(errc::mismatch, peer, none,
                error_text() << "rank " << peer << " sends " << got_bytes << " bytes where this rank expects "
                             << wanted_bytes << ": their counts differ, or the order of their calls");
        std::uint64_t call = self().log.count;  // the call that expects the message
        while (call > 0 && call + call_record::kept > self().log.count &&
               self().log.of(call - 1).fingerprint != wanted.fingerprint)
            --call;
        suspect(peer, call > 0 ? call - 1 : 0, wanted.fingerprint, got.fingerprint);
    }
    /// Breaks the group once it is known how the calls of a rank differ, or it has not said so in time.
    void judge_suspect() {
        if (suspect_.peer == none ||
            (!has_told(self().memory, suspect_.peer, suspect_.call) && seconds_now() < suspect_.until))
            return;
        error_text text;
        say_mismatch(text, self(), suspect_.peer, suspect_.call, suspect_.own, suspect_.theirs);
        breaks(errc::mismatch, suspect_.peer, none, text << "; every rank must make the same calls in the same order");
    }

private:
    static constexpr std::uint64_t of_waits = 1;  // an inquiry: for the long wait that the receiver is in
    static constexpr int few = 64;                // ranks: more have no connection each to all

    rank_context& self() const { return *links_.self; }
    /// Also ranks that it has no connection to, unless they are many.
    void tell_every_rank(const control_message& what) {
        if (self().size > few) return links_.collectives->tell_all(what);
        for (int r = 0; r < self().size; ++r)
            if (r != self().rank) links_.collectives->tell(r, what);
    }
    void heard_board(int peer, const control::board& at) {
        rank_state& s = self().memory.state(peer);
        s.board_call.store(at.call + 1, std::memory_order_relaxed);
        s.board_at.store(milliseconds_now(), std::memory_order_relaxed);
        s.board_fingerprint.store(at.fingerprint, std::memory_order_relaxed);
        if (at.for_receiver && waiting_.peer != none && seconds_now() < waited_at_ + 0.1)
            links_.collectives->tell(peer, control::board{waiting_.call, waiting_.fingerprint, false});
        if (at.call + 1 > self().log.count && !is_ahead_[peer]) {
            is_ahead_[peer] = true;
            ahead_.push_back(peer);
        }
        compare_board(peer);
        if (absent_ != 0) links_.collectives->tell(peer, control::plain(control_kind::away, absent_));
    }
    void answer(int peer, const control_message& inquiry) {
        if (inquiry.a == of_waits) {
            const std::uint64_t own = self().memory.state(self().rank).waits.load(std::memory_order_relaxed);
            links_.collectives->tell(peer, control::plain(control_kind::waits, own));
            return;
        }
        for (std::uint64_t i = first_told(self().log.count); i < self().log.count; ++i) {
            const call_record& c = self().log.of(i);
            links_.collectives->tell(peer, {control_kind::told, i, c.fingerprint, 0, parts_of(c).text()});
        }
    }
    // Compares the call in which the peer waits, as far as it has said so, with this rank's call of that number.
    void compare_board(int peer) {
        const rank_state& s = self().memory.state(peer);
        const std::uint64_t call = s.board_call.load(std::memory_order_relaxed),
                            theirs = s.board_fingerprint.load(std::memory_order_relaxed);
        if (call == 0 || call > self().log.count || call + 64 <= self().log.count) return;
        if (const std::uint64_t own = self().log.of(call - 1).fingerprint; own != theirs)
            suspect(peer, call - 1, own, theirs);
    }
    // The peer's calls differ: asks it for its calls, so that the error can say how.
    void suspect(int peer, std::uint64_t call, std::uint64_t own, std::uint64_t theirs) {
        if (suspect_.peer != none) return;
        suspect_ = {peer, call, own, theirs, seconds_now() + time_to_tell};
        links_.collectives->tell(peer, control::plain(control_kind::inquire));
    }

    const message_links& links_;
    list<bool> dead_;
    // Ranks that have said in which call they wait, one that this rank had not made then.
    list<int> ahead_;
    list<bool> is_ahead_;
    std::uint64_t told_call_ = 0;
    int told_peer_ = none;
    double told_at_ = 0;
    wait_site waiting_;  // where this rank has waited for long, when it last looked
    double waited_at_ = 0;
    int waited_for_ = none;     // by a message, when it last looked
    std::uint64_t absent_ = 0;  // this rank shrinks the group of that number
    struct suspicion {
        int peer = none;
        std::uint64_t call = 0, own = 0, theirs = 0;
        double until = 0;
    } suspect_;  // whose calls do not fit, until the error is reported
};

}  // namespace colls::inline v1::detail
