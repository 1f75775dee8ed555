// What the ranks of a group share: flags, slots of the eager path, and the report of a failure. It is a layout over one
// block of zeroed memory, so that threads and processes use the same code.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/support/list.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace colls::inline v1::detail {

inline constexpr int window = 32;                    ///< operations of one group that may be in flight
inline constexpr int eager_slots = 4;                ///< slots of the eager path for each rank
inline constexpr std::size_t eager_inline = 56;      ///< bytes that travel in the flag's own cache line
inline constexpr std::size_t eager_capacity = 8192;  ///< bytes behind one flag
inline constexpr std::size_t eager_unsized = 2048;   ///< of threads that do not all know how many: pulls are fast there

// Two lines each: the hardware prefetches lines in pairs, and a neighbour's flag must not come along.
inline constexpr std::size_t line = 128;

/// One rank's part in one operation: how far it is, and where its buffers are: one cache line, for it travels at every
/// entry. The fields behind `progress` are written before the entry is published (release) and constant until the
/// operation is over. Addresses are published relative to the memory that the ranks share: see shared_access.
struct alignas(line) operation_line {
    std::atomic<std::uint64_t> progress;  // (sequence + 1) << 24 | value
    std::uint64_t fingerprint;
    std::uintptr_t in;
    std::uintptr_t out;
    std::uintptr_t scratch;
    std::uintptr_t in_offsets;  // v-variants: units + 1 entries, in elements
    std::uintptr_t out_offsets;
    std::size_t count;  // elements of the whole, or of the rank's own block where each knows its own
};
/// As `in` or `out`, the two highest bits of an address that follows untranslated: memory of the rank's process alone.
/// (Addresses that are published have others: 0 within the shared memory, 3 for null.)
inline constexpr std::uintptr_t out_of_reach = std::uintptr_t{1} << 62;
constexpr bool is_out_of_reach(std::uintptr_t told) { return told >> 62 == 1; }
static_assert(offsetof(operation_line, count) + sizeof(std::size_t) == 64);

struct alignas(line) eager_line {
    std::atomic<std::uint64_t> flag;  // low 32 bits of the sequence << 32 | fingerprint
    std::byte data[eager_inline];
};

struct alignas(line) rank_state {
    std::atomic<std::uint64_t> completed;   ///< every operation below this number is over for the rank
    std::atomic<std::uint64_t> eager_sent;  ///< likewise of the eager path
    std::atomic<std::uint32_t> active;      ///< it may be touching others' memory
    std::atomic<std::uint32_t> gone;        ///< it has left the group for good
    std::atomic<std::uint64_t> board_call;  ///< where it has waited for long: the call's number + 1 ...
    std::atomic<std::uint64_t> board_fingerprint;
    std::atomic<std::uint64_t> board_at;  ///< ... and when it last said so, in milliseconds
    std::atomic<std::uint64_t> waits;     ///< a long wait that it is in now, as long_wait says; 0: none
    std::atomic<std::uint32_t> arrived;   ///< processes: how far it is in forming the group
    std::atomic<std::uint32_t> shrinks;   ///< how far it is in shrinking the group: see shrink_stage
    std::atomic<std::int64_t> process;    ///< its process
    std::atomic<std::uint64_t> away;  ///< it shrinks the group of this number, and comes to no call of this one; 0: no
};

/// 0: the rank takes no part in a shrink of the group.
enum shrink_stage : std::uint32_t {
    begun = 1,
    quiet,      ///< it knows the decision, and no thread of it makes calls until the end
    withdrawn,  ///< its memory is where the new group's ranks are to see it
    over        ///< it is a member of the new group
};

/// Point to point: one per ordered pair of ranks.
struct alignas(line) pair_line {
    std::atomic<std::uint64_t> posted;  ///< pieces offered by the sender; a message is of one piece or more
    std::atomic<std::uint64_t> taken;   ///< pieces copied by the receiver
    std::uintptr_t data[2];             ///< of an even and an odd piece
    std::size_t piece;                  ///< bytes of each but the last; constant over a message, as the following
    std::size_t bytes;                  ///< of the message
    std::uint64_t type;
};

/// The report of the rank that failed first. Every wait reads it.
struct alignas(line) poison_state {
    std::atomic<std::uint32_t> state;  // 0: the group is whole, 1: the report is being written, 2: the group is broken
    int code, rank, peer, round;
    char text[400];
};

/// A text that one rank may write while others read it. What they read may be a mixture of two texts: a number beside
/// it tells.
template <std::size_t words>
struct shared_text {
    static constexpr std::size_t most = 8 * words;
    void store(const char* from) {
        for (auto& to : words_) {
            char word[8] = {};
            for (std::size_t i = 0; i < 8 && *from; ++i) word[i] = *from++;
            to.store(__builtin_bit_cast(std::uint64_t, word), std::memory_order_relaxed);
        }
    }
    void load(char (&to)[most + 1]) const {
        for (std::size_t i = 0; i < words; ++i) {
            const std::uint64_t word = words_[i].load(std::memory_order_relaxed);
            __builtin_memcpy(to + 8 * i, &word, 8);
        }
        to[most] = '\0';
    }

private:
    std::atomic<std::uint64_t> words_[words];
};

/// One of a rank's latest calls, as the rank publishes it: see told_calls.hpp.
struct told_call {
    static constexpr std::uint64_t kept = 16;
    std::atomic<std::uint64_t> number;  ///< + 1; 0: none, or it is being written
    std::atomic<std::uint64_t> fingerprint;
    shared_text<22> text;
};
/// A call that a rank has refused, for an error on its own side.
struct alignas(line) refusal_state {
    std::atomic<std::uint64_t> call;  ///< as refused_calls names it; 0: none, or the rank has made a call by now
    shared_text<30> text;
};

/// Whether the ranks' cores are near each other, as rank 0 decides: see execute/distance.hpp.
struct alignas(line) distance_state {
    struct alignas(line) word {
        std::atomic<std::uint64_t> value;
    };
    std::atomic<std::uint64_t> decisions[2];
    word there, back;  ///< a line that goes from rank 0 to another rank, and one that comes back
};
/// Where other ranks sleep until this one has published something: see sleeper.hpp. In its cache, since it alone looks
/// at it again and again.
struct alignas(line) bell_line {
    std::atomic<std::uint32_t> rings;     ///< so often this rank has woken them
    std::atomic<std::uint32_t> sleepers;  ///< ranks that sleep, or are about to
    std::atomic<std::uint32_t> is_open;   ///< 1: they may
};
/// How a group agrees on the members that remain in a shrink: the first proposal named here stands.
struct alignas(line) decision_state {
    std::atomic<std::uint32_t> decided;  ///< 1 + the number of the rank whose proposal stands
};
/// Followed by a byte for each rank: is it a member?
struct proposal_head {
    std::uint64_t place;  ///< where the new group's memory is
};

class group_memory {
public:
    group_memory() = default;
    /// Over `bytes(n)` zeroed bytes, aligned to `line`.
    group_memory(std::byte* at, int n) : base_(at), n_(static_cast<std::size_t>(n)) {
        const std::size_t counts[parts] = {1, n_, window * n_, eager_slots * n_, eager_slots * n_, n_ * n_, 1, n_, n_,
            n_ * told_call::kept, 1, n_, n_};
        for (int i = 0; i < parts; ++i)
            offset_[i + 1] =
                (offset_[i] + counts[i] * (i == 7 ? proposal_bytes() : strides[i]) + line - 1) / line * line;
    }

    static std::size_t bytes(int n) { return group_memory(nullptr, n).offset_[parts]; }
    std::byte* base() const { return base_; }
    int size() const { return static_cast<int>(n_); }

    poison_state& poison() const { return reinterpret_cast<poison_state&>(*at(0, 0, 0)); }
    rank_state& state(int rank) const { return reinterpret_cast<rank_state&>(*at(1, 0, rank)); }
    operation_line& operation(std::uint64_t slot, int rank) const {
        return reinterpret_cast<operation_line&>(*at(2, slot, rank));
    }
    eager_line& eager(std::uint64_t slot, int rank) const { return reinterpret_cast<eager_line&>(*at(3, slot, rank)); }
    std::byte* eager_data(std::uint64_t slot, int rank) const { return at(4, slot, rank); }
    pair_line& pair(int from, int to) const {
        return reinterpret_cast<pair_line&>(*at(5, static_cast<std::uint64_t>(from), to));
    }
    decision_state& decision() const { return reinterpret_cast<decision_state&>(*at(6, 0, 0)); }
    proposal_head& proposal(int rank) const {
        return *reinterpret_cast<proposal_head*>(
            base_ + offset_[7] + static_cast<std::size_t>(rank) * proposal_bytes());
    }
    refusal_state& refusal(int rank) const { return reinterpret_cast<refusal_state&>(*at(8, 0, rank)); }
    told_call& told(int rank, std::uint64_t number) const {
        return reinterpret_cast<told_call&>(*at(9, number % told_call::kept, rank));
    }
    distance_state& distance() const { return reinterpret_cast<distance_state&>(*at(10, 0, 0)); }
    /// The core that a rank was on when it last waited for long, + 1; 0: it has not said. A rank writes it only when it
    /// changes, and reads those of all ranks in a few cache lines, which stay in its cache.
    std::atomic<std::uint16_t>& core(int rank) const {
        return reinterpret_cast<std::atomic<std::uint16_t>&>(*at(11, 0, rank));
    }
    bell_line& bell(int rank) const { return reinterpret_cast<bell_line&>(*at(12, 0, rank)); }
    unsigned char* members(int rank) const { return reinterpret_cast<unsigned char*>(&proposal(rank) + 1); }

private:
    static constexpr int parts = 13;
    static constexpr std::size_t strides[parts] = {sizeof(poison_state), sizeof(rank_state), sizeof(operation_line),
        sizeof(eager_line), eager_capacity, sizeof(pair_line), sizeof(decision_state), 0, sizeof(refusal_state),
        sizeof(told_call), sizeof(distance_state), sizeof(std::atomic<std::uint16_t>), sizeof(bell_line)};
    std::size_t proposal_bytes() const { return (sizeof(proposal_head) + n_ + line - 1) / line * line; }
    /// A part has rows, with an element for each rank.
    std::byte* at(int part, std::uint64_t row, int rank) const {
        const std::size_t i = row * n_ + static_cast<std::size_t>(rank);
        if (checks_indices && offset_[part] + (i + 1) * strides[part] > offset_[part + 1]) __builtin_trap();
        return base_ + offset_[part] + i * strides[part];
    }

    std::byte* base_ = nullptr;
    std::size_t n_ = 0;
    std::size_t offset_[parts + 1] = {};  ///< where each part begins: kept, since a call looks up ten places
};

}  // namespace colls::inline v1::detail
