// Order between the threads of running grids, as PTX's memory model defines it, and the accesses that have none.
//
// A block counts a clock; it advances at each barrier, fence and release of the block. A thread knows, for each block,
// up to which clock it has synchronised with it (its view): it gains by acquiring what another thread has released, and
// at barriers from the threads that take part. Memory remembers its last accesses, each with block, thread and clock;
// an access that conflicts with one that is not ordered before it is a race, however the run went. An unordered strong
// load (relaxed, volatile) may return the value before the last one, if that was written after the thread's last
// sequentially consistent fence. An unordered strong store may come before the last one, which then stands.
#pragma once

#include "numbers.hpp"

#include <iterator>
#include <memory>
#include <vector>

namespace emulated {

enum class scope : u8 { block, device, system };
enum class semantics : u8 { relaxed, acquire, release, both };

/// For each block, by its slot, the last clock that is ordered before.
class view {
public:
    u32 of(u32 slot) const { return slot < seen_.size() ? seen_[slot] : 0; }
    void set(u32 slot, u32 clock) {
        if (seen_.size() <= slot) seen_.resize(slot + 1);
        seen_[slot] = std::max(seen_[slot], clock);
    }
    /// No more of the slot than this.
    void limit(u32 slot, u32 clock) {
        if (seen_.size() > slot) seen_[slot] = std::min(seen_[slot], clock);
    }
    void join(const view& other) {
        if (seen_.size() < other.seen_.size()) seen_.resize(other.seen_.size());
        for (std::size_t i = 0; i < other.seen_.size(); ++i) seen_[i] = std::max(seen_[i], other.seen_[i]);
    }

private:
    std::vector<u32> seen_;
};

/// Threads of a block that synchronised without the others: of a warp, or of some warps.
struct partial_barrier {
    u32 warps = 0, lanes = 0, clock = 0;
    bool orders(u32 thread, u32 at) const {
        return at <= clock && (warps >> (thread / 32) & 1) != 0 && (lanes >> (thread % 32) & 1) != 0;
    }
};

/// What one thread has synchronised with.
struct thread_order {
    view* now = nullptr;  ///< its block's, or `own` if it has synchronised since the block's last barrier
    std::unique_ptr<view> own;
    partial_barrier partial[4];  ///< the last ones of different threads
    view to_acquire[3];          ///< from relaxed loads, for the next fence of at least this scope
    bool has_to_acquire = false;
    u64 sequential_at = 0;  ///< strong writes before its last sequentially consistent fence: its loads see them
    u32 fenced[3] =
        {};  ///< the block's clock at the last fence of at least each scope: a later relaxed store releases it

    bool knows(u32 thread, u32 clock) const {
        for (const partial_barrier& p : partial)
            if (p.orders(thread, clock)) return true;
        return false;
    }
    void took_part(const partial_barrier& p) {
        for (partial_barrier& old : partial)
            if (old.warps == p.warps && old.lanes == p.lanes) {
                old = p;
                return;
            }
        *std::min_element(std::begin(partial), std::end(partial),
            [](const partial_barrier& a, const partial_barrier& b) { return a.clock < b.clock; }) = p;
    }
};

/// One access, as memory remembers it.
struct access {
    u32 clock = 0;  ///< 0: none
    u16 slot = 0, thread = 0;
    u16 bytes = 0;  ///< which bytes of the cell, a bit each
    bool strong = false;
    scope reach = scope::block;
    u32 line = 0;
};

/// The last accesses to 16 bytes of global memory, or 4 bytes of shared memory.
struct cell {
    access write;
    access read[3];
};

}  // namespace emulated
