// How the elements of a call are divided: blocks into parts, parts into slices, slices into chunks.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A part belongs to a slot, a slice to a channel; all rounds of a chunk precede the next.
#pragma once

#include <colls/cuda/detail/kernel/thread_group.hpp>

namespace colls::inline v1::cuda::detail {

/// Slices and chunks are cut at multiples of this many elements, which keeps their alignment.
inline constexpr std::uint64_t quantum = 16;

/// A range of elements.
struct extent {
    std::uint64_t first = 0, count = 0;
};

/// `count` divided by `parts`.
struct quotient {
    std::uint64_t whole = 0;
    std::uint32_t rest = 0;
};
/// parts < 2^16. A device divides 32 bits only, and calls a long function for 64: long division, by digits of 16 bits.
COLLS_CALLED constexpr quotient divided(std::uint64_t count, std::uint64_t parts) {
    const auto divisor = static_cast<std::uint32_t>(parts);
    if (count >> 32 == 0) {
        const auto all = static_cast<std::uint32_t>(count);
        return {all / divisor, all % divisor};
    }
    quotient q;
    for (int shift = 48; shift >= 0; shift -= 16) {
        const std::uint32_t digits = q.rest << 16 | static_cast<std::uint32_t>(count >> shift & 0xffff);
        q.whole = q.whole << 16 | digits / divisor;
        q.rest = digits % divisor;
    }
    return q;
}
/// Part i of a range that has been divided: sizes differ by at most one, the longer parts first.
constexpr extent part_of(const quotient& q, std::uint64_t i) {
    return {i * q.whole + (i < q.rest ? i : q.rest), q.whole + (i < q.rest ? 1 : 0)};
}
/// Part i of `parts` of a range of `count` elements.
constexpr extent balanced(std::uint64_t count, std::uint64_t parts, std::uint64_t i) {
    return parts == 1 ? extent{0, count} : part_of(divided(count, parts), i);
}

/// The elements of a range of `count` that slice `i` of `slices` has in its chunk number `c`, of `chunk` elements each.
constexpr extent cut(std::uint64_t count, std::uint64_t slices, std::uint64_t i, std::uint64_t chunk, std::uint64_t c) {
    const extent mine = balanced((count + quantum - 1) / quantum, slices, i);
    const std::uint64_t from = mine.first * quantum + c * chunk, all = (mine.first + mine.count) * quantum;
    const std::uint64_t end = all < count ? all : count, stop = from + chunk < end ? from + chunk : end;
    return {from, from < stop ? stop - from : 0};
}

/// Part `part` of `parts` of user block `block`. `offsets`: where the blocks begin (blocks + 1 entries), or null where
/// they are balanced, of `blocks` elements each.
COLLS_DEVICE_CALLED constexpr extent unit_of(
    const quotient& blocks, const std::uint64_t* offsets, int block, int part, int parts) {
    const extent whole = offsets != nullptr ? extent{offsets[block], offsets[block + 1] - offsets[block]}
                                            : part_of(blocks, static_cast<std::uint64_t>(block));
    if (parts == 1) return whole;
    const extent some = balanced(whole.count, static_cast<std::uint64_t>(parts), static_cast<std::uint64_t>(part));
    return {whole.first + some.first, some.count};
}

/// The longest of the slices that ranges of up to `longest` elements are cut in.
constexpr std::uint64_t longest_slice(std::uint64_t longest, std::uint64_t slices) {
    return ((longest + quantum - 1) / quantum + slices - 1) / slices * quantum;
}

/// Chunks of `chunk` elements that the longest slice of a range of `longest` elements needs; at least one.
constexpr std::uint64_t chunks_needed(std::uint64_t longest, std::uint64_t slices, std::uint64_t chunk) {
    const std::uint64_t slice = longest_slice(longest, slices);
    return slice == 0 ? 1 : (slice + chunk - 1) / chunk;
}

/// Bytes of a scratch slot: a chunk, and room to begin at the alignment that its data has in the user's buffer.
constexpr std::uint64_t slot_bytes(std::uint64_t chunk, std::uint64_t element) {
    return ((chunk + quantum) * element + 127) / 128 * 128;
}
/// The longest chunk, in elements, whose slot has at most this many bytes; 0: none has.
constexpr std::uint64_t chunk_within(std::uint64_t bytes, std::uint64_t element) {
    const std::uint64_t quanta = bytes / 128 * 128 / element / quantum;
    return quanta < 2 ? 0 : (quanta - 1) * quantum;
}

}  // namespace colls::inline v1::cuda::detail
