// Grids, blocks and fibers: what runs when, and barriers.
#include "machine.hpp"

#include "block.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>

namespace emulated {

// ---- the kernels of the program

namespace {
std::map<std::string, kernel, std::less<>>& kernels() {
    static auto& all = *new std::map<std::string, kernel, std::less<>>;
    return all;
}
}  // namespace

void add_kernel(const kernel& k) { kernels().emplace(k.name, k); }
const kernel* find_kernel(std::string_view name) {
    const auto i = kernels().find(name);
    return i == kernels().end() ? nullptr : &i->second;
}

machine_state& machine() {
    static machine_state& m = *[] {
        const auto number = [](const char* name, u64 otherwise) {
            const char* text = std::getenv(name);
            return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
        };
        auto* made = new machine_state;
        made->weak = number("EMULATED_WEAK", 1) != 0;
        made->yield_every = static_cast<u32>(number("EMULATED_YIELD", 300));
        made->until_yield = made->yield_every;
        made->random = number("EMULATED_SEED", 1);
        made->time = static_cast<u64>(std::time(nullptr)) * 1000000000;
        return made;
    }();
    return m;
}

// ---- messages

std::string place(const kernel* k, u32 line) {
    std::string text = "line " + std::to_string(line) + " of its PTX";
    const module* m = k ? k->from : nullptr;
    if (!m || m->lines.empty()) return text;
    const auto next = std::upper_bound(
        m->lines.begin(), m->lines.end(), line, [](u32 l, const module::line& begin) { return l < begin.ptx; });
    if (next == m->lines.begin()) return text;
    return text + " (" + std::prev(next)->file + ":" + std::to_string(std::prev(next)->source) + ")";
}
std::string place(const block_context& b, u32 line) { return place(b.running, line); }
void fail_at(block_context& b, u32 thread, u32 line, const std::string& text) {
    std::fprintf(stderr, "emulated: kernel %s (device %d), block %lu, thread %u, %s: %s\n", b.running->name, b.device,
        static_cast<unsigned long>(b.number), thread, place(b, line).c_str(), text.c_str());
    std::fflush(nullptr);
    _exit(70);
}
void thread_context::fail(u32 line, const char* text, ...) {
    char full[1000];
    va_list more;
    va_start(more, text);
    std::vsnprintf(full, sizeof full, text, more);
    va_end(more);
    fail_at(*block, index, line, full);
}

// ---- fibers

extern "C" void emulated_switch(void** from, void* to);
asm(R"(.text
.globl emulated_switch
.type emulated_switch, @function
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulated_switch, . - emulated_switch
)");

namespace {

constexpr u64 canary = 0x5ac3d1e7f00dbeef;

void to_scheduler(block_context& b) {
    emulated_switch(&b.fibers[machine().current].stack_pointer, machine().scheduler);
}

[[noreturn]] void leave(block_context& b) {
    const u32 me = machine().current;
    fiber& f = b.fibers[me];
    f.now = fiber::state::done;
    --b.live;
    b.warps[me / 32].live &= ~(1u << (me % 32));
    complete_barriers(b);
    complete_meetings(b, me / 32);
    to_scheduler(b);
    std::abort();
}
void begin_thread() {
    block_context& b = *machine().here;
    b.running->run(b.fibers[machine().current].context, b.arguments);
    leave(b);
}

unsigned char* stack_of(block_context& b, u32 thread) { return b.stacks + thread * stack_bytes; }

/// A stack that enters begin_thread.
void* new_stack(block_context& b, u32 thread) {
    unsigned char* bottom = stack_of(b, thread);
    std::memcpy(bottom, &canary, sizeof canary);
    auto** top = reinterpret_cast<void**>(bottom + stack_bytes - 64);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&begin_thread);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    return top;
}

void* map_memory(u64 bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        std::fprintf(stderr, "emulated: no memory for %lu bytes of stacks or shared memory\n",
            static_cast<unsigned long>(bytes));
        _exit(70);
    }
    return p;
}

}  // namespace

void will_wait(block_context& b, u32 line) {
    fiber& f = b.fibers[machine().current];
    f.now = fiber::state::waiting;
    f.line = line;
}
void pause(block_context& b) { to_scheduler(b); }
void wake(block_context& b, u32 thread) {
    fiber& f = b.fibers[thread];
    if (f.now != fiber::state::waiting) return;
    f.now = fiber::state::ready;
    f.waits_for_others = false;
    b.ready.push_back(thread);
}
void thread_context::yield(bool waits) {
    block_context& b = *block;
    fiber& f = b.fibers[index];
    f.waits_for_others = waits;
    if (waits) ++machine().looks_in_vain;
    b.ready.push_back(index);
    to_scheduler(b);
}
void thread_context::exit() { leave(*block); }

namespace {
u64 host_time(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<u64>(now.tv_sec) * 1000000000 + static_cast<u64>(now.tv_nsec);
}
}  // namespace
u64 global_timer(thread_context&) { return machine().time; }

// ---- what the host knows

namespace {
struct known_to_host {
    std::mutex lock;
    order known;
};
known_to_host& the_host() {
    static known_to_host& h = *new known_to_host;
    return h;
}
}  // namespace
order both(const order& a, const order& b) {
    if (!a || !b || a == b) return a ? a : b;
    if (a->covers(*b)) return a;
    auto together = std::make_shared<view>(*a);
    together->join(*b);
    return together;
}
order host_order() {
    const std::lock_guard hold(the_host().lock);
    return the_host().known;
}
void host_learns(const order& what) {
    const std::lock_guard hold(the_host().lock);
    the_host().known = both(the_host().known, what);
}

// ---- grids

struct grid {
    const kernel* of = nullptr;
    unsigned char** arguments = nullptr;
    dim blocks, threads;
    u64 dynamic_shared = 0;
    int device = 0;
    u64 number = 0;
    u32 started = 0;            ///< blocks
    std::vector<u64> to_start;  ///< blocks, in random order
    u64 left = 0;               ///< blocks that have not ended
    block_room* room = nullptr;
    order before;                 ///< what is ordered before it
    std::shared_ptr<view> after;  ///< what is ordered before what comes after it
    std::condition_variable end;
    bool ended = false;
    alignas(256) unsigned char workspace[256] = {};
};

namespace {

/// Time as kernels see it, in nanoseconds: the same for each turn, however long it takes, so that no deadline depends
/// on what else this processor does. Where all threads wait for the host or another process it goes on as on the host,
/// but no further at once than `longest_wait`. A block waits, too, that meets at barriers between its looks.
constexpr u64 time_of_a_turn = 1000, longest_wait = 1'000'000;

/// Blocks of a grid that have slots of their own even if they run one after another.
constexpr u32 most_slots = 16;

struct scheduler {
    std::mutex lock;
    std::condition_variable work;
    std::deque<grid*> incoming;
    std::atomic<bool> has_incoming{false};
    std::vector<block_context*> active, idle;
    std::vector<grid*> starting;  ///< that wait for room for more blocks
    bool started = false;
    u64 no_hold_before = 0;

    block_context& slot_for(const grid& g, u32 threads);
    void start_block(grid& g);
    void accept();
    void start_where_room_is();
    bool run_some(block_context& b);
    bool is_held(block_context& b);
    void end_block(std::size_t at);
    void run();
};
scheduler& the_scheduler() {
    static scheduler& s = *new scheduler;
    return s;
}

/// A context that is ordered before the grid, so that a view needs to know but one clock for a slot. Where a grid has
/// many blocks one after another, they count as ordered.
block_context& scheduler::slot_for(const grid& g, u32 threads) {
    for (std::size_t i = idle.size(); i-- > 0;) {
        block_context& b = *idle[i];
        if (!b.has_room_for(threads) || b.device != g.device) continue;
        const bool is_before =
            g.before->of(b.slot) >= b.clock - 1 || (g.started > most_slots && b.grid_number == g.number);
        if (machine().weak && !is_before) continue;
        idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(i));
        return b;
    }
    auto* b = new block_context;
    b->slot = static_cast<u32>(machine().slots.size());
    if (b->slot > 0xffff) fail_at(*b, 0, 0, "too many grids that nothing orders");
    machine().slots.push_back(b);
    b->stacks_for = (threads + 31) / 32 * 32;
    b->stacks = static_cast<unsigned char*>(map_memory(b->stacks_for * stack_bytes));
    b->fibers.resize(b->stacks_for);
    return *b;
}

void scheduler::start_block(grid& g) {
    const auto threads = static_cast<u32>(g.threads.count());
    block_context& b = slot_for(g, threads);
    b.of = &g;
    b.device = g.device;
    b.running = g.of;
    b.arguments = g.arguments;
    b.workspace = g.workspace;
    b.grid_number = g.number;
    ++g.started;
    b.number = g.to_start.back();
    g.to_start.pop_back();
    b.threads = b.live = threads;
    b.shared_bytes = static_cast<u64>(g.of->shared_bytes + 15) / 16 * 16 + g.dynamic_shared;
    if (b.shared_room < b.shared_bytes) {
        if (b.shared) munmap(b.shared, b.shared_room);
        if (b.shared_cells) munmap(b.shared_cells, b.shared_room / 4 * sizeof(cell));
        b.shared_room = (b.shared_bytes + 4095) / 4096 * 4096;
        b.shared = static_cast<unsigned char*>(map_memory(b.shared_room));
        b.shared_cells = machine().weak ? static_cast<cell*>(map_memory(b.shared_room / 4 * sizeof(cell))) : nullptr;
    }
    if (b.shared_bytes > 0) std::memset(b.shared, 0xcd, b.shared_bytes);
    b.before = g.before;
    b.seen = std::make_shared<view>(*g.before);
    b.runs.push_back({b.clock, g.of, b.number});
    if (b.runs.size() > 64) b.runs.pop_front();
    b.ahead.clear();
    b.last_barrier = b.clock++;
    b.seen->set(b.slot, b.last_barrier);
    for (u32& n : b.fenced_since) n = 0;
    for (fence_order& f : b.all_fenced) f = {};
    for (barrier_state& barrier : b.barriers) barrier = {};
    b.turns_to_hold = machine().weak && machine().below(2) == 0 ? 1 + machine().below(256) : 0;
    b.held_until = 0;
    b.warps.assign((threads + 31) / 32, {});
    b.ready.resize(threads);
    std::iota(b.ready.begin(), b.ready.end(), 0u);
    const u32 block_at[3] = {static_cast<u32>(b.number % g.blocks.x),
        static_cast<u32>(b.number / g.blocks.x % g.blocks.y), static_cast<u32>(b.number / g.blocks.x / g.blocks.y)};
    for (u32 t = 0; t < threads; ++t) {
        fiber& f = b.fibers[t];
        f.context = {};
        thread_context& c = f.context;
        c.index = t;
        c.block = &b;
        c.tid[0] = t % g.threads.x, c.tid[1] = t / g.threads.x % g.threads.y, c.tid[2] = t / g.threads.x / g.threads.y;
        c.ntid[0] = g.threads.x, c.ntid[1] = g.threads.y, c.ntid[2] = g.threads.z;
        c.nctaid[0] = g.blocks.x, c.nctaid[1] = g.blocks.y, c.nctaid[2] = g.blocks.z;
        std::copy(block_at, block_at + 3, c.ctaid);
        f.now = fiber::state::ready;
        f.waits_for_others = false;
        f.copies.clear();
        f.polls = {};
        f.stack_pointer = new_stack(b, t);
        b.warps[t / 32].live |= 1u << (t % 32);
    }
    active.push_back(&b);
}

void scheduler::accept() {
    const std::lock_guard hold(lock);
    has_incoming.store(false, std::memory_order_relaxed);
    while (!incoming.empty()) {
        grid& g = *incoming.front();
        incoming.pop_front();
        if (g.room) starting.push_back(&g);
        while (!g.room && !g.to_start.empty()) start_block(g);
    }
}

void scheduler::start_where_room_is() {
    for (grid* g : starting)
        while (!g->to_start.empty() && g->room->take()) start_block(*g);
    std::erase_if(starting, [](const grid* g) { return g->to_start.empty(); });
}

/// Runs some fibers of a block; whether one has done anything but to wait for others. Which ones is random, but
/// neighbours run one after another, as they access memory side by side.
bool scheduler::run_some(block_context& b) {
    machine_state& m = machine();
    std::array<u32, 32> batch;
    const u32 size = std::min<u32>(1 + m.below(batch.size()), static_cast<u32>(b.ready.size()));
    const u32 first = m.below(static_cast<u32>(b.ready.size()) - size + 1);
    std::copy_n(b.ready.begin() + first, size, batch.begin());
    b.ready.erase(b.ready.begin() + first, b.ready.begin() + first + size);
    if (m.below(2) == 0) std::reverse(batch.begin(), batch.begin() + size);
    m.here = &b;
    bool progress = false;
    // The fibers of all blocks are more than the caches hold.
    for (u32 i = 0; i < size; ++i) __builtin_prefetch(b.fibers[batch[i]].stack_pointer);
    for (u32 i = 0; i < size; ++i) {
        m.current = batch[i];
        fiber& f = b.fibers[m.current];
        f.waits_for_others = false;
        emulated_switch(&m.scheduler, f.stack_pointer);
        // Not always, since the bottom of a stack is seldom in a cache.
        if ((f.now == fiber::state::done || m.below(16) == 0) &&
            std::memcmp(stack_of(b, m.current), &canary, sizeof canary) != 0)
            fail_at(b, m.current, f.line, "the simulated thread's stack has overflowed");
        if (f.waits_for_others) {
            b.ready.insert(b.ready.end(), batch.begin() + i + 1, batch.begin() + size);
            break;
        }
        progress = true;
    }
    return progress;
}

void scheduler::end_block(std::size_t at) {
    block_context& b = *active[at];
    grid& g = *b.of;
    active[at] = active.back();
    active.pop_back();
    if (machine().weak) {
        g.after->join(*b.seen);
        for (const u32 t : b.ahead) g.after->join(*b.fibers[t].context.order.own);
        g.after->set(b.slot, b.clock++);
    }
    b.to_host.arrive();
    idle.push_back(&b);
    if (g.room) g.room->give();
    if (--g.left > 0) return;
    const std::lock_guard hold(lock);
    g.ended = true;
    g.end.notify_all();
}

/// Now and then a block stands still for a while, so that those of other ranks get ahead as far as nothing holds them:
/// also into the next calls, whose kernels the host has to start.
bool scheduler::is_held(block_context& b) {
    if (b.turns_to_hold > 0 && --b.turns_to_hold == 0) {
        const u64 now = host_time(CLOCK_MONOTONIC);
        if (now < no_hold_before) return false;
        b.held_until = now + longest_wait;
        no_hold_before = b.held_until + 10 * longest_wait;
    }
    if (b.held_until == 0) return false;
    if (host_time(CLOCK_MONOTONIC) < b.held_until) return true;
    b.held_until = 0;
    return false;
}

void scheduler::run() {
    u64 in_vain = 0;  // runs of fibers in a row that only waited
    u64 since = 0;    // the time of the host when the last run ended in which all waited; 0: not all wait
    for (;;) {
        if (active.empty() && starting.empty()) {
            std::unique_lock hold(lock);
            work.wait(hold, [&] { return !incoming.empty(); });
        }
        if (has_incoming.load(std::memory_order_acquire) || active.empty()) accept();
        start_where_room_is();
        if (active.empty()) {
            usleep(50);
            continue;
        }
        const std::size_t at = machine().below(static_cast<u32>(active.size()));
        block_context& b = *active[at];
        in_vain = !is_held(b) && run_some(b) ? 0 : in_vain + 1;
        if (b.live == 0) {
            end_block(at);
        } else if (b.ready.empty()) {
            u32 t = 0;
            while (b.fibers[t].now != fiber::state::waiting) ++t;
            u32 waiting = 0;
            for (u32 i = 0; i < b.threads; ++i) waiting += b.fibers[i].now == fiber::state::waiting;
            fail_at(b, t, b.fibers[t].line,
                "deadlock: " + std::to_string(waiting) +
                    " threads of the block wait at barriers or in warps for threads that do not come");
        }
        // Other processes, or the host, have to do something.
        const u64 many = 64 + 64 * active.size();
        if (in_vain > many)
            in_vain < 4096 + 128 * active.size() ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(50));
        const u64 now = in_vain > many || machine().looks_in_vain > many ? host_time(CLOCK_MONOTONIC) : 0;
        machine().time += now != 0 && since != 0 ? std::min(now - since, longest_wait) : time_of_a_turn;
        since = now;
    }
}

}  // namespace

order run_grid(const kernel& k, unsigned char** arguments, dim blocks, dim threads, std::size_t dynamic_shared,
    int device, const order& before, block_room* room) {
    grid g;
    g.of = &k;
    g.arguments = arguments;
    g.blocks = blocks;
    g.threads = threads;
    g.dynamic_shared = dynamic_shared;
    g.device = device;
    g.before = before ? before : std::make_shared<const view>();
    g.after = std::make_shared<view>(*g.before);
    if (blocks.count() == 0 || threads.count() == 0) return g.after;
    scheduler& s = the_scheduler();
    add_allocation(g.workspace, sizeof g.workspace, device, memory_kind::device);
    std::unique_lock hold(s.lock);
    g.to_start.resize(blocks.count());
    std::iota(g.to_start.begin(), g.to_start.end(), u64{0});
    static std::mt19937_64 order(machine().random);
    std::shuffle(g.to_start.begin(), g.to_start.end(), order);
    g.left = blocks.count();
    g.room = room;
    if (!s.started) {
        std::thread([&s] { s.run(); }).detach();
        s.started = true;
    }
    static u64 grids = 0;
    g.number = ++grids;
    s.incoming.push_back(&g);
    s.has_incoming.store(true, std::memory_order_release);
    s.work.notify_all();
    g.end.wait(hold, [&] { return g.ended; });
    hold.unlock();
    remove_allocation(g.workspace);
    return g.after;
}

// ---- barriers

namespace {

void all_have_met(block_context& b) {
    for (int s = 0; s < 3; ++s) {
        if (b.fenced_since[s] >= b.live) {
            auto all = std::make_shared<view>();
            const view* last = nullptr;
            for (u32 t = 0; t < b.threads; ++t) {
                if (b.fibers[t].now == fiber::state::done) continue;
                const fence_order& f = *b.fibers[t].context.order.fenced[s];
                if (f.seen.get() != last) all->join(*f.seen);
                last = f.seen.get();
                all->add(some_threads::one(b.slot, t, f.clock));
            }
            b.all_fenced[s] = {std::move(all), b.clock, true};
        }
        b.fenced_since[s] = 0;
    }
    if (b.seen.use_count() > 1) b.seen = std::make_shared<view>(*b.seen);
    for (const u32 t : b.ahead) {
        std::shared_ptr<view>& own = b.fibers[t].context.order.own;
        b.seen->join(*own);
        own.reset();
    }
    b.ahead.clear();
    b.seen->set(b.slot, b.clock);
    b.last_barrier = b.clock++;
}

void complete(block_context& b, barrier_state& barrier) {
    const u32 result = barrier.how == reduction::count ? barrier.count
                       : barrier.how == reduction::all ? barrier.count == barrier.arrived
                                                       : barrier.count > 0;
    if (barrier.arrived == b.live && barrier.waiting.size() == barrier.arrived) {
        all_have_met(b);
    } else {
        u32 of_warps = 0;
        for (const u32 t : barrier.came) of_warps |= 1u << (t / 32);
        join_views(b, barrier.came, barrier.waiting, of_warps, ~0u);
    }
    std::vector<u32> waiting;
    waiting.swap(barrier.waiting);
    barrier = {};
    for (const u32 t : waiting) {
        b.fibers[t].result = result;
        wake(b, t);
    }
}

}  // namespace

void join_views(
    block_context& b, const std::vector<u32>& members, const std::vector<u32>& learn, u32 warps, u32 lanes) {
    const some_threads now{b.slot, warps, lanes, b.clock};
    view together;
    bool is_more = false;  // than what the block knows, and what the members have done
    for (const u32 t : members) {
        const thread_order& o = b.fibers[t].context.order;
        if (o.own) together.join(*o.own), is_more = true;
        for (const some_threads& p : o.partial)
            if (p.clock > b.last_barrier && (p.warps != now.warps || p.lanes != now.lanes))
                together.add(p), is_more = true;
    }
    for (const u32 t : members) b.fibers[t].context.order.clock = b.clock + 1;
    for (const u32 t : learn) {
        if (is_more) acquire(b.fibers[t].context, together);
        b.fibers[t].context.order.took_part(now);
    }
    ++b.clock;
}

u32 thread_context::barrier(u32 id, u32 count, bool waits, reduction how, bool predicate, u32 line) {
    block_context& b = *block;
    if (id >= b.barriers.size()) fail(line, "barrier %u: a block has barriers 0 to 15", id);
    if (count % 32 != 0) fail(line, "barrier %u: %u threads, not a multiple of the warp's 32", id, count);
    barrier_state& barrier = b.barriers[id];
    if (barrier.arrived == 0) {
        barrier.expected = count;
        barrier.how = how;
    } else if (barrier.expected != count || barrier.how != how) {
        fail(line, "barrier %u: another thread that is at it expects another number of threads, or another reduction",
            id);
    }
    ++barrier.arrived;
    barrier.count += predicate;
    barrier.came.push_back(index);
    if (waits) barrier.waiting.push_back(index);
    const u32 expected = count == 0 ? b.live : count;
    if (waits) will_wait(b, line);
    if (barrier.arrived >= expected) complete(b, barrier);
    if (!waits) return 0;
    pause(b);
    return b.fibers[index].result;
}

void complete_barriers(block_context& b) {
    for (barrier_state& barrier : b.barriers)
        if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived >= b.live) complete(b, barrier);
}

}  // namespace emulated
