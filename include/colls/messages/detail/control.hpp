// What the control messages of a group say: a type for each kind that has more than one number. The wire has three
// numbers and a text for all of them.
// IWYU pragma: private
#pragma once

#include <colls/detail/transport/vocabulary.hpp>
#include <colls/error.hpp>

namespace colls::inline v1::detail::control {

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

/// Kind `told`: one of the sender's calls.
struct told_call {
    std::uint64_t number, fingerprint;
    const char* text;

    operator control_message() const { return {control_kind::told, number, fingerprint, 0, text}; }
    static told_call of(const control_message& m) { return {m.a, m.b, m.text}; }
};

/// Kind `broken`: why the group is broken, and who reports it.
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

}  // namespace colls::inline v1::detail::control
