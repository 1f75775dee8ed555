// The state of one operation on one rank: a collective that an executor runs, or a message to or from another rank.
// IWYU pragma: private, include <colls/operation.hpp>
#pragma once

#include <colls/detail/execute/chunk_layout.hpp>
#include <colls/detail/execute/store_policy.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/plan/plan_cache.hpp>
#include <colls/detail/reduce/fold.hpp>
#include <colls/detail/request/call.hpp>

#include <memory>
#include <new>

namespace colls::inline v1::detail {

/// One rank's buffers, as this rank reaches them.
struct rank_buffers {
    std::uint64_t stamp = 0;  ///< sequence + 1 of the operation for which they were read
    /// All ranks can load from and store to `in`, `out`. Else they are addresses in the rank's own process.
    bool in_reached = false, out_reached = false;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::byte* scratch = nullptr;
    const std::size_t* in_offsets = nullptr;
    const std::size_t* out_offsets = nullptr;
    std::size_t count = 0;
};

struct message_state;

/// How far a collective that has begun has come on this rank. Transitions, each in one place:
///     direct_executor::begin   -> learning_count, off the root of a gather or scatter
///     direct_executor::enter   -> agreeing, where only others may have buffers out of reach; else -> running
///     direct_executor::agree   agreeing -> running
///     message_executor::begin  -> begun
///     message_executor::enter  begun -> learning_count, where the root tells the count ahead; else -> running
///     message_executor::advance  learning_count -> running
/// The operation is over when operation_state::done is set.
enum class operation_phase : unsigned char { begun, learning_count, agreeing, running };

struct operation_state {
    operation_state() = default;
    operation_state(const operation_state&) = delete;
    ~operation_state();

    operation_kind kind = operation_kind::collective;
    call request;
    /// What `request` points to and its caller may drop: the operator, the tables of offsets.
    std::shared_ptr<const void> keep;
    list<std::size_t> in_offsets, out_offsets;

    const execution_plan* plan = nullptr;
    /// The plan to take where not all buffers are within reach; null: one of the same schedule.
    const execution_plan* staged_plan = nullptr;
    std::string_view schedule, staged_schedule;  ///< the names of the plans' schedules, for texts
    const rank_program* program = nullptr;       ///< this rank's part of the plan
    std::uint64_t sequence = 0;                  ///< number among the operations that expose buffers
    std::uint64_t number = 0;                    ///< number among the calls of the group
    std::uint64_t fingerprint = 0;

    operation_phase phase = operation_phase::begun;
    bool done = true;
    std::size_t chunk_bytes = 0;  ///< of a unit, as `automatic` has chosen
    chunk_layout layout;
    std::size_t chunk = 0;           ///< the current chunk; point to point: pieces that have been moved
    std::size_t at = 0;              ///< the next instruction of the current chunk
    std::size_t exit_at = 0;         ///< the next of the program's exit waits
    std::size_t scratch_chunks = 0;  ///< chunks whose scratch slots are apart; 0: all of them
    /// Which stores bypass the caches: pushes, this rank's own result, copies into scratch memory.
    bool adapts = false;          ///< how it copies depends on the distance of the ranks' cores
    bool tells_distance = false;  ///< takes a sample of it
    bool near = false;            ///< the ranks' cores are near each other (distance.hpp)
    bool stream_pushes = false, stream_own = false, stream_staged = false;
    /// A bounce buffer of the output, which other ranks reach: copied to the output at the end. Null: none is needed.
    std::byte* bounce_output = nullptr;
    memory_piece scratch{};
    list<rank_buffers> buffers;  ///< of each rank
    list<operand> operands;      ///< of the fold that is being done

    wait_site site;
    backoff asked;  ///< for `test`, which asks again and again instead of waiting
    /// The message executor's state, and how to delete it; null where ranks share memory.
    message_state* messaging = nullptr;
    void (*drop_messaging)(message_state*) = nullptr;
    prepared* of = nullptr;  ///< the persistent call that it belongs to, or null
    std::size_t moved = 0;   ///< bytes that the last copy or fold has made, for the trace
    double traced_from = 0;  ///< when it began, where calls are traced; else 0
};
inline operation_state::~operation_state() {
    if (messaging) drop_messaging(messaging);
}

/// Gives the operation's scratch memory back to the rank context.
inline void give_scratch(rank_context& e, operation_state& o) {
    if (o.scratch.at) e.pieces.push_back(o.scratch);
    o.scratch = {};
}
/// Memory of `bytes` bytes or more, which other ranks can reach. Throws std::bad_alloc.
inline memory_piece take_piece(rank_context& e, std::size_t bytes) {
    auto& pool = e.pieces;
    for (std::size_t i = 0; i < pool.size() && bytes > 0; ++i)
        if (pool[i].bytes >= bytes) {
            const memory_piece piece = pool[i];
            pool.drop(i);
            return piece;
        }
    return bytes > 0 ? memory_piece{e.backend->take(bytes), bytes} : memory_piece{};
}
/// Gives the operation such memory.
inline std::byte* take_scratch(rank_context& e, operation_state& o, std::size_t bytes) {
    give_scratch(e, o);  // an operation that failed may have kept its own
    o.scratch = take_piece(e, bytes);
    return o.scratch.at;
}
/// The same for what the operation stages: each time another part of a larger piece. A line that this rank writes again
/// while a peer's cache still has it is as slow as one that comes from there. Its pages are asked for at once, since
/// the first calls would fault on every one of them. Where there is no room for that much, the operation has no more
/// than it needs.
inline std::byte* take_staging(rank_context& e, operation_state& o, std::size_t bytes) {
    try {
        take_scratch(e, o, bytes < store_policy::staging_ring ? store_policy::staging_ring : bytes);
    } catch (const std::bad_alloc&) {
        e.staging_at = 0;
        return take_scratch(e, o, bytes);
    }
    if (!o.scratch.populated) e.backend->populate(o.scratch.at, o.scratch.bytes);
    o.scratch.populated = true;
    if (e.staging_at + bytes > o.scratch.bytes) e.staging_at = 0;
    std::byte* const at = o.scratch.at + e.staging_at;
    e.staging_at += padded(bytes);
    return at;
}

/// Deletes an operation that is not in use. One that failed may have kept its scratch memory.
inline void drop_operation(rank_context& e, operation_state* o) {
    if (o->scratch.at) e.backend->give(o->scratch.at, o->scratch.bytes);
    delete o;
}

#ifndef COLLS_SEPARATE
COLLS_INLINE rank_context::~rank_context() {
    if (latest && *latest == this) {
        *latest = next == this ? nullptr : next;
        if (next != this) next->latest = latest;
    }
    previous->next = next;
    next->previous = previous;
    for (const memory_piece& piece : pieces) backend->give(piece.at, piece.bytes);
    for (operation_state* o : idle) drop_operation(*this, o);
}
#endif

}  // namespace colls::inline v1::detail
