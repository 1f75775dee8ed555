// What the machine keeps of a running block: its fibers, its memory, and what each thread waits for. Private to
// machine.cpp, warps.cpp, accesses.cpp.
#pragma once

#include "host_stores.hpp"
#include "machine.hpp"

#include <array>
#include <deque>
#include <string>
#include <unordered_map>

namespace emulated {

struct grid;

struct fiber {
    enum class state { ready, waiting, done };
    void* stack_pointer = nullptr;
    thread_context context;
    state now = state::done;
    bool waits_for_others = false;  ///< at its last yield
    u32 line = 0;                   ///< where it waits
    u32 result = 0, second = 0;     ///< of the barrier or the warp's exchange it waits in
    struct poll {
        u64 address = 0, value = 0;
    };
    std::array<poll, 4> polls;  ///< its last strong loads
    unsigned next_poll = 0;
    struct copy {
        u64 to, from;
        u32 bytes, from_bytes, line, group;
    };
    std::vector<copy> copies;  ///< cp.async, not yet made
    u32 group = 0;
};

struct barrier_state {
    u32 expected = 0;  ///< 0: all threads that live
    u32 arrived = 0;
    std::vector<u32> waiting;
    std::vector<u32> came;
    u32 count = 0;  ///< of true predicates
    reduction how = reduction::none;
};

enum class exchange { barrier, shuffle, vote, match, reduce, elect };

/// Lanes of a warp that meet.
struct meeting {
    exchange what = exchange::barrier;
    u32 mode = 0, mask = 0, arrived = 0;
    std::array<u64, 32> value{};
    std::array<u32, 32> b{}, c{};
    u32 (*f)(u32, u32) = nullptr;
};

struct warp {
    u32 live = 0;
    std::vector<meeting> meetings;
};

struct block_context {
    u32 slot = 0;
    int device = 0;
    grid* of = nullptr;
    const kernel* running = nullptr;
    unsigned char** arguments = nullptr;
    u64 number = 0, grid_number = 0;
    unsigned char* workspace = nullptr;  ///< of the grid

    std::vector<fiber> fibers;
    u32 threads = 0, live = 0;
    std::vector<u32> ready;
    unsigned char* stacks = nullptr;
    u32 stacks_for = 0;

    unsigned char* shared = nullptr;  ///< where shared_window is
    u64 shared_bytes = 0, shared_room = 0;
    cell* shared_cells = nullptr;

    host_stores to_host;

    u32 turns_to_hold = 0;  ///< until it stands still; 0: it does not
    u64 held_until = 0;     ///< time of the host; 0: it does not stand still

    std::array<barrier_state, 16> barriers;
    std::vector<warp> warps;

    // Order: ordering.hpp
    u32 clock = 1;                       ///< the latest of a thread, and later than the last barrier
    std::shared_ptr<view> seen;          ///< by all threads since the last barrier of all
    std::shared_ptr<const view> before;  ///< the grid
    std::vector<u32> ahead;              ///< threads with a view of their own
    u32 last_barrier = 0;                ///< the clock
    u32 fenced_since[3] = {};            ///< threads that have made a fence of at least this scope since
    fence_order all_fenced[3];           ///< at the last barrier that all threads came to after such a fence
    std::array<u64, 4096>
        newest{};  ///< by hash of address: the last write this block has read there, so that no older one is read later
    struct run {
        u32 since;  ///< the clock
        const kernel* of;
        u64 number;
    };
    std::deque<run> runs;  ///< the last blocks in this slot

    bool has_room_for(u32 threads_needed) const { return stacks_for >= threads_needed; }
};

/// What a strong write lets a load that takes its value see.
struct release {
    u32 slot = 0;
    std::shared_ptr<const view> seen[3];  ///< by the scope that writer and reader have in common; null: nothing
};
using release_chain = std::shared_ptr<const std::vector<release>>;  ///< of the write, and of those that it has updated

/// The last strong writes to an address.
struct message {
    struct write {
        u128 value = 0;
        u64 number = 0;  ///< counts strong writes; 0: what was there before the first one
        u32 slot = 0, thread = 0, clock = 0;
        release_chain released;
        bool is_seen = false;  ///< by another block: a store that is made later comes later
    };
    std::array<write, 4> last;  ///< the newest first
    u32 known = 0, bytes = 0;

    void add(write w) {
        std::move_backward(last.begin(), last.end() - 1, last.end());
        last[0] = std::move(w);
        known = std::min(known + 1, static_cast<u32>(last.size()));
    }
};

struct machine_state {
    std::vector<block_context*> slots;  ///< all blocks that ever were; a slot is used again
    block_context* here = nullptr;      ///< the block that runs
    u32 current = 0;                    ///< and the fiber
    void* scheduler = nullptr;          ///< its stack pointer
    bool weak = true;
    u32 yield_every = 300, until_yield = 300;
    u64 random = 1;  ///< the state of the generator (splitmix64, Steele et al., 2014)
    std::unordered_map<u64, message> messages;
    u64 strong_writes = 0;
    view sequential;                  ///< of sequentially consistent fences of system scope
    std::vector<view> sequential_on;  ///< of each device, and those of its scope
    u64 time = 0;                     ///< nanoseconds: what kernels take for the time
    u64 looks_in_vain = 0;            ///< that threads have made for others since a kernel last wrote to global memory

    /// A random number below n.
    u32 below(u32 n) {
        random += 0x9e3779b97f4a7c15;
        u64 z = (random ^ random >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return static_cast<u32>(((z ^ z >> 31) >> 32) * n >> 32);
    }
};
machine_state& machine();

/// Not a power of two, so that the stacks of a block do not share the same lines of the caches.
inline constexpr u64 stack_bytes = (128 << 10) + 7 * 64;

/// The current fiber will wait at `line`: after this and before pause(), wake() may be called for it.
void will_wait(block_context&, u32 line);
/// Runs other fibers until wake() has been called for this one.
void pause(block_context&);
void wake(block_context&, u32 thread);
/// A thread that others wait for has exited: barriers and meetings of warps that are complete now go on.
void complete_barriers(block_context& b);
void complete_meetings(block_context& b, u32 warp);
[[noreturn]] void fail_at(block_context&, u32 thread, u32 line, const std::string& text);
std::string place(const block_context&, u32 line);
std::string place(const kernel*, u32 line);

/// What `t` has synchronised with, but for the threads of its block that it has met alone.
inline const view& view_of(const thread_context& t) { return t.order.own ? *t.order.own : *t.block->seen; }
inline u32 clock_of(const thread_context& t) { return std::max(t.order.clock, t.block->last_barrier + 1); }
/// The thread's clock, which then advances.
inline u32 advance(thread_context& t) {
    const u32 now = clock_of(t);
    t.order.clock = now + 1;
    t.block->clock = std::max(t.block->clock, now + 1);
    return now;
}
/// `t` learns what `v` says.
void acquire(thread_context& t, const view& v);
/// What a fence lets later stores of the thread release.
std::shared_ptr<const view> with_own(const thread_context& t, fence_order& f);
/// The threads `learn` learn what each of `members` knows.
void join_views(block_context& b, const std::vector<u32>& members, const std::vector<u32>& learn, u32 warps, u32 lanes);

// memory.cpp
const allocation* lookup(u64 address, u32 bytes);
bool may_access(int device, const allocation& a);
std::string describe(u64 address);
std::vector<u64> multicast_copies(u64 address, u32 bytes);

}  // namespace emulated
