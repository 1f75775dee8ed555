// Messages between two ranks, as a kernel is told of them, and what its blocks share while they move them.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/kernel/wait_for_peer.hpp>

namespace colls::inline v1::cuda::detail {

/// A message that this rank sends or receives.
struct message {
    std::byte* at = nullptr;
    std::uint64_t bytes = 0;
    std::int32_t peer = none;
    std::uint16_t region = shared_address::absolute;  ///< of one that it sends: how its peer reaches it
    std::uint16_t lane = 0;                           ///< of the launch: see message_lane
};

/// Messages that a launch brings with it, at most, and as many lanes have room in shared memory; bytes of a channel's
/// slice of a message, at least.
inline constexpr int most_messages = 128;
inline constexpr std::uint64_t least_message_slice = 16 << 10;

/// The messages of one launch: those that are sent, then those that are received. In each direction they are in
/// ascending order of the distance from sender to receiver, and those of one peer in the order of the calls.
///
/// A list of more than most_messages is stored in the rank's scratch memory, by launches before, each of which brings a
/// part. Graphs keep such a list as they keep a short one, and no memory has to be allocated. No other rank reads this
/// memory then: what it has read of earlier calls it has read before they were over.
struct message_list {
    std::int32_t sends = 0, receives = 0;
    std::int32_t lanes = 0;
    std::int32_t hidden = 0;                    ///< lanes that send something out of their peers' reach
    std::int32_t far[2] = {};                   ///< lanes to other hosts, and from them
    std::int32_t first_channel = 0;             ///< of the launch
    std::int32_t stored = 0, stored_first = 0;  ///< not 0: messages of this part, which is only stored; its first one
    std::uint64_t begins[shared_address::most_regions] = {};  ///< of this rank's regions
    message of[most_messages];

    COLLS_HOST_DEVICE int messages() const { return sends + receives; }
    COLLS_HOST_DEVICE bool is_short() const { return messages() <= most_messages; }
    COLLS_HOST_DEVICE bool has_near_lanes() const { return lanes <= most_messages; }
    /// What each channel's scratch memory ends with: its lanes, where shared memory has no room for them, and in that
    /// of channel 0 the list, where it is not short.
    COLLS_HOST_DEVICE std::uint64_t lane_bytes() const;
    COLLS_HOST_DEVICE std::uint64_t stored_bytes() const {
        return is_short() ? 0 : (static_cast<std::uint64_t>(messages()) * sizeof(message) + 127) / 128 * 128;
    }
    /// Bytes of a channel's scratch memory that are left for a copy of a piece, of which each lane that needs any has
    /// two. `scratch`: all of them. message_lane::copy_bytes has 32 bits.
    COLLS_HOST_DEVICE std::uint64_t staged_bytes(std::uint64_t scratch) const {
        const std::uint64_t taken = lane_bytes() + stored_bytes();
        if (taken > scratch) return 0;
        const std::uint64_t each = (scratch - taken) / static_cast<std::uint32_t>(2 * hidden) / 128 * 128,
                            most = 1 << 30;
        return each < most ? each : most;
    }
};

/// What a channel carries of a message: bytes [first, first + count); `is_there`: it takes part.
struct message_slice {
    std::uint64_t first, count;
    bool is_there;
};
/// Channels that a message takes, from number `distance` on: short ones take one each, in turn.
constexpr std::uint64_t channels_of_message(std::uint64_t bytes, int channels) {
    const std::uint64_t all = (bytes + least_message_slice - 1) / least_message_slice,
                        most = static_cast<std::uint64_t>(channels);
    return all < 1 ? 1 : all < most ? all : most;
}
/// Sender and receiver cut a message alike. `distance`: from the sender's rank to the receiver's.
constexpr message_slice slice_of_message(std::uint64_t bytes, int distance, int channel, int channels) {
    const std::uint64_t parts = channels_of_message(bytes, channels),
                        part = static_cast<std::uint64_t>(mod(channel - distance, channels)),
                        each = ((bytes + parts - 1) / parts + 127) / 128 * 128,
                        first = part * each < bytes ? part * each : bytes;
    return {first, each < bytes - first ? each : bytes - first, part < parts};
}

/// The messages of a launch to one peer, or from it, one after the other; one thread of the block looks after them.
struct message_lane {
    std::byte* at;                ///< of the message under way: the bytes of this channel that are left
    std::uint64_t left, to_ask;   ///< how many; of them, far, not asked for yet
    std::uint64_t number, moved;  ///< of pieces: begun, over
    std::uint64_t piece;          ///< of the piece under way within the host: bytes that are left
    const std::byte* from;        ///< where the receiver finds them
    // What all threads do next: a copy; then, between hosts, an entry of the proxy's list.
    const std::byte* copy_from;
    std::byte* copy_to;
    std::uint64_t mail_whole;
    std::uint32_t copy_bytes, mail_place, mail_bytes, mail_number;
    std::uint64_t since;  ///< of its wait: see backoff
    std::uint32_t pauses;
    std::uint32_t pieces;          ///< of the message, begun between hosts
    std::uint32_t place, places;   ///< of the pieces under way: in windows or scratch memory, from `place` on
    std::int32_t peer, next, end;  ///< of the list: the message under way; behind the last one
    std::int8_t sends, is_far, over, is_copied, posts;  ///< is_copied: a piece, by the pass before
    std::int8_t is_hidden;                              ///< it sends something out of its peer's reach
};

COLLS_HOST_DEVICE inline std::uint64_t message_list::lane_bytes() const {
    return has_near_lanes() ? 0 : (static_cast<std::uint64_t>(lanes) * sizeof(message_lane) + 127) / 128 * 128;
}

/// Shared memory of a block.
struct message_state {
    message_lane lanes[most_messages];
};

}  // namespace colls::inline v1::cuda::detail
