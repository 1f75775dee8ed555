// What goes wrong, said so that a person can act on it.
#pragma once

#include <colls/schedule.hpp>

#include <stdexcept>
#include <string>

namespace colls::inline v1 {

enum class errc : unsigned char {
    invalid_argument = 1,  ///< this rank's own arguments are wrong; nothing moved
    unsupported,           ///< the schedule does not work for this group size or operator
    wrong_schedule,        ///< the proof rejects the schedule
    mismatch,              ///< ranks called different things
    timeout,               ///< a peer did not come within the deadline
    peer_failed            ///< a peer left the group, or reported an error
};

/// Thrown by every blocking call. Names the rank that throws, the peer concerned and the schedule's round where they
/// are known (else `none`).
class error : public std::runtime_error {
public:
    error(errc code, const std::string& text, int rank = none, int peer = none, int round = none)
        : std::runtime_error(text), code_(code), rank_(rank), peer_(peer), round_(round) {}
    errc code() const noexcept { return code_; }
    int rank() const noexcept { return rank_; }
    int peer() const noexcept { return peer_; }
    int round() const noexcept { return round_; }

private:
    errc code_;
    int rank_, peer_, round_;
};

}  // namespace colls::inline v1
