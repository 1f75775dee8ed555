// colls::error, which every call throws, and its codes.
#pragma once

#include <colls/detail/support/error_text.hpp>
#include <colls/schedule.hpp>

#include <memory>
#include <stdexcept>
#include <string>

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
    /// The latest 64 calls of the rank that throws, on the group that the error is about: lines of numbers and calls,
    /// the latest last, with equal ones in one line. "" for an error that was found before the call began, and
    /// outside of calls.
    const char* calls() const noexcept { return calls_ ? calls_->c_str() : ""; }
    /// Sets calls(); the library does, when an error leaves a call.
    void set_calls(std::string lines) {
        calls_ = std::make_shared<const std::string>(static_cast<std::string&&>(lines));
    }

private:
    errc code_;
    int rank_, peer_, round_;
    std::shared_ptr<const std::string> calls_;  // shared, since the copy of an exception must not throw
};

}  // namespace colls::inline v1
