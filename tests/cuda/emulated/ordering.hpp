// Order between the threads of running grids, as PTX's memory model defines it, and the accesses that have none.
//
// A thread counts a clock, which advances at its barriers, fences and releases; a barrier of the whole block sets it to
// the same on all threads. A thread knows, for each block, up to which clock it has synchronised with all its threads,
// and with some of them further (its view): it gains by acquiring what another thread has released, and at barriers
// from the threads that take part. A thread releases what it knows and what it has done itself, and nothing of its
// block's other threads that no barrier has told it. Memory
// remembers its last accesses, each with block, thread and clock; an access that conflicts with one that is not ordered
// before it is a race, however the run went. An unordered strong load (relaxed, volatile) may return one of the values
// before the last one. An unordered strong store may come before the last one, which then stands, unless that one has
// been read.
//
// A grid begins with what its stream knows: the work before it there, that of events it has waited for, and what the
// host had waited for when it launched it. That another grid has ended in fact is no order.
#pragma once

#include "numbers.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace emulated {

enum class scope : u8 { block, device, system };
enum class semantics : u8 { relaxed, acquire, release, both };

/// Threads of a block up to a clock: those with a lane of `lanes` in a warp of `warps`.
struct some_threads {
    u32 slot = 0, warps = 0, lanes = 0, clock = 0;
    bool has(u32 thread) const { return (warps >> (thread / 32) & 1) != 0 && (lanes >> (thread % 32) & 1) != 0; }
    bool says(const some_threads& other) const {
        return slot == other.slot && clock >= other.clock && (other.warps & ~warps) == 0 && (other.lanes & ~lanes) == 0;
    }
    static some_threads one(u32 slot, u32 thread, u32 clock) {
        return {slot, 1u << (thread / 32), 1u << (thread % 32), clock};
    }
};

/// For each block, by its slot, the last clock that is ordered before.
class view {
public:
    /// The last clock of all threads of the block.
    u32 of(u32 slot) const { return slot < all_.size() ? all_[slot] : 0; }
    bool knows(u32 slot, u32 thread, u32 clock) const {
        if (clock <= of(slot)) return true;
        for (std::size_t i = first_of(slot); i < some_.size() && some_[i].slot == slot; ++i)
            if (clock <= some_[i].clock && some_[i].has(thread)) return true;
        return false;
    }
    bool covers(const view& other) const {
        if (this == &other) return true;
        for (u32 slot = 0; slot < other.all_.size(); ++slot)
            if (other.all_[slot] > of(slot)) return false;
        for (const some_threads& s : other.some_)
            if (s.clock > of(s.slot) && !says(s)) return false;
        return true;
    }
    void set(u32 slot, u32 clock) {
        if (all_.size() <= slot) all_.resize(slot + 1);
        all_[slot] = std::max(all_[slot], clock);
    }
    void add(some_threads s) {
        if (s.clock <= of(s.slot) || says(s)) return;
        // Threads that have done the same are mostly neighbours: what can be one entry becomes one.
        for (std::size_t i = first_of(s.slot); i < some_.size() && some_[i].slot == s.slot;) {
            const some_threads& old = some_[i];
            const bool is_one = old.clock == s.clock && (old.warps == s.warps || old.lanes == s.lanes);
            if (!is_one && !s.says(old)) {
                ++i;
                continue;
            }
            if (is_one) s.warps |= old.warps, s.lanes |= old.lanes;
            some_.erase(some_.begin() + static_cast<std::ptrdiff_t>(i));
            if (is_one) i = first_of(s.slot);
        }
        some_.insert(some_.begin() + static_cast<std::ptrdiff_t>(first_of(s.slot + 1)), s);
    }
    void join(const view& other) {
        if (this == &other) return;
        if (all_.size() < other.all_.size()) all_.resize(other.all_.size());
        for (std::size_t i = 0; i < other.all_.size(); ++i) all_[i] = std::max(all_[i], other.all_[i]);
        std::erase_if(some_, [this](const some_threads& s) { return s.clock <= of(s.slot); });
        if (some_.empty()) {
            for (const some_threads& s : other.some_)
                if (s.clock > of(s.slot)) some_.push_back(s);
            return;
        }
        for (const some_threads& s : other.some_) add(s);
    }

private:
    std::size_t first_of(u32 slot) const {
        const auto at = std::lower_bound(
            some_.begin(), some_.end(), slot, [](const some_threads& s, u32 wanted) { return s.slot < wanted; });
        return static_cast<std::size_t>(at - some_.begin());
    }
    bool says(const some_threads& wanted) const {
        for (std::size_t i = first_of(wanted.slot); i < some_.size() && some_[i].slot == wanted.slot; ++i)
            if (some_[i].says(wanted)) return true;
        return false;
    }
    std::vector<u32> all_;
    std::vector<some_threads> some_;  ///< further than `all_` says, by slot
};

/// What was before a fence.
struct fence_order {
    std::shared_ptr<const view> seen;  ///< without the thread's own accesses, until they are asked for
    u32 clock = 0;                     ///< of the thread
    bool has_own = false;
};

/// What one thread has synchronised with.
struct thread_order {
    u32 clock = 0;              ///< unless its block's last barrier was later: clock_of
    std::shared_ptr<view> own;  ///< null: what its block has seen, as it has not synchronised since the last barrier
    some_threads partial[4];    ///< the last ones of the block that it has met without the others
    view to_acquire[3];         ///< from relaxed loads, for the next fence of at least this scope
    std::vector<std::shared_ptr<const view>> more_to_acquire[3];  ///< and these
    bool has_to_acquire = false, may_be_foreign = false;
    std::shared_ptr<fence_order>
        fenced[3];  ///< the last fence of at least each scope: a later relaxed store releases it

    void will_acquire(const std::shared_ptr<const view>& v, int s) {
        has_to_acquire = true;
        auto& more = more_to_acquire[s];
        if (std::find(more.begin(), more.end(), v) != more.end()) return;
        if (more.size() == 8) add_more(s);
        more.push_back(v);
    }
    void add_more(int s) {
        for (const auto& v : more_to_acquire[s]) to_acquire[s].join(*v);
        more_to_acquire[s].clear();
    }
    void took_part(const some_threads& p) {
        for (some_threads& old : partial)
            if (old.warps == p.warps && old.lanes == p.lanes) {
                old = p;
                return;
            }
        *std::min_element(std::begin(partial), std::end(partial),
            [](const some_threads& a, const some_threads& b) { return a.clock < b.clock; }) = p;
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
