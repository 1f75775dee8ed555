// What two ranks send each other over libfabric.
// IWYU pragma: private, include <colls/transports/ofi.hpp>
//
// Packets are untagged and go into memory of the receiver's library: short messages, and what is said about long ones.
// The parts of a long message are tagged, and go to their place once the receiver has granted it: after it has posted
// the receives, and, where the sender's message is the one that it expects. So none lands elsewhere, waits within the
// provider, or is copied. (Tagged messages and not RMA: every provider of FI_EP_RDM has them, and its own fastest way
// for large ones; no memory need be open to the peer, which would take keys, and a registration where the provider
// needs none; and the receiver's completion is the arrival, which RMA has only with FI_REMOTE_CQ_DATA or an order of
// operations that some providers lack.)
// Packets that take a slot are numbered, and a grant names its message, so that no order is asked of the provider.
#pragma once

#include <colls/detail/transport/vocabulary.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace colls::inline v1::detail {

/// Sizes, the same on all ranks of a group, and how long a rank waits before it acts.
struct ofi_shape {
    std::uint32_t slots = 16;               ///< packets with messages that the receiver has not taken, from a peer
    std::uint32_t packet_bytes = 32 << 10;  ///< of data in each
    std::uint32_t parts = 8;                ///< of long messages that are under way, each way between two ranks
    std::uint64_t part_bytes = 4ull << 20;  ///< of each; less where the provider carries less
    std::uint64_t least_stripe = 64 << 10;  ///< of a message, for a lane of its own
    double failure_grace = 0.25;            ///< seconds in which control messages may still tell a failure's cause
};

namespace ofi {

enum class packet_kind : std::uint32_t {
    message,  ///< a short one; takes a slot
    offer,    ///< a long one, for which no place is known; takes a slot
    grant,    ///< of the receiver: the parts of message `number` may come, if it is this one
    discard,  ///< of the receiver: it throws away whatever comes
    credits   ///< `taken` alone
};

/// In front of the data of a packet.
struct packet_header {
    std::uint32_t key, from;  ///< the receiver's, as its greeting says it; the sender's rank
    packet_kind kind;
    std::uint32_t part;
    std::uint64_t fingerprint, sequence, bytes;
    std::uint64_t number;  ///< of the message, in its direction
    std::uint64_t slot;    ///< number of the packet among those that take one
    std::uint64_t taken;   ///< slots of the receiver's packets that the sender has taken
    message_label label() const { return {fingerprint, sequence, part}; }
    bool takes_slot() const { return kind == packet_kind::message || kind == packet_kind::offer; }
};
static_assert(sizeof(packet_header) == 64);

/// The tag of a part, for the receiver with that key: the parts between two ranks are counted.
constexpr std::uint64_t tag_of(int from, std::uint32_t key, std::uint64_t part) {
    return static_cast<std::uint64_t>(from) << 24 | (key & 0xfff) << 12 | (part & 0xfff);
}

/// What two ranks tell each other by control messages of kind `wiring`: `a`.
enum class wiring : std::uint64_t {
    greeting,  ///< `b`: the key; `c`: bytes of a packet; the text: provider and addresses, one a lane
    closing    ///< the sender has sent `b` messages, the last it will, and `c` of the receiver's have arrived there
};

/// " 0a00...": what follows the provider's name in a greeting, for each lane: the address in hexadecimal digits.
inline std::string greeting_text(const std::string& address) {
    std::string text = " ";
    for (const char c : address) {
        text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
        text += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
    }
    return text;
}
/// The addresses of a peer with the same provider; none: it has another one.
inline std::vector<std::string> addresses_in(const char* greeting, const char* provider) {
    const std::size_t n = std::strlen(provider);
    std::vector<std::string> all;
    if (std::strncmp(greeting, provider, n) != 0) return all;
    const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
    for (const char* at = greeting + n; *at == ' ';)
        for (all.emplace_back(), ++at; at[0] > ' ' && at[1] > ' '; at += 2)
            all.back() += static_cast<char>(digit(at[0]) << 4 | digit(at[1]));
    return all;
}

}  // namespace ofi
}  // namespace colls::inline v1::detail
