// What goes wrong, said so that a person can act on it.
#pragma once

#include <colls/schedule.hpp>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>

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
    error(errc code, const char* text, int rank = none, int peer = none, int round = none)
        : std::runtime_error(text), code_(code), rank_(rank), peer_(peer), round_(round) {}
    errc code() const noexcept { return code_; }
    int rank() const noexcept { return rank_; }
    int peer() const noexcept { return peer_; }
    int round() const noexcept { return round_; }

private:
    errc code_;
    int rank_, peer_, round_;
};

namespace detail {

/// An error's text without its opening, as another text quotes it.
inline const char* quoted(const char* text) { return std::strncmp(text, "colls: ", 7) == 0 ? text + 7 : text; }

/// Puts an error's text together. Not std::string: its concatenations cost a unit more to compile than all waiting.
class message {
public:
    [[gnu::cold]] [[gnu::noinline]] message& operator<<(std::string_view s) {
        const std::size_t room = sizeof text_ - 1 - size_, n = s.size() < room ? s.size() : room;
        std::memcpy(text_ + size_, s.data(), n);
        text_[size_ += n] = '\0';
        return *this;
    }
    message& operator<<(const char* s) { return *this << std::string_view(s); }
    [[gnu::cold]] [[gnu::noinline]] message& operator<<(long long i) {
        char digits[24];
        std::snprintf(digits, sizeof digits, "%lld", i);
        return *this << std::string_view(digits);
    }
    message& operator<<(int i) { return *this << static_cast<long long>(i); }
    message& operator<<(std::size_t i) { return *this << static_cast<long long>(i); }
    [[gnu::cold]] [[gnu::noinline]] message& operator<<(double x) {
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.3g", x);
        return *this << std::string_view(digits);
    }
    const char* text() const { return text_; }

private:
    char text_[480] = {};
    std::size_t size_ = 0;
};

/// A schedule's name; of a long one the beginning.
[[gnu::cold]] inline message& put_brief(message& text, std::string_view name) {
    constexpr std::size_t most = 72;
    return text << name.substr(0, most) << (name.size() > most ? "..." : "");
}

}  // namespace detail
}  // namespace colls::inline v1
