// The memory that a rank's kernels share with its proxy: what they send to ranks of other hosts, and receive from them.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A transfer between hosts is a post. The kernel of the sender copies what it sends into a window, and lists its
// messages; the kernel of the receiver lists where in a window of its own they are to land. The proxy, a thread of each
// process, reads these lists, and moves the messages over a transport of messages. To the receiver's kernel their
// arrival is progress of the sender's, as between ranks that share memory. Nothing here knows a schedule. Lists and
// what the proxy writes are in host memory. So are the windows, or else in memory of the GPU, which the proxy does not
// touch.
//
// Each channel posts once in a round, at most, and has its own lists, windows and transport, so that channels never
// meet here either. It has two of each, for posts of even and odd number: a post is written when all messages of the
// one before the last have left and arrived.
#pragma once

#include <colls/cuda/detail/kernel/failure_report.hpp>
#include <colls/cuda/detail/kernel/slot_map.hpp>
#include <colls/cuda/detail/kernel/thread_group.hpp>
#include <colls/cuda/options.hpp>

namespace colls::inline v1::cuda::detail {

/// A block of a message, in a window.
struct far_piece {
    std::uint32_t at, bytes;
};

/// A message of a post; peer none: there is none.
struct far_message {
    std::int32_t peer, first, pieces;  ///< its pieces are [first, first + pieces) of its direction
};

/// What a channel sends and receives in a round: written by a kernel, read by the proxy.
struct alignas(128) far_post {
    std::uint64_t value;        ///< the progress that arrivals announce
    std::uint64_t fingerprint;  ///< of the call
    std::int32_t round, ports;
    far_message sends[max_ports], receives[max_ports];  ///< by port: both ends of a message name it by the same one
};

/// A piece of a message between two ranks, in a place of the windows: written by a kernel, read by the proxy.
struct far_mail {
    std::int32_t peer, receives;
    std::uint32_t place, bytes;
    std::uint64_t whole;   ///< bytes of the message
    std::uint64_t number;  ///< of the piece, among those of its message on the channel
};

/// Sizes of that memory.
struct far_layout {
    std::int32_t ranks = 0, channels = 0;
    std::uint64_t window_bytes = 0;  ///< a multiple of 128
    std::uint32_t pieces = 0;        ///< of a post in each direction, at most; a multiple of 16

    /// Groups of processes, of which each carries two channels.
    constexpr int groups() const { return (channels + 1) / 2; }
    /// Bytes for each rank: a poison word, a refusal and a text, which the proxy writes for a rank of another host.
    static constexpr std::uint64_t shadow_bytes = 512;
    constexpr std::uint64_t arrived_bytes() const { return (static_cast<std::uint64_t>(ranks) * 8 + 127) / 128 * 128; }
    constexpr std::uint64_t post_bytes() const {
        return sizeof(far_post) + 2 * (std::uint64_t{pieces} * sizeof(far_piece) + window_bytes);
    }
    /// Places for pieces of messages between two ranks, in each direction, in the windows of even and odd posts alike:
    /// these and posts are not used at the same time. All ranks cut messages alike. One for each rank, or more, so that
    /// none has to wait for a message of another pair; a power of two.
    constexpr std::uint32_t most_places() const {
        return ranks <= 128 ? 128 : ranks <= 256 ? 256 : ranks <= 512 ? 512 : 1024;
    }
    static_assert(max_ranks_of_hosts == 1024);
    constexpr std::uint64_t place_bytes() const {
        const std::uint64_t each = window_bytes / (most_places() / 2) / 128 * 128;
        return each < 128 ? 128 : each;
    }
    constexpr std::uint32_t places() const {
        const std::uint64_t all = 2 * (window_bytes / place_bytes());
        return all < most_places() ? static_cast<std::uint32_t>(all) : most_places();
    }
    /// Entries of the list of such pieces. At most 2 * most_places() are under way, fewer than the entries, so that
    /// before an entry is written again, one behind it is over; and then the proxy, which reads them in order, has read
    /// it. As many in any group: kernels that post look behind them, and what is constant takes no registers.
    static constexpr std::uint32_t mail_entries = 4 * max_ranks_of_hosts, moved_entries = max_ranks_of_hosts;
    static constexpr std::uint64_t mail_bytes =
        128 + mail_entries * sizeof(far_mail) + 2 * std::uint64_t{moved_entries} * 8;
    constexpr std::uint64_t channel_bytes() const { return 256 + arrived_bytes() + 2 * post_bytes() + mail_bytes; }
    constexpr std::uint64_t bytes() const {
        return static_cast<std::uint64_t>(ranks) * shadow_bytes +
               static_cast<std::uint64_t>(channels) * channel_bytes();
    }
};

/// Where it is, as kernels and the host reach it; null: all ranks of the group share memory.
struct far_memory {
    std::byte* base = nullptr;
    far_layout layout;
    const std::uint8_t* places = nullptr;  ///< of each rank among those of this host; `elsewhere`: it is on another one
    std::uintptr_t apart = 0;  ///< in_gpu: how far behind `base` such memory begins, which has the same layout

    /// The windows are in memory of the GPU. (One number more and no other layout: kernels of fp8 have no register
    /// left.)
    bool in_gpu() const { return apart != 0; }
    void put_into_gpu(std::byte* at) {
        apart = reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(base);
    }
    std::uint64_t offset_of_channel(int channel) const {
        return static_cast<std::uint64_t>(of_channel(channel) - base);
    }

    static constexpr std::uint8_t elsewhere = 0xff;
    COLLS_HOST_DEVICE bool is_far(int rank) const { return places[rank] == elsewhere; }
    /// What a workspace begins with, of a rank on another host.
    COLLS_HOST_DEVICE std::byte* shadow(int rank) const {
        return base + static_cast<std::uint64_t>(rank) * far_layout::shadow_bytes;
    }
    /// Posts of the channel so far: written by its kernels. The proxy has begun and ended this many.
    COLLS_HOST_DEVICE std::uint64_t* posted(int channel) const {
        return reinterpret_cast<std::uint64_t*>(of_channel(channel));
    }
    COLLS_HOST_DEVICE std::uint64_t* done(int channel) const { return posted(channel) + 16; }
    /// The progress of a rank as far as its messages on the channel have arrived: written by the proxy.
    COLLS_HOST_DEVICE std::uint64_t* arrived(int channel, int rank) const { return posted(channel) + 32 + rank; }
    COLLS_HOST_DEVICE far_post& post(int channel, std::uint64_t number) const {
        return *reinterpret_cast<far_post*>(
            of_channel(channel) + 256 + layout.arrived_bytes() + (number & 1) * layout.post_bytes());
    }
    COLLS_HOST_DEVICE far_piece* pieces(int channel, std::uint64_t number, bool receives) const {
        return reinterpret_cast<far_piece*>(&post(channel, number) + 1) + (receives ? layout.pieces : 0);
    }
    COLLS_HOST_DEVICE std::byte* window(int channel, std::uint64_t number, bool receives) const {
        return reinterpret_cast<std::byte*>(
            reinterpret_cast<std::uintptr_t>(pieces(channel, number, false) + 2 * std::uint64_t{layout.pieces}) +
            (receives ? layout.window_bytes : 0) + apart);
    }
    /// Pieces of messages between two ranks so far: written by the channel's kernels.
    COLLS_HOST_DEVICE std::uint64_t* mailed(int channel) const {
        return reinterpret_cast<std::uint64_t*>(of_channel(channel + 1) - layout.mail_bytes);
    }
    COLLS_HOST_DEVICE far_mail& mail(int channel, std::uint64_t number) const {
        return reinterpret_cast<far_mail*>(mailed(channel) + 16)[number & (layout.mail_entries - 1)];
    }
    /// 1 where the piece in a place has left, or arrived: written by the proxy, and set to 0 before by the kernel.
    COLLS_HOST_DEVICE std::uint64_t* moved(int channel, bool receives, std::uint32_t place) const {
        return reinterpret_cast<std::uint64_t*>(of_channel(channel + 1)) - (receives ? 1u : 2u) * layout.moved_entries +
               place;
    }
    COLLS_HOST_DEVICE std::byte* place(int channel, bool receives, std::uint32_t place) const {
        return window(channel, place & 1, receives) + (place >> 1) * layout.place_bytes();
    }

private:
    COLLS_HOST_DEVICE std::byte* of_channel(int channel) const {
        return shadow(layout.ranks) + static_cast<std::uint64_t>(channel) * layout.channel_bytes();
    }
};

}  // namespace colls::inline v1::cuda::detail
