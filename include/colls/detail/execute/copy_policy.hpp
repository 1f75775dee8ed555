// The sizes in which data moves through shared memory, and those at which the way changes in which it is copied.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <cstddef>

namespace colls::inline v1::detail {

/// Sizes, in bytes. They were measured: docs/measurements/tried.md.
struct store_policy {
    // Ranks whose cores are far from each other: a line takes long from one cache to another.
    /// From this size of the whole buffer on, pushes into memory that this rank has not just read are streamed.
    static constexpr std::size_t stream_far_from = std::size_t{1} << 10;
    /// From this size on, so is what a rank posts for all on the eager path.
    static constexpr std::size_t stream_eager_from = 1536;
    /// Below this size a fold of two operands is stored to both ranks line by line, by plain stores; from it on, in
    /// pieces.
    static constexpr std::size_t interleave_far_below = std::size_t{4} << 20;
    /// From this size on, pushes are streamed also into memory that this rank has just read.
    static constexpr std::size_t stream_in_place_far_from = std::size_t{32} << 20;

    // Ranks whose cores are near, below the size at which the buffers of all ranks no longer fit the caches:
    /// Copies are pulled.
    static constexpr std::size_t pull_below = std::size_t{8} << 20;
    /// Below this size the result of an all_reduce is streamed, unless it is in place: this many lines, which the
    /// receiver has read, are taken away from it faster than they are fetched for a plain store.
    static constexpr std::size_t stream_result_below = std::size_t{640} << 10;
    /// From this size on, all pushes are streamed.
    static constexpr std::size_t stream_near_from = std::size_t{8} << 20;

    // More ranks than cores, which run in turn: some of a rank's peers run on its core, some on another one.
    /// Below this size copies are pulled, near and far: a plain push takes the line from the core that has read it
    /// last.
    static constexpr std::size_t pull_crowded_below = std::size_t{4} << 20;
    /// From this size on, what is pushed nevertheless is streamed where cores are near; else from stream_far_from on.
    static constexpr std::size_t stream_crowded_from = std::size_t{2} << 20;

    /// From this size of the whole buffer on, a rank's own result is streamed, too.
    static constexpr std::size_t stream_own_from = std::size_t{16} << 20;
    /// From this size of the whole buffer on, copies into scratch memory for others to read are streamed.
    static constexpr std::size_t stream_staged_from = std::size_t{32} << 20;
    /// What is folded and then pushed at a time: so little that the loads of one piece overlap the stores of the other.
    static constexpr std::size_t piece = 1 << 10;
    /// What is staged goes to another part of so much memory each time: twice the second-level cache of most
    /// processors. Where many ranks share a core, their memory together is more than that. Powers of 2.
    static constexpr std::size_t staging_ring = std::size_t{2} << 20, staging_ring_of_many = std::size_t{256} << 10;
    /// Staged plans: the chunks of all units together, and the number of chunks whose scratch slots are apart.
    static constexpr std::size_t staged_chunk = std::size_t{256} << 10;
    static constexpr std::size_t staged_chunks = 3;
    /// The same for a broadcast, whose root copies a chunk while the receivers copy the one before.
    static constexpr std::size_t staged_broadcast_chunk = std::size_t{32} << 10;
    static constexpr std::size_t staged_broadcast_chunks = 16;
};

/// When the kernel copies between processes instead of both copying through shared memory, and in which sizes, in
/// bytes. They were measured, too.
struct single_copy_policy {
    /// The least size of a block.
    static constexpr std::size_t from = std::size_t{24} << 10;
    /// The least size of a block of parted_broadcast.
    static constexpr std::size_t parted_from = std::size_t{16} << 10;
    /// What a call of the kernel takes, and its pages beside copying them (seconds, seconds a byte).
    static constexpr double call_seconds = 1.2e-6, byte_seconds = 2.5e-11;
    /// A unit's chunk.
    static constexpr std::size_t chunk = std::size_t{512} << 10;
};

/// How the message executor cuts data into messages.
struct message_policy {
    static constexpr std::size_t chunk = std::size_t{512} << 10;  ///< bytes of a unit
    static constexpr std::size_t chunks = 4;  ///< under way at most, where the schedule has many rounds
};

}  // namespace colls::inline v1::detail
