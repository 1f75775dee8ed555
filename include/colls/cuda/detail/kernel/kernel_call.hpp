// A collective call as a kernel is told of it, and how a rank names its buffers to the others.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Plain data, the same on host and device.
#pragma once

#include <colls/cuda/detail/kernel/slot_map.hpp>

#include <cstddef>
#include <cstdint>

namespace colls::inline v1::cuda::detail {

/// An address as a rank names it to the others: `at` counts from where the reader has mapped the owner's `region`.
/// Region `absolute` begins at 0, for addresses that are the same on all ranks. A buffer in region `hidden` cannot be
/// reached by others: its owner copies what it sends to scratch memory. Regions from `shared` on are buffers of users.
struct shared_address {
    static constexpr std::uint32_t absolute = 0, exported = 1, shared = 2, hidden = 0xffff;
    static constexpr std::uint32_t most_shared = 16, most_regions = shared + most_shared;
    std::uint64_t at = 0;
    std::uint32_t region = absolute;
    std::uint32_t unused = 0;
};

struct byte_span {
    std::uint64_t begin = 0, bytes = 0;
    constexpr bool has(std::uint64_t address, std::uint64_t length) const {
        return bytes != 0 && address >= begin && length <= bytes && address - begin <= bytes - length;
    }
};

/// The memory of a rank that others reach: all of it (one address space), or what they have mapped: a range, as region
/// `exported`, and the buffers that users share.
struct reachable_memory {
    byte_span exported;
    std::int32_t all = 1;
    const byte_span* shared = nullptr;  ///< [shared_address::most_shared], empty where there is none; or null

    constexpr shared_address address_of(std::uint64_t address, std::uint64_t length) const {
        if (all != 0) return {address, shared_address::absolute, 0};
        if (exported.has(address, length)) return {address - exported.begin, shared_address::exported, 0};
        for (std::uint32_t i = 0; shared != nullptr && i < shared_address::most_shared; ++i)
            if (shared[i].has(address, length)) return {address - shared[i].begin, shared_address::shared + i, 0};
        return {0, shared_address::hidden, 0};
    }
};

/// What calls of one launch do not share, but for the buffers.
struct call_part {
    std::uint64_t count = 0;        ///< elements of all user blocks together
    std::uint64_t chunk = 0;        ///< elements of a slot in a chunk; a multiple of `quantum`
    std::uint64_t fingerprint = 0;  ///< equal on all ranks if they make the same call
    std::int32_t root = 0;
    std::int32_t first_channel = 0;  ///< a call of several in a launch has channels of its own
    std::int32_t channels = 1;       ///< channels in use: the slices that every user block is cut in
    std::int32_t chunks = 1;         ///< of a slice; on the eager path hops: 2 of a long all_reduce
};

/// A rank's buffers in a call.
struct kernel_buffers {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    shared_address in_where, out_where;
};

/// One rank's part in a call.
struct kernel_call : call_part, kernel_buffers {
    const std::uint64_t* offsets = nullptr;  ///< where user blocks begin (blocks + 1 entries); null: balanced
    // The schedule's slot map.
    const slot_info* slots = nullptr;
    const std::uint8_t* overwrites = nullptr;
    std::int32_t width = 0, user_blocks = 1;
    std::int32_t keeps_input = 1;  ///< 0: the map says that no rank does
};

/// The slice of a channel. A call that uses one channel has one slice, whichever channel it is.
constexpr std::uint64_t slice_of(const kernel_call& c, int channel) {
    return c.channels == 1 ? 0 : static_cast<std::uint64_t>(channel - c.first_channel);
}

}  // namespace colls::inline v1::cuda::detail
