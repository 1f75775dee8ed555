// What two ranks write into each other's memory over verbs, and what they tell each other to connect their queue pairs.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
//
// Each rank of a pair has a block of registered memory with two halves of the same layout (`block_layout`): the peer
// writes into the first, and this rank prepares in the second what it writes to the same offset of the peer's first:
//   slots     a ring: of a message of up to `slot_bytes` the header and the data, of a longer one one part a slot
//   notices   a ring: where a longer message that the receiver expects is to land, so that it lands there uncopied
//   counters  credits: how many slots and notices have been taken out, how many messages have arrived
// The header of each slot and notice carries the sender's counters, too; the counters are written alone where a rank
// has nothing else to write. A slot, a notice, and the last write of a message that goes straight to its place carry an
// immediate, and each of these takes one posted receive of the peer's.
#pragma once

#include <colls/detail/transport/vocabulary.hpp>
#include <colls/verbs/detail/interface.hpp>

#include <cstring>

namespace colls::inline v1::detail {

/// Sizes of the rings, and how long a rank waits before it acts. The same on all ranks of a group.
struct verbs_shape {
    std::uint32_t slots = 32;            ///< of the ring, each way between two ranks
    std::uint32_t slot_bytes = 8 << 10;  ///< of data in each
    std::uint32_t notices = 32;
    std::uint64_t least_stripe = 64 << 10;  ///< of a message, for a lane of its own
    double offer_after = 2e-3;              ///< seconds without a place, until the sender says what its message is
    double signal_after = 30e-6;  ///< seconds until a signalled request is posted to learn that a message has left
    double failure_grace = 0.25;  ///< seconds in which control messages may still tell the cause of a failed request
};

namespace rdma {

/// What a write with an immediate announces: the immediate's two highest bits.
enum class write_kind : std::uint32_t {
    slot,    ///< a message, or a part of it, lies in the next slot
    direct,  ///< a message lies in the place that a notice named
    notice   ///< a notice lies in the next entry of their ring
};
/// The next bit of an immediate: the sender waits to hear that the message has arrived. The next two: on how many
/// lanes beside the first one parts of the message go. The others count slots, messages or notices.
inline constexpr std::uint32_t acknowledgement_wanted = 1u << 29, beside_shift = 27, count_mask = (1u << 27) - 1;
static_assert(most_lanes <= acknowledgement_wanted >> beside_shift);
constexpr write_kind kind_of(std::uint32_t immediate) { return static_cast<write_kind>(immediate >> 30); }
constexpr std::uint32_t immediate_of(write_kind what, std::uint64_t count) {
    return static_cast<std::uint32_t>(what) << 30 | static_cast<std::uint32_t>(count & count_mask);
}
constexpr bool has_count(std::uint32_t immediate, std::uint64_t count) {
    return (immediate & (acknowledgement_wanted - 1)) == (count & count_mask);
}

/// How many slots and notices a rank has taken out of its rings, and how many messages have arrived. They only grow.
struct credits {
    std::uint64_t slots = 0, notices = 0, messages = 0;
};

/// In front of the data in a slot, and of the places in a notice.
struct message_header {
    std::uint64_t fingerprint, sequence;
    std::uint64_t number;  // of the message, in its direction
    std::uint64_t bytes;   // of all of it
    std::uint32_t part;
    std::uint32_t entries;  // bytes of the message in this slot; places in this notice
    credits returned;       // the writer's own
    message_label label() const { return {fingerprint, sequence, part}; }
};
static_assert(sizeof(message_header) == 64);

/// Registered memory of the receiver's, in which a message is to land.
struct remote_region {
    std::uint64_t at, bytes;
    std::uint32_t key[most_lanes];
};

enum class notice_kind : std::uint32_t {
    direct,    ///< message `number` may be written straight to the places
    by_slots,  ///< message `number` goes through the ring of slots
    offer,     ///< from the sender: what its message `number` is, which waits for one of the two above
    discard    ///< whatever the peer still sends is thrown away, so it need not send it
};
struct placement_notice {
    static constexpr std::uint32_t most_places = 16;

    message_header what;
    notice_kind kind;
    std::uint32_t unused[3];
    remote_region places[most_places];
    /// Bytes of it that are written.
    std::uint32_t bytes() const {
        return static_cast<std::uint32_t>(offsetof(placement_notice, places) + what.entries * sizeof(remote_region));
    }
};

/// Offsets in either half of a block.
class block_layout {
public:
    static constexpr std::size_t notice_stride = 640, counters_bytes = 64;

    explicit block_layout(const verbs_shape& shape)
        : slots_(shape.slots), notices_(shape.notices), slot_stride_(sizeof(message_header) + shape.slot_bytes) {}
    std::size_t slot_at(std::uint64_t i) const { return i % slots_ * slot_stride_; }
    std::size_t notice_at(std::uint64_t i) const { return slots_ * slot_stride_ + i % notices_ * notice_stride; }
    std::size_t counters_at() const { return slots_ * slot_stride_ + notices_ * notice_stride; }
    std::size_t half() const { return counters_at() + counters_bytes; }

private:
    std::size_t slots_, notices_, slot_stride_;
};
static_assert(sizeof(placement_notice) <= block_layout::notice_stride);

/// The steps that connect two queue pairs, and the last one: `a` of a control message of kind `wiring`.
enum class wiring : std::uint64_t {
    greeting,  ///< how the sender's queue pair is reached (the text); `b` 1: it is connected to the receiver's already
    ready,     ///< the sender's queue pair is connected: the receiver may write
    closing    ///< the sender has sent `b` messages, the last it will, and `c` of the receiver's have arrived there
};
struct greeting {
    static constexpr std::uint64_t expected_magic =
        0x3276'7362'7265'76;  // changes with the version, and with the byte order

    std::uint64_t magic, base;
    std::uint32_t key, slots, slot_bytes, notices;
    queue_name name;
};
static_assert(sizeof(greeting) == 160);

/// A greeting as text, in hexadecimal digits.
struct greeting_text {
    char text[2 * sizeof(greeting) + 1];
};
inline greeting_text encode(const greeting& g) {
    greeting_text t;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&g);
    for (std::size_t i = 0; i < sizeof g; ++i) {
        t.text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        t.text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    t.text[2 * sizeof g] = '\0';
    return t;
}
/// False: the text is not a greeting of this version, from a rank with rings of the same shape.
inline bool decode(const char* text, const verbs_shape& shape, greeting& g) {
    auto* const bytes = reinterpret_cast<unsigned char*>(&g);
    if (std::strlen(text) != 2 * sizeof g) return false;
    for (std::size_t i = 0; i < 2 * sizeof g; ++i) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return false;
        bytes[i / 2] = static_cast<unsigned char>(bytes[i / 2] << 4 | digit);
    }
    return g.magic == greeting::expected_magic && g.slots == shape.slots && g.slot_bytes == shape.slot_bytes &&
           g.notices == shape.notices;
}

}  // namespace rdma
}  // namespace colls::inline v1::detail
