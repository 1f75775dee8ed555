// A rank's workspace: the memory through which its kernels synchronise with those of other ranks.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// In order: the rank's poison word and its refusal, a text, the state of each channel, its mailboxes, the eager slots,
// scratch memory. Every rank reaches every workspace.
//
// A channel is one thread block of every rank, those of equal index. Channels share nothing, so that no kernel needs a
// barrier over its grid.
#pragma once

#include <colls/cuda/detail/kernel/failure_report.hpp>
#include <colls/cuda/detail/kernel/far_memory.hpp>
#include <colls/cuda/detail/kernel/kernel_call.hpp>
#include <colls/cuda/detail/kernel/thread_group.hpp>

namespace colls::inline v1::cuda::detail {

/// What a rank tells the others of a channel at the start of a call.
struct entry_record {
    std::uint64_t fingerprint;
    shared_address in, out;
};

/// The state of one channel of a rank.
struct alignas(128) channel_state {
    /// How far each rank of this host has come, over all calls, as it writes in the state of every rank there: a rank
    /// that waits reads its own memory.
    alignas(128) std::uint64_t progress[max_ranks];
    alignas(128) entry_record entries[2];       ///< of this call and of the one before, alternately; read by all ranks
    alignas(128) std::uint32_t schedule_calls;  ///< calls by a schedule so far; picks the entry. Private.
    std::uint32_t eager_calls;                  ///< eager calls so far; the flag in their words. Private.
    std::uint64_t far_posts;                    ///< posts so far: see far_memory.hpp. Private.
    std::uint64_t far_mail;                     ///< likewise, of pieces of messages between two ranks. Private.
};

/// A piece of a message between two ranks.
struct offered_piece {
    std::uint64_t whole, bytes;  ///< of the message, of the piece
    shared_address at;           ///< hidden: this many bytes after the beginning of the sender's scratch memory
};

/// What one rank of this host writes for another on a channel, in the memory of that other one, for messages between
/// the two: see message_executor.hpp.
struct alignas(128) mailbox {
    std::uint64_t offered;    ///< pieces that it has offered to the owner of this memory so far
    std::uint64_t taken;      ///< pieces that it has taken from the owner so far
    std::uint64_t received;   ///< pieces that the owner has taken from it: written by the owner. Private.
    offered_piece pieces[2];  ///< of even and odd number
};

/// Sizes of a workspace: the same on all ranks.
struct workspace_layout {
    std::int32_t ranks = 0, channels = 0;
    std::uint64_t eager_bytes = 0;    ///< longest eager message of a channel from one rank to another; a multiple of 8
    std::uint64_t scratch_bytes = 0;  ///< of a channel; a multiple of 128

    /// The poison word and the refusal have a cache line to themselves. What follows is for hosts: why the rank gave up
    /// or refused its call.
    static constexpr std::uint64_t refusal_begin = 4, text_begin = 128, text_bytes = 256,
                                   channels_begin = text_begin + text_bytes;
    constexpr std::uint64_t mail_begin() const {
        return channels_begin + static_cast<std::uint64_t>(channels) * sizeof(channel_state);
    }
    /// One for each rank of a host.
    constexpr std::uint64_t mailboxes() const {
        return static_cast<std::uint64_t>(ranks < max_ranks ? ranks : max_ranks);
    }
    constexpr std::uint64_t eager_begin() const {
        return mail_begin() + static_cast<std::uint64_t>(channels) * mailboxes() * sizeof(mailbox);
    }
    /// A first word, alone in its 16 bytes, and a packet for each 8 bytes of data.
    constexpr std::uint64_t eager_slot_bytes() const { return (16 + eager_bytes * 2 + 127) / 128 * 128; }
    constexpr std::uint64_t eager_bytes_of_channel() const {
        return 2 * static_cast<std::uint64_t>(ranks) * eager_slot_bytes();
    }
    constexpr std::uint64_t scratch_begin() const {
        return eager_begin() + static_cast<std::uint64_t>(channels) * eager_bytes_of_channel();
    }
    constexpr std::uint64_t bytes() const {
        return scratch_begin() + static_cast<std::uint64_t>(channels) * scratch_bytes;
    }
    /// eager_bytes, where the eager slots of a channel take this many bytes.
    static constexpr std::uint64_t eager_bytes_of(std::uint64_t bytes, int ranks) {
        const std::uint64_t slot = bytes / 2 / static_cast<std::uint64_t>(ranks) / 128 * 128;
        return slot == 0 ? 0 : (slot - 16) / 2 / 8 * 8;
    }
};

/// The nanoseconds of a timeout in seconds; for ever where it is infinite, or longer than thirty years.
inline std::uint64_t nanoseconds_of(double seconds) {
    return seconds < 1e9 ? static_cast<std::uint64_t>(seconds * 1e9) : ~std::uint64_t{0};
}

/// What a kernel is told of a rank and of its group. Addresses are as mapped on this rank.
struct rank_handle {
    std::int32_t rank = 0;
    workspace_layout sizes;
    std::byte* const* workspaces = nullptr;  ///< [ranks]
    const std::uint64_t* regions = nullptr;  ///< [ranks * region_count]: where regions of a shared_address begin
    std::uint32_t region_count = 1;
    failure_report* status = nullptr;
    std::uint64_t timeout_ns = 0;
    far_memory far;  ///< of ranks on other hosts `workspaces` has the shadow, where nothing but their failures is
};

COLLS_DEVICE inline bool is_far(const rank_handle& t, int rank) { return t.far.base != nullptr && t.far.is_far(rank); }

/// The number of a rank among those of its host.
COLLS_DEVICE inline int place_of(const rank_handle& t, int rank) {
    return t.far.base != nullptr ? t.far.places[rank] : rank;
}

COLLS_DEVICE inline std::uint32_t* poison_of(const rank_handle& t, int rank) {
    return reinterpret_cast<std::uint32_t*>(t.workspaces[rank]);
}
/// A word like the poison word, of a call that the rank's host refused: 0 if it has made it since.
COLLS_DEVICE inline std::uint32_t* refusal_of(const rank_handle& t, int rank) {
    return reinterpret_cast<std::uint32_t*>(t.workspaces[rank] + workspace_layout::refusal_begin);
}
COLLS_DEVICE inline channel_state& channel_of(const rank_handle& t, int rank, int channel) {
    return reinterpret_cast<channel_state*>(t.workspaces[rank] + workspace_layout::channels_begin)[channel];
}
/// In the memory of `owner`, what `writer` writes for it; both are on this host.
COLLS_DEVICE inline mailbox& mailbox_of(const rank_handle& t, int owner, int channel, int writer) {
    return reinterpret_cast<mailbox*>(
        t.workspaces[owner] + t.sizes.mail_begin())[static_cast<std::uint64_t>(channel) * t.sizes.mailboxes() +
                                                    static_cast<std::uint64_t>(place_of(t, writer))];
}
/// Where rank `from` writes its eager messages to rank `to`; `parity`: of the call.
COLLS_DEVICE inline std::uint64_t* eager_slot_of(const rank_handle& t, int to, int channel, int from, unsigned parity) {
    const workspace_layout& l = t.sizes;
    return reinterpret_cast<std::uint64_t*>(
        t.workspaces[to] + l.eager_begin() + static_cast<std::uint64_t>(channel) * l.eager_bytes_of_channel() +
        (std::uint64_t{parity} * static_cast<std::uint64_t>(l.ranks) + static_cast<std::uint64_t>(from)) *
            l.eager_slot_bytes());
}
/// Where this rank reads the progress of another.
COLLS_DEVICE inline const std::uint64_t* progress_of(const rank_handle& t, int channel, int rank) {
    return is_far(t, rank) ? t.far.arrived(channel, rank) : &channel_of(t, t.rank, channel).progress[place_of(t, rank)];
}
COLLS_DEVICE inline std::byte* scratch_of_channel(const rank_handle& t, int rank, int channel) {
    return t.workspaces[rank] + t.sizes.scratch_begin() + static_cast<std::uint64_t>(channel) * t.sizes.scratch_bytes;
}
/// Where this rank reaches memory that `rank` has named; null: nowhere.
COLLS_DEVICE inline std::byte* resolved(const rank_handle& t, int rank, const shared_address& m) {
    if (m.region >= t.region_count) return nullptr;
    return reinterpret_cast<std::byte*>(t.regions[static_cast<std::uint32_t>(rank) * t.region_count + m.region] + m.at);
}

}  // namespace colls::inline v1::cuda::detail
