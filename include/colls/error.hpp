// colls::error, which every call throws, and its codes.
#pragma once

#include <colls/detail/support/message.hpp>
#include <colls/schedule.hpp>

#include <stdexcept>

namespace colls::inline v1 {

/// What has gone wrong. Which call gives which of them, and what is left of the group: collectives.hpp.
enum class errc : unsigned char {
    invalid_argument = 1,  ///< this rank's own arguments are wrong; nothing has moved
    unsupported,           ///< the schedule does not work for this group size or operator
    wrong_schedule,        ///< the proof rejects the schedule
    mismatch,              ///< the ranks have made different calls
    timeout,               ///< a peer did not take part within the deadline
    peer_failed            ///< a peer has left the group, or reported an error
};

/// What calls throw. what() says which rank is concerned, what is wrong, and where.
class error : public std::runtime_error {
public:
    /// `text` is copied.
    error(errc code, const char* text, int rank = none, int peer = none, int round = none)
        : std::runtime_error(text), code_(code), rank_(rank), peer_(peer), round_(round) {}
    /// What has gone wrong.
    errc code() const noexcept { return code_; }
    /// The rank that throws; `none` where it is not known.
    int rank() const noexcept { return rank_; }
    /// The rank that this one waited for, or that has failed; else `none`.
    int peer() const noexcept { return peer_; }
    /// The round of the schedule; `none` outside of one.
    int round() const noexcept { return round_; }

private:
    errc code_;
    int rank_, peer_, round_;
};

}  // namespace colls::inline v1
