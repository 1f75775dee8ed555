// Where a rank waits, as an error names it: call, schedule, round, peer and blocks; and what has begun on a rank and
// may not be over: each wait of the rank advances all of it.
// IWYU pragma: private
#pragma once

#include <colls/error.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::inline v1::detail {

/// The call number of a point-to-point message: messages are not collective calls, and have none.
inline constexpr std::uint64_t no_call = ~std::uint64_t{0};

struct wait_site {
    int peer = none;
    int round = none;
    const char* what = "";  ///< the collective
    std::string_view schedule = {};
    std::uint64_t call = 0;  ///< number of the call in this group
    std::uint64_t fingerprint = 0;
    /// Appends to an error the blocks that this rank and the peer exchange in the round. Null: not known.
    void (*blocks)(error_text& text, const wait_site& at) = nullptr;
    const void* blocks_of = nullptr;  ///< the any_schedule that `blocks` asks
    int rank = 0, size = 0;
    int shift = 0;  ///< the root of the call minus the root that the schedule is written for
};

/// What ranks tell each other of a long wait, for dumps: the peer + 2, and above it the collective as fingerprints have
/// it, or send or recv. 0: it does not wait.
struct long_wait {
    static constexpr std::uint64_t unanswered = ~std::uint64_t{0}, send = 16, recv = 17;

    static std::uint64_t word_of(const wait_site& at) {
        const std::uint64_t in = at.fingerprint != no_call ? at.fingerprint >> 60 : at.what[0] == 's' ? send : recv;
        return in << 32 | static_cast<std::uint32_t>(at.peer + 2);
    }
    static std::uint64_t call_in(std::uint64_t word) { return word >> 32; }
    /// Or none, where it waits for no rank, or for any.
    static int peer_in(std::uint64_t word) {
        return word == 0 || word == unanswered ? none : static_cast<int>(word & 0xffffffff) - 2;
    }
};

/// Appends the place, as in " in all_reduce (ring), round 3, block 2".
[[gnu::cold]] inline error_text& operator<<(error_text& text, const wait_site& at) {
    text << " in " << at.what;
    if (!at.schedule.empty()) put_brief(text << " (", at.schedule) << ")";
    if (at.round != none) text << ", round " << at.round;
    if (at.round != none && at.peer != none && at.blocks) at.blocks(text, at);
    return text;
}

/// How far it has come, in chunks or pieces, and within one of them.
struct position {
    std::size_t chunk = 0, at = 0;
    friend bool operator==(const position&, const position&) = default;
};

/// A collective or a message. The executors implement it.
class pending {
public:
    pending(const pending&) = delete;
    pending& operator=(const pending&) = delete;
    virtual ~pending() = default;

    /// Goes on as far as it gets without waiting; true when it is over.
    virtual bool advance() = 0;
    /// Appends how far another rank is in it, as far as this rank knows: for a dump.
    virtual void describe(error_text&, int /*rank*/) const {}

    wait_site site;              ///< where it waits
    position now;                ///< changes when it has moved: then another wait begins
    std::uint64_t sequence = 0;  ///< number among those of its kind, and of a message to or from its peer
    bool done = true;
    const bool is_collective;  ///< else a message

protected:
    explicit pending(bool collective) : is_collective(collective) {}
};

}  // namespace colls::inline v1::detail
