// Messages between two ranks, as a kernel is told of them, and what its blocks share while they move them.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/wait_for_peer.hpp>

namespace colls::inline v1::cuda::detail {

/// A message that this rank sends or receives.
struct message {
    std::byte* at = nullptr;
    std::uint64_t bytes = 0;
    std::int32_t peer = none;
    std::uint32_t region = shared_address::absolute;  ///< of one that it sends: how its peer reaches it
};

/// Messages of one launch in each direction, at most; and bytes of a channel's slice of one, at least.
inline constexpr int most_messages = 64;
inline constexpr std::uint64_t least_message_slice = 16 << 10;

/// The messages of one launch: those that are sent, then those that are received. In each direction they are in
/// ascending order of the distance from sender to receiver, and those of one peer in the order of the calls.
struct message_list {
    std::int32_t sends = 0, receives = 0;
    std::int32_t hidden = 0;         ///< of those that are sent: that are out of their peers' reach
    std::int32_t far[2] = {};        ///< peers on other hosts, in each direction
    std::int32_t first_channel = 0;  ///< of the launch
    std::uint64_t begins[shared_address::most_regions] = {};  ///< of this rank's regions
    message of[2 * most_messages];
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

/// The messages to one peer, or from it, one after the other; one thread of the block looks after them.
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
};

/// Shared memory of a block.
struct message_state {
    message_lane lanes[2 * most_messages];
};

}  // namespace colls::inline v1::cuda::detail
