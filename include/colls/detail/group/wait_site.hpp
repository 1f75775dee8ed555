// Where a rank waits, as an error names it: call, schedule, round, peer and blocks.
// IWYU pragma: private
#pragma once

#include <colls/error.hpp>

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

}  // namespace colls::inline v1::detail
