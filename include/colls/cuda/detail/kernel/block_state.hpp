// The memory that the threads of a block share during a call.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// It says which rank and call they run, which peers take part in the round, and which passes over memory are next.
#pragma once

#include <colls/cuda/detail/kernel/fold_elements.hpp>
#include <colls/cuda/detail/kernel/partition.hpp>
#include <colls/cuda/detail/kernel/workspace.hpp>

namespace colls::inline v1::cuda::detail {

/// What a port receives in a round.
struct arrival {
    std::int32_t peer = none;
    action act = action::copy;
    block_set from, to;  ///< slots of the peer, and of this rank
};

/// A peer's buffers as this rank reaches them; null: out of reach.
struct peer_buffers {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
};

/// One pass over memory: operands are folded into a destination.
struct memory_pass {
    // What it is prepared from: a slot, which is block number `at` of those that a port carries.
    std::int32_t slot = 0, port = 0, at = 0;
    std::int32_t is_needed = 0;
    std::int32_t folds_own = 0;  ///< this rank's value is an operand
    std::uint64_t skip = 0;      ///< elements of the slot before those of this channel and chunk
    std::byte* to = nullptr;
    std::uint64_t index = 0;     ///< of the first element in its buffer
    std::uint32_t count = 0;     ///< elements
    std::int32_t operands = 1;   ///< 1: a copy; 0: there is nothing to do
    std::int32_t ranks = 0;      ///< of how many ranks the fold is complete; 0: not complete
    std::int32_t is_result = 0;  ///< writes elements of the output type, through the epilogue
};

/// Some of a group's threads, which make a pass while others make another one: without a barrier.
template <class G>
class team : public G {
public:
    COLLS_DEVICE team(const G& g, int index, int size) : G(g), index_(index), size_(size) {}
    COLLS_DEVICE int index() const { return index_; }
    COLLS_DEVICE int size() const { return size_; }

private:
    int index_, size_;
};

/// How threads share passes: teams of `size` threads, pass b by team b modulo `teams`.
struct thread_shares {
    std::int32_t size = 1, teams = 1;
};
/// For passes of up to `longest` elements, of which `at_once` keep a thread busy.
COLLS_DEVICE constexpr thread_shares shared_out(int passes, std::uint32_t longest, int threads, std::uint32_t at_once) {
    if (passes == 1) return {threads, 1};
    // Whole warps, where there are some.
    const int unit = threads > 32 ? 32 : 1, busy = (static_cast<int>(longest / at_once) | (unit - 1)) + 1,
              equal = threads / passes & -unit, size = equal > busy ? equal : busy;
    return 2 * size > threads ? thread_shares{threads, 1} : thread_shares{size, threads / size};
}
/// A batch of passes.
struct pass_batch : thread_shares {
    std::int32_t passes = 0;
    std::int32_t left = 0;  ///< passes of this phase after it
};

/// What the schedule of a call says of this rank, and of its blocks: in shared memory, since a pass needs the
/// registers.
struct schedule_facts {
    std::int32_t shift = 0;  ///< from a role to its rank
    std::int32_t me = 0;     ///< this rank's role
    std::int32_t rounds = 0, ports = 1;
    std::int32_t passes = 1;           ///< that a batch has, at most
    quotient blocks;                   ///< the call's elements, divided by its user blocks
    const slot_info* slots = nullptr;  ///< those of the call, or a copy of them
    std::uint64_t base = 0;            ///< the progress that announces the call's first round
    std::int32_t entry = 0;            ///< of the two entry records, the one of this call
};

/// Passes of a batch, which are prepared at once, at most; and their operands, if each pass has room for one of each
/// port and the own one.
inline constexpr int max_passes = 32, max_operands = 4 * (max_ports + 1);

/// Slots of all roles together, at most, that are copied to shared memory: each acquire of a counter ends what the
/// first-level cache holds of those in global memory.
inline constexpr int max_near_slots = 64;

/// Shared memory of a block. Arrays of two are used alternately, so that a batch is prepared while the last one is
/// read.
struct block_state {
    rank_handle self;
    kernel_call call;
    std::uint64_t offsets[max_ranks + 1];  ///< to which the call may point
    schedule_facts schedule;
    slot_info near_slots[max_near_slots];
    peer_buffers buffers[max_ranks];  ///< by role; on several hosts by place_of
    arrival arrivals[max_ports];
    std::int32_t receivers[2][max_ports];  ///< role that each port sends to, in rounds of one parity
    std::int32_t matches[max_operands];  ///< [pass][port]: position of the pass's slot in what the port receives, or -1
    operand operands[2][max_operands];   ///< [pass][ports + 1]
    memory_pass passes[2][max_passes];
    pass_batch batches[2];
    // Between hosts: slots that each port sends; ranks that it sends to, and receives from.
    block_set departures[max_ports];
    std::int32_t far_to[max_ports], far_from[max_ports];
};

/// Sets the call that the block runs next. By all threads.
template <class G>
COLLS_DEVICE void load_call(G& g, const rank_handle& handle, const kernel_call& call) {
    if (g.index() == 0) {
        g.state().self = handle;
        g.state().call = call;
    }
    g.any(false);
}

}  // namespace colls::inline v1::cuda::detail
