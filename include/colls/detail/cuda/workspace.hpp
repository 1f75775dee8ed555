// What a rank's blocks share with those of other ranks: counters, entry records, the eager path and scratch memory, in
// one piece of memory that every rank can reach, and what a kernel is told of a call. Plain data: the same on host and
// device.
#pragma once

#include <colls/detail/cuda/group.hpp>
#include <colls/detail/cuda/slot_map.hpp>

namespace colls::inline v1::cuda::detail {

/// Memory as a rank names it to the others. In one address space, or within the rank's exported memory: `at` plus what
/// the reader knows `region` to begin at. Region `hidden`: nobody else can reach it, what is sent is copied to scratch
/// memory.
struct reachable {
    static constexpr std::uint32_t everywhere = 0, hidden = 0xffffffffu;
    std::uint64_t at = 0;
    std::uint32_t region = everywhere;
    std::uint32_t unused = 0;
};

/// What a block of a rank says of itself when it enters a call.
struct entry {
    std::uint64_t fingerprint;
    reachable in, out;
};

/// A block's part of a rank's workspace. All blocks of one index, over the ranks, are a channel of their own: they meet
/// each other alone, so that no kernel needs a barrier over its grid.
struct alignas(128) channel {
    alignas(128) std::uint64_t progress;  ///< what this rank has done, ever: read by all
    alignas(128) entry entries[2];        ///< of this call and the one before, by turns
    alignas(128) std::uint32_t calls;     ///< private: calls so far (large ones; picks the entry)
    std::uint32_t letters;                ///< private: small calls so far (the flag within a word)
};

/// Why a kernel gave up.
enum class failure : std::uint32_t { nothing, late, mismatch };

/// A rank's poison word: nothing, or why it gave up, and because of whom. Others look at it.
constexpr std::uint32_t blame(failure why, int peer) {
    return static_cast<std::uint32_t>(why) << 16 | static_cast<std::uint32_t>(peer);
}
constexpr failure blamed_for(std::uint32_t word) { return static_cast<failure>(word >> 16); }
constexpr int blamed(std::uint32_t word) { return static_cast<int>(word & 0xffffu); }

/// Where the host looks: pinned host memory. `what` is written last.
struct report {
    std::uint64_t what;
    std::int32_t rank, peer, round, block;
    std::int32_t told_by;        ///< who had given up before, or none
    std::uint64_t mine, theirs;  ///< fingerprints
};

/// Sizes of a workspace: the same on all ranks.
struct layout {
    std::int32_t ranks = 0, blocks = 0;  ///< blocks: channels
    std::uint64_t letter_bytes = 0;   ///< the longest small message that one block sends to one peer; a multiple of 4
    std::uint64_t scratch_bytes = 0;  ///< of a block; a multiple of 128

    // The poison word has a line to itself, before the channels.
    static constexpr std::uint64_t channels_at = 128;
    constexpr std::uint64_t words() const { return 1 + letter_bytes / 4; }
    constexpr std::uint64_t letters_at() const {
        return channels_at + static_cast<std::uint64_t>(blocks) * sizeof(channel);
    }
    constexpr std::uint64_t box_bytes() const { return (words() * 8 + 127) / 128 * 128; }
    constexpr std::uint64_t letters_of_block() const { return 2 * static_cast<std::uint64_t>(ranks) * box_bytes(); }
    constexpr std::uint64_t scratch_at() const {
        return letters_at() + static_cast<std::uint64_t>(blocks) * letters_of_block();
    }
    constexpr std::uint64_t bytes() const { return scratch_at() + static_cast<std::uint64_t>(blocks) * scratch_bytes; }
};

/// A rank's view of its group: where every rank's workspace is, as mapped here.
struct team {
    std::int32_t rank = 0;
    layout sizes;
    std::byte* const* workspaces = nullptr;  ///< [ranks]
    const std::uint64_t* regions = nullptr;  ///< [ranks * region_count]: where exported memory begins, as mapped here
    std::uint32_t region_count = 1;          ///< region 0 begins at 0: addresses that are the same everywhere
    report* status = nullptr;
    std::uint64_t patience = 0;  ///< nanoseconds
};

COLLS_DEVICE inline std::uint32_t* poison_of(const team& t, int rank) {
    return reinterpret_cast<std::uint32_t*>(t.workspaces[rank]);
}
COLLS_DEVICE inline channel& channel_of(const team& t, int rank, int block) {
    return reinterpret_cast<channel*>(t.workspaces[rank] + layout::channels_at)[block];
}
/// The eager path at `to` for what `from` sends, in turn 0 or 1.
COLLS_DEVICE inline std::uint64_t* eager_slot_of(const team& t, int to, int block, int from, unsigned turn) {
    const layout& l = t.sizes;
    return reinterpret_cast<std::uint64_t*>(
        t.workspaces[to] + l.letters_at() + static_cast<std::uint64_t>(block) * l.letters_of_block() +
        (std::uint64_t{turn} * static_cast<std::uint64_t>(l.ranks) + static_cast<std::uint64_t>(from)) * l.box_bytes());
}
COLLS_DEVICE inline std::byte* scratch_of_block(const team& t, int rank, int block) {
    return t.workspaces[rank] + t.sizes.scratch_at() + static_cast<std::uint64_t>(block) * t.sizes.scratch_bytes;
}
COLLS_DEVICE inline std::byte* resolved(const team& t, int rank, const reachable& m) {
    if (m.region >= t.region_count) return nullptr;
    return reinterpret_cast<std::byte*>(t.regions[static_cast<std::uint32_t>(rank) * t.region_count + m.region] + m.at);
}

/// A call on one rank.
struct call {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    reachable in_where, out_where;
    std::uint64_t count = 0;                 ///< elements of the whole layout: all user blocks
    const std::uint64_t* offsets = nullptr;  ///< blocks + 1 entries, where blocks are not balanced
    std::uint64_t fingerprint = 0;
    std::int32_t root = 0;
    std::int32_t blocks = 1;  ///< channels in use: the slices that every user block is cut in
    std::int32_t chunks = 1;
    std::uint64_t chunk = 0;  ///< elements of a slot in a chunk; a multiple of `quantum`
    // The schedule's map.
    const slot_info* slots = nullptr;
    const std::uint8_t* overwrites = nullptr;
    std::int32_t width = 0, user_blocks = 1;
};

/// A call of one block has the whole for itself, whatever its channel.
constexpr std::uint64_t slice_of(const call& c, int block) {
    return c.blocks == 1 ? 0 : static_cast<std::uint64_t>(block);
}

/// Slices and chunks are cut at multiples of so many elements, which keeps their alignment.
inline constexpr std::uint64_t quantum = 16;

struct extent {
    std::uint64_t first = 0, count = 0;
};
/// Part i of `parts` of a range: sizes differ by at most one, the longer ones first.
COLLS_CALLED constexpr extent balanced(std::uint64_t count, std::uint64_t parts, std::uint64_t i) {
    if (parts == 1) return {0, count};  // divisions take long
    const std::uint64_t q = count / parts, r = count % parts;
    return {i * q + (i < r ? i : r), q + (i < r ? 1 : 0)};
}
/// The elements of a range of `count` that slice `i` of `slices` has in chunk `c` of `chunk` elements.
constexpr extent cut(std::uint64_t count, std::uint64_t slices, std::uint64_t i, std::uint64_t chunk, std::uint64_t c) {
    const extent mine = balanced((count + quantum - 1) / quantum, slices, i);
    const std::uint64_t from = mine.first * quantum + c * chunk, all = (mine.first + mine.count) * quantum;
    const std::uint64_t end = all < count ? all : count, stop = from + chunk < end ? from + chunk : end;
    return {from, from < stop ? stop - from : 0};
}
/// Part `part` of `parts` of user block `block`, of all.
COLLS_DEVICE_CALLED constexpr extent unit_of(
    std::uint64_t count, const std::uint64_t* offsets, int blocks, int block, int part, int parts) {
    const extent whole = offsets != nullptr
                             ? extent{offsets[block], offsets[block + 1] - offsets[block]}
                             : balanced(count, static_cast<std::uint64_t>(blocks), static_cast<std::uint64_t>(block));
    if (parts == 1) return whole;
    const extent some = balanced(whole.count, static_cast<std::uint64_t>(parts), static_cast<std::uint64_t>(part));
    return {whole.first + some.first, some.count};
}
constexpr std::uint64_t chunks_needed(std::uint64_t longest, std::uint64_t slices, std::uint64_t chunk) {
    const std::uint64_t slice = ((longest + quantum - 1) / quantum + slices - 1) / slices * quantum;
    return slice == 0 ? 1 : (slice + chunk - 1) / chunk;
}
/// Bytes of a slot of scratch memory: a chunk, and room to begin at the same phase as its data does.
constexpr std::uint64_t slot_bytes(std::uint64_t chunk, std::uint64_t element) {
    return ((chunk + quantum) * element + 127) / 128 * 128;
}

}  // namespace colls::inline v1::cuda::detail
