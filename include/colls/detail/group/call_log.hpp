// The calls that a rank has made, and how many of each kind.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/told_calls.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/list.hpp>

namespace colls::inline v1::detail {

/// Collective calls.
struct call_log {
    std::uint64_t count = 0;                ///< so far
    std::uint64_t history = 0;              ///< hash of all of them: a mismatch that a call misses the next one finds
    call_record recent[call_record::kept];  ///< the latest, by number modulo `kept`
    bool has_refused = false;               ///< the call that would have been the next one

    call_record& of(std::uint64_t number) { return recent[number % call_record::kept]; }
    call_record& latest() { return of(count - 1); }
    const call_record& latest() const { return recent[(count - 1) % call_record::kept]; }
    /// The fingerprint of a new call. Its highest four bits are the collective, so that an error can name both sides'.
    std::uint64_t sign(collective what, std::uint64_t hash) {
        history = static_cast<std::uint64_t>(what) << 60 | hash_mix(hash, history) >> 4;
        return of(count++).fingerprint = history;
    }
};

/// Calls in memory that expose buffers, numbered.
struct direct_calls {
    std::uint64_t count = 0;
    std::uint64_t completed_by_all = 0;  ///< a lower bound, refreshed when it does not suffice
    std::uint32_t finished = 0;          ///< a bit for each from this rank's `completed` on that is over
};

/// Calls by the eager path, numbered.
struct eager_calls {
    std::uint64_t count = 0;
    std::uint64_t last_full = 0;  ///< 1 + the latest of them in which every rank heard from every rank
    std::uint64_t by_all = 0;     ///< how many all ranks have made: a lower bound, refreshed when it does not suffice
    std::uint64_t telling = 0;    ///< calls that may tell the distance of the cores (execute/distance.hpp)
    int near_votes = 0;           ///< rank 0: samples of late that say near, less those that say far
};

/// Messages to or from one rank.
struct message_count {
    std::uint64_t begun = 0, over = 0;
};
struct message_counts {
    list<message_count> sent, received;  ///< by rank; empty before the first one
    int next_source = 0;                 ///< where the search for a sender begins, for recv_any
};

}  // namespace colls::inline v1::detail
