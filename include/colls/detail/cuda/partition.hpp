// How the elements of a call are divided: blocks into parts, parts into slices, slices into chunks.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A part belongs to a slot, a slice to a channel; all rounds of a chunk precede the next.
#pragma once

#include <colls/detail/cuda/thread_group.hpp>

namespace colls::inline v1::cuda::detail {

/// Slices and chunks are cut at multiples of this many elements, which keeps their alignment.
inline constexpr std::uint64_t quantum = 16;

/// A range of elements.
struct extent {
    std::uint64_t first = 0, count = 0;
};

/// Part i of `parts` of a range of `count` elements: sizes differ by at most one, the longer parts first. parts < 2^16.
COLLS_CALLED constexpr extent balanced(std::uint64_t count, std::uint64_t parts, std::uint64_t i) {
    if (parts == 1) return {0, count};
    // A device divides 32 bits only, and calls a long function for 64: long division, by digits of 16 bits.
    const auto divisor = static_cast<std::uint32_t>(parts);
    std::uint64_t q = 0;
    std::uint32_t r = 0;
    for (int shift = count >> 32 != 0 ? 48 : 16; shift >= 0; shift -= 16) {
        const std::uint32_t digits = r << 16 | static_cast<std::uint32_t>(count >> shift & 0xffff);
        q = q << 16 | digits / divisor;
        r = digits % divisor;
    }
    return {i * q + (i < r ? i : r), q + (i < r ? 1 : 0)};
}

/// The elements of a range of `count` that slice `i` of `slices` has in its chunk number `c`, of `chunk` elements each.
constexpr extent cut(std::uint64_t count, std::uint64_t slices, std::uint64_t i, std::uint64_t chunk, std::uint64_t c) {
    const extent mine = balanced((count + quantum - 1) / quantum, slices, i);
    const std::uint64_t from = mine.first * quantum + c * chunk, all = (mine.first + mine.count) * quantum;
    const std::uint64_t end = all < count ? all : count, stop = from + chunk < end ? from + chunk : end;
    return {from, from < stop ? stop - from : 0};
}

/// Part `part` of `parts` of user block `block`, one of `blocks` in a buffer of `count` elements. `offsets`: where the
/// blocks begin (blocks + 1 entries), or null where they are balanced.
COLLS_DEVICE_CALLED constexpr extent unit_of(
    std::uint64_t count, const std::uint64_t* offsets, int blocks, int block, int part, int parts) {
    const extent whole = offsets != nullptr
                             ? extent{offsets[block], offsets[block + 1] - offsets[block]}
                             : balanced(count, static_cast<std::uint64_t>(blocks), static_cast<std::uint64_t>(block));
    if (parts == 1) return whole;
    const extent some = balanced(whole.count, static_cast<std::uint64_t>(parts), static_cast<std::uint64_t>(part));
    return {whole.first + some.first, some.count};
}

/// Chunks of `chunk` elements that the longest slice of a range of `longest` elements needs; at least one.
constexpr std::uint64_t chunks_needed(std::uint64_t longest, std::uint64_t slices, std::uint64_t chunk) {
    const std::uint64_t slice = ((longest + quantum - 1) / quantum + slices - 1) / slices * quantum;
    return slice == 0 ? 1 : (slice + chunk - 1) / chunk;
}

/// Bytes of a scratch slot: a chunk, and room to begin at the alignment that its data has in the user's buffer.
constexpr std::uint64_t slot_bytes(std::uint64_t chunk, std::uint64_t element) {
    return ((chunk + quantum) * element + 127) / 128 * 128;
}

}  // namespace colls::inline v1::cuda::detail
