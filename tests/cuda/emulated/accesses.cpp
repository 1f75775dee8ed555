// Accesses to memory: their checks, their order, and strong loads that may see an older value (ordering.hpp).
#include "block.hpp"

#include <emmintrin.h>
#include <unistd.h>
#include <cstdarg>
#include <cstdio>

namespace emulated {
namespace {

/// The scope that two threads have in common at least.
scope common_scope(const block_context& a, u32 slot) {
    if (a.slot == slot) return scope::block;
    return a.device == machine().slots[slot]->device ? scope::device : scope::system;
}

bool is_ordered(const thread_context& t, u32 slot, u32 thread, u32 clock) {
    if (view_of(t).knows(slot, thread, clock)) return true;
    if (slot != t.block->slot) return false;
    for (const some_threads& p : t.order.partial)
        if (clock <= p.clock && p.has(thread)) return true;
    return thread == t.index;
}

struct own_access {
    u32 bytes;
    bool writes, strong;
    scope reach;
    u32 line;
    bool read_only = false;  ///< ld.global.nc
};

/// The block that made an access.
const block_context::run& run_at(const access& a) {
    const block_context& b = *machine().slots[a.slot];
    auto run = b.runs.rbegin();
    while (run + 1 != b.runs.rend() && run->since > a.clock) ++run;
    return *run;
}

[[noreturn]] void report_race(
    thread_context& t, const access& other, bool other_writes, const own_access& mine, const char* memory) {
    const block_context& b = *machine().slots[other.slot];
    const block_context::run& run = run_at(other);
    const bool in_block = other.slot == t.block->slot && &run == &b.runs.back();
    char who[200];
    std::snprintf(who, sizeof who,
        in_block ? "thread %u of the block" : "thread %u of block %lu of kernel %s (device %d)", other.thread,
        static_cast<unsigned long>(run.number), run.of->name, b.device);
    t.fail(mine.line, "race in %s memory: this %s%s is not ordered after the %s%s by %s at %s", memory,
        mine.strong ? "strong " : "", mine.writes ? "write" : "read", other.strong ? "strong " : "",
        other_writes ? "write" : "read", who, place(run.of, other.line).c_str());
}

/// Whether the block has had a barrier of all its threads since the access, one of its own.
inline bool is_before_barrier(const block_context& b, const access& a) {
    return a.slot == b.slot && a.clock <= b.last_barrier;
}

/// Whether an access and one that was before it are a race.
inline bool conflict(thread_context& t, const access& other, const own_access& mine) {
    if (other.clock == 0 || (other.bytes & mine.bytes) == 0 || is_before_barrier(*t.block, other)) return false;
    if (is_ordered(t, other.slot, other.thread, other.clock)) return false;
    if (!mine.strong || !other.strong) return true;
    const scope needed = common_scope(*t.block, other.slot);
    return mine.reach < needed || other.reach < needed;
}

/// Which remembered read a new one replaces: one that tells nothing more, or else one by chance.
access& read_to_replace(thread_context& t, cell& c, const access& now) {
    const block_context& b = *t.block;
    for (access& r : c.read)
        if (r.clock == 0 || ((r.bytes & ~now.bytes) == 0 &&
                                ((r.slot == now.slot && r.thread == now.thread) || is_before_barrier(b, r))))
            return r;
    // A later write that is ordered after this read is ordered after those before it too.
    for (access& r : c.read)
        if (r.slot != now.slot && (r.bytes & ~now.bytes) == 0 && is_ordered(t, r.slot, r.thread, r.clock)) return r;
    return c.read[machine().below(3)];
}

inline void note(thread_context& t, cell& c, const own_access& mine, const char* memory) {
    const block_context& b = *t.block;
    const access now{clock_of(t), static_cast<u16>(b.slot), static_cast<u16>(t.index), static_cast<u16>(mine.bytes),
        mine.strong, mine.reach, mine.line};
    if (conflict(t, c.write, mine)) report_race(t, c.write, true, mine, memory);
    if (mine.read_only && c.write.clock != 0 && (c.write.bytes & mine.bytes) != 0 &&
        !b.before->knows(c.write.slot, c.write.thread, c.write.clock))
        t.fail(mine.line, "ld.global.nc may be stale: it reads what has been written since the grid began, at %s",
            place(run_at(c.write).of, c.write.line).c_str());
    if (!mine.writes) {
        read_to_replace(t, c, now) = now;
        return;
    }
    for (access& r : c.read) {
        if (conflict(t, r, mine)) report_race(t, r, false, mine, memory);
        if ((r.bytes & ~mine.bytes) == 0) r.clock = 0;
    }
    c.write = now;
}

/// The bytes [address, address + n) of the 16 or 4 that begin at a multiple of their number.
u32 byte_mask(u64 address, u32 n, u32 of) { return ((1u << n) - 1) << (address & (of - 1)); }

inline void give_way_at_times(thread_context& t) {
    machine_state& m = machine();
    if (m.yield_every == 0 || --m.until_yield > 0) return;
    m.until_yield = 1 + m.below(2 * m.yield_every);
    t.block->to_host.arrive();
    t.yield(false);
}

unsigned char* in_global(thread_context& t, u64 address, const own_access& mine) {
    const u32 n = mine.bytes;
    if ((address & (n - 1)) != 0)
        t.fail(mine.line, "misaligned access of %u bytes at %#lx", n, static_cast<unsigned long>(address));
    if (mine.writes) machine().looks_in_vain = 0;
    give_way_at_times(t);
    const allocation* a = lookup(address, n);
    if (!a)
        t.fail(mine.line, "%s of %u bytes at %#lx: %s", mine.writes ? "write" : "read", n,
            static_cast<unsigned long>(address), describe(address).c_str());
    if (a->kind == memory_kind::multicast)
        t.fail(mine.line, "multicast memory at %#lx is for multimem instructions only",
            static_cast<unsigned long>(address));
    if (!t.by_multicast && a->device != t.block->device && a->kind == memory_kind::device &&
        !may_access(t.block->device, *a))
        t.fail(mine.line, "device %d has no access to memory of device %d at %#lx", t.block->device, a->device,
            static_cast<unsigned long>(address));
    if (a->cells) {
        own_access as = mine;
        as.bytes = byte_mask(address, n, 16);
        note(t, a->cells[address / 16 - a->address / 16], as, "global");
    }
    if (a->kind == memory_kind::pinned && !mine.strong && machine().weak)
        return t.block->to_host.access(address, n, mine.writes);
    return reinterpret_cast<unsigned char*>(address);
}

unsigned char* in_shared(thread_context& t, u64 address, const own_access& mine) {
    const u32 n = mine.bytes;
    if ((address & (n - 1)) != 0)
        t.fail(
            mine.line, "misaligned access of %u bytes of shared memory at %lu", n, static_cast<unsigned long>(address));
    const block_context& b = *t.block;
    const u64 at = address - shared_window;
    if (at >= b.shared_bytes || n > b.shared_bytes - at)
        t.fail(mine.line, "%s of %u bytes of shared memory out of bounds: byte %ld of %lu",
            mine.writes ? "write" : "read", n, static_cast<long>(at), static_cast<unsigned long>(b.shared_bytes));
    give_way_at_times(t);
    if (b.shared_cells) {
        own_access as = mine;
        for (u64 word = at / 4; word <= (at + n - 1) / 4; ++word) {
            as.bytes = n >= 4 ? 15 : byte_mask(at, n, 4);
            note(t, b.shared_cells[word], as, "shared");
        }
    }
    return b.shared + at;
}

unsigned char* in_local(thread_context& t, u64 address, const own_access& mine) {
    if ((address & (mine.bytes - 1)) != 0)
        t.fail(mine.line, "misaligned access of %u bytes of local memory", mine.bytes);
    for (const local_frame* f = t.frames; f; f = f->below)
        if (address - f->begin < f->bytes && mine.bytes <= f->bytes - (address - f->begin))
            return reinterpret_cast<unsigned char*>(address);
    t.fail(mine.line, "%s of %u bytes out of the bounds of the thread's local memory", mine.writes ? "write" : "read",
        mine.bytes);
}

unsigned char* in_parameters(thread_context& t, u64 address, const own_access& mine) {
    const block_context& b = *t.block;
    if (!mine.writes)
        for (std::size_t i = 0; i < b.running->parameters.size(); ++i) {
            const u64 at = address - reinterpret_cast<u64>(b.arguments[i]);
            const auto bytes = static_cast<u64>(b.running->parameters[i]);
            if (at < bytes && mine.bytes <= bytes - at) return reinterpret_cast<unsigned char*>(address);
        }
    return nullptr;
}

bool is_on_stack(const thread_context& t, u64 address) {
    return address - (reinterpret_cast<u64>(t.block->stacks) + t.index * stack_bytes) < stack_bytes;
}

unsigned char* reach_memory(thread_context& t, space s, u64 address, const own_access& mine) {
    switch (s) {
        case space::global:
        case space::constant:
            return in_global(t, address, mine);
        case space::shared:
            return in_shared(t, address, mine);
        case space::local:
            return in_local(t, address, mine);
        case space::param:
            if (unsigned char* p = in_parameters(t, address, mine)) return p;
            return in_local(t, address, mine);
        case space::generic:
            break;
    }
    const u64 in_block = address - reinterpret_cast<u64>(t.block->shared);
    if (in_block < t.block->shared_bytes) return in_shared(t, in_block + shared_window, mine);
    if (is_on_stack(t, address)) return in_local(t, address, mine);
    if (unsigned char* p = in_parameters(t, address, mine)) return p;
    return in_global(t, address, mine);
}

// ---- strong accesses

u128 read_atomically(const unsigned char* p, u32 bytes) {
    switch (bytes) {
        case 1:
            return __atomic_load_n(p, __ATOMIC_SEQ_CST);
        case 2:
            return __atomic_load_n(reinterpret_cast<const u16*>(p), __ATOMIC_SEQ_CST);
        case 4:
            return __atomic_load_n(reinterpret_cast<const u32*>(p), __ATOMIC_SEQ_CST);
        case 8:
            return __atomic_load_n(reinterpret_cast<const u64*>(p), __ATOMIC_SEQ_CST);
        default:
            return std::bit_cast<u128>(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
    }
}
void write_atomically(unsigned char* p, u128 value, u32 bytes) {
    switch (bytes) {
        case 1:
            return __atomic_store_n(p, static_cast<u8>(value), __ATOMIC_SEQ_CST);
        case 2:
            return __atomic_store_n(reinterpret_cast<u16*>(p), static_cast<u16>(value), __ATOMIC_SEQ_CST);
        case 4:
            return __atomic_store_n(reinterpret_cast<u32*>(p), static_cast<u32>(value), __ATOMIC_SEQ_CST);
        case 8:
            return __atomic_store_n(reinterpret_cast<u64*>(p), static_cast<u64>(value), __ATOMIC_SEQ_CST);
        default:
            _mm_store_si128(reinterpret_cast<__m128i*>(p), std::bit_cast<__m128i>(value));
    }
}
bool exchange_if(unsigned char* p, u64& expected, u64 value, u32 bytes) {
    const auto on = [&](auto* word) {
        using W = std::remove_pointer_t<decltype(word)>;
        auto e = static_cast<W>(expected);
        const bool done =
            __atomic_compare_exchange_n(word, &e, static_cast<W>(value), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        expected = e;
        return done;
    };
    if (bytes == 2) return on(reinterpret_cast<u16*>(p));
    if (bytes == 4) return on(reinterpret_cast<u32*>(p));
    return on(reinterpret_cast<u64*>(p));
}

/// Whether a write to this memory may be another process's or the host's, of which the machine knows nothing.
bool may_be_foreign(u64 address) {
    const allocation* a = lookup(address, 1);
    return a && (a->shared_out || a->kind != memory_kind::device);
}
void acquire_all(thread_context& t) {
    view all;
    for (const block_context* b : machine().slots) all.set(b->slot, b->clock);
    acquire(t, all);
}

/// What stores behind the last fence of at least this scope release; null: nothing.
std::shared_ptr<const view> behind_fence(const thread_context& t, int s) {
    fence_order* const own = t.order.fenced[s].get();
    fence_order& all = t.block->all_fenced[s];
    if (own && own->clock > all.clock) return with_own(t, *own);
    return all.seen;
}

/// What a strong write of `t` releases.
release_chain released_by(thread_context& t, bool is_release, scope reach) {
    const block_context& b = *t.block;
    release r{b.slot, {}};
    if (is_release) {
        fence_order now{t.order.own ? t.order.own : b.seen, advance(t), false};
        r.seen[0] = with_own(t, now);
    }
    for (int s = 0; s < 3; ++s) r.seen[s] = is_release && s <= static_cast<int>(reach) ? r.seen[0] : behind_fence(t, s);
    if (!r.seen[0] && !r.seen[1] && !r.seen[2]) return nullptr;
    return std::make_shared<const std::vector<release>>(1, std::move(r));
}
/// What is released stays released through updates.
release_chain both(const release_chain& former, const release_chain& mine) {
    if (!former || !mine) return mine ? mine : former;
    auto all = std::make_shared<std::vector<release>>(*former);
    const release& r = mine->front();
    const auto same =
        std::find_if(all->begin(), all->end(), [&](const release& other) { return other.slot == r.slot; });
    if (same == all->end()) {
        all->push_back(r);
        return all;
    }
    for (int s = 0; s < 3; ++s) {
        if (!r.seen[s] || same->seen[s] == r.seen[s]) continue;
        auto together = std::make_shared<view>(*r.seen[s]);
        if (same->seen[s]) together->join(*same->seen[s]);
        same->seen[s] = std::move(together);
    }
    return all;
}

bool acquires(semantics s);
void take(thread_context& t, const release_chain& all, semantics how, scope reach) {
    if (!all) return;
    for (const release& r : *all) {
        const scope needed = common_scope(*t.block, r.slot);
        const auto s = static_cast<int>(needed);
        if (!r.seen[s] || reach < needed) continue;
        if (acquires(how))
            acquire(t, *r.seen[s]);
        else
            t.order.will_acquire(r.seen[s], s);
    }
}
/// A value that no kernel of this process has written: what was before it is not known.
void take_foreign(thread_context& t, u64 address, semantics how) {
    if (!may_be_foreign(address)) return;
    if (acquires(how))
        acquire_all(t);
    else
        t.order.may_be_foreign = true;
}

bool acquires(semantics s) { return s == semantics::acquire || s == semantics::both; }
bool releases(semantics s) { return s == semantics::release || s == semantics::both; }

/// Whether an address is one of those that the thread has loaded from last.
bool has_polled(const thread_context& t, u64 address) {
    for (const fiber::poll& p : t.block->fibers[t.index].polls)
        if (p.address == address) return true;
    return false;
}
/// A thread that loads what it has loaded before waits for others.
void note_poll(thread_context& t, u64 address, u64 value) {
    fiber& f = t.block->fibers[t.index];
    for (fiber::poll& p : f.polls)
        if (p.address == address && p.value == value) return t.yield(true);
    f.polls[f.next_poll++ % f.polls.size()] = {address, value};
}

/// What is known of the writes to an address, whose value is `value`. One that is not the last one's is foreign.
message& message_at(const unsigned char* at, u32 bytes, u128 value) {
    message& known = machine().messages[reinterpret_cast<u64>(at)];
    if (known.known > 0 && known.bytes == bytes && known.last[0].value == value) return known;
    known = {};
    known.bytes = bytes;
    known.known = 1;
    known.last[0].value = value;
    return known;
}
message& message_at(const unsigned char* at, u32 bytes) { return message_at(at, bytes, read_atomically(at, bytes)); }

/// The host may have seen a value in memory that it reads.
void tell_host(u64 address, const release_chain& r) {
    if (!r) return;
    const allocation* a = lookup(address, 1);
    if (!a || a->kind == memory_kind::device) return;
    for (const release& one : *r)
        if (one.seen[2]) host_learns(one.seen[2]);
}

u64& newest_in(block_context& b, u64 address) { return b.newest[(address >> 2) * 0x9e3779b97f4a7c15 >> 52]; }

}  // namespace

void acquire(thread_context& t, const view& v) {
    if (view_of(t).covers(v)) return;
    std::shared_ptr<view>& own = t.order.own;
    if (!own) t.block->ahead.push_back(t.index);
    if (!own || own.use_count() > 1) own = std::make_shared<view>(view_of(t));
    own->join(v);
}

std::shared_ptr<const view> with_own(const thread_context& t, fence_order& f) {
    if (f.has_own) return f.seen;
    auto seen = std::make_shared<view>(*f.seen);
    seen->add(some_threads::one(t.block->slot, t.index, f.clock));
    for (const some_threads& p : t.order.partial)
        if (p.clock != 0 && p.clock < f.clock) seen->add(p);
    f.seen = std::move(seen);
    f.has_own = true;
    return f.seen;
}

unsigned char* thread_context::plain(space s, u64 address, u32 bytes, bool writes, u32 line) {
    return reach_memory(*this, s, address, {bytes, writes, false, scope::block, line});
}

unsigned char* thread_context::read_only(u64 address, u32 bytes, u32 line) {
    return reach_memory(*this, space::global, address, {bytes, false, false, scope::block, line, true});
}

void thread_context::load_strong(space s, u64 address, void* to, u32 bytes, semantics how, scope reach, u32 line) {
    machine_state& m = machine();
    const unsigned char* at = reach_memory(*this, s, address, {bytes, false, true, reach, line});
    const u64 key = reinterpret_cast<u64>(at);
    u128 value = read_atomically(at, bytes);
    if (m.weak) {
        const auto i = m.messages.find(key);
        if (i != m.messages.end() && i->second.bytes == bytes && i->second.last[0].value == value) {
            message& known = i->second;
            u64& newest = newest_in(*block, key);
            const u32 one_in = has_polled(*this, key) ? 4 : 2;  // so that threads which wait for many words go on soon
            u32 k = 0;
            while (k + 1 < known.known && newest < known.last[k].number && m.below(one_in) == 0 &&
                   !is_ordered(*this, known.last[k].slot, known.last[k].thread, known.last[k].clock))
                ++k;
            message::write& seen = known.last[k];
            seen.is_seen |= seen.slot != block->slot;
            value = seen.value;
            newest = std::max(newest, seen.number);
            take(*this, seen.released, how, reach);
        } else {
            take_foreign(*this, key, how);
        }
    }
    std::memcpy(to, &value, bytes);
    note_poll(*this, key, static_cast<u64>(value));
}

void thread_context::store_strong(
    space s, u64 address, const void* from, u32 bytes, semantics how, scope reach, u32 line) {
    machine_state& m = machine();
    unsigned char* at = reach_memory(*this, s, address, {bytes, true, true, reach, line});
    u128 value = 0;
    std::memcpy(&value, from, bytes);
    if (m.weak) {
        if (releases(how) && reach == scope::system) block->to_host.arrive();
        // The host may look now: it sees this store without the plain ones before it.
        if (block->to_host.is_near(reinterpret_cast<u64>(at))) usleep(2000);
        message& known = message_at(at, bytes);
        const message::write& last = known.last[0];
        u64& newest = newest_in(*block, reinterpret_cast<u64>(at));
        if (last.number > newest && !last.is_seen && !is_ordered(*this, last.slot, last.thread, last.clock) &&
            m.below(2) == 0)
            return;
        const u32 clock = clock_of(*this);
        known.add(
            {value, ++m.strong_writes, block->slot, index, clock, released_by(*this, releases(how), reach), false});
        newest = m.strong_writes;
        tell_host(reinterpret_cast<u64>(at), known.last[0].released);
    }
    write_atomically(at, value, bytes);
}

u64 thread_context::update(
    space s, u64 address, u32 bytes, semantics how, scope reach, u64 (*f)(u64, u64, u64), u64 a, u64 b, u32 line) {
    machine_state& m = machine();
    unsigned char* at = reach_memory(*this, s, address, {bytes, true, true, reach, line});
    auto old = static_cast<u64>(read_atomically(at, bytes));
    u64 value = f(old, a, b);
    while (!exchange_if(at, old, value, bytes)) value = f(old, a, b);
    if (m.weak) {
        if (releases(how) && reach == scope::system) block->to_host.arrive();
        message& known = message_at(at, bytes, old);
        const message::write& last = known.last[0];
        if (last.number != 0)
            take(*this, last.released, how, reach);
        else
            take_foreign(*this, reinterpret_cast<u64>(at), how);
        const u32 clock = clock_of(*this);
        auto released = both(last.released, released_by(*this, releases(how), reach));
        known.add({value, ++m.strong_writes, block->slot, index, clock, std::move(released), false});
        newest_in(*block, reinterpret_cast<u64>(at)) = m.strong_writes;
        tell_host(reinterpret_cast<u64>(at), known.last[0].released);
    }
    note_poll(*this, reinterpret_cast<u64>(at), old);
    return old;
}

void thread_context::fence(scope reach, bool sequential, u32) {
    machine_state& m = machine();
    if (!m.weak) return;
    if (order.has_to_acquire)
        for (int s = 0; s <= static_cast<int>(reach); ++s) {
            order.add_more(s);
            acquire(*this, order.to_acquire[s]);
            order.to_acquire[s] = {};
        }
    if (reach == scope::system) {
        if (order.may_be_foreign) acquire_all(*this);
        order.may_be_foreign = false;
        block->to_host.arrive();
    }
    if (sequential && reach != scope::block) {
        // Those whose scopes both include the other's thread are in one order.
        const auto on = static_cast<std::size_t>(block->device);
        if (m.sequential_on.size() <= on) m.sequential_on.resize(on + 1);
        acquire(*this, m.sequential_on[on]);
        if (reach == scope::system) acquire(*this, m.sequential);
    }
    const auto now = std::make_shared<fence_order>(order.own ? order.own : block->seen, advance(*this), false);
    for (const some_threads& p : order.partial)
        if (p.clock > block->last_barrier) with_own(*this, *now);  // later ones may take their places
    for (int s = 0; s <= static_cast<int>(reach); ++s) {
        if (!order.fenced[s] || order.fenced[s]->clock <= block->last_barrier) ++block->fenced_since[s];
        order.fenced[s] = now;
    }
    if (sequential && reach != scope::block) {
        const auto seen = with_own(*this, *now);
        m.sequential_on[static_cast<std::size_t>(block->device)].join(*seen);
        if (reach == scope::system) m.sequential.join(*seen);
    }
}

// ---- multicast memory

namespace {
std::vector<u64> copies_at(thread_context& t, u64 address, u32 bytes, u32 line) {
    if ((address & (bytes - 1)) != 0)
        t.fail(line, "misaligned multimem access of %u bytes at %#lx", bytes, static_cast<unsigned long>(address));
    std::vector<u64> at = multicast_copies(address, bytes);
    if (at.empty())
        t.fail(line, "multimem access to %#lx, which is not multicast memory: %s", static_cast<unsigned long>(address),
            describe(address).c_str());
    if (const allocation* const a = lookup(address, bytes); a && !may_access(t.block->device, *a))
        t.fail(line, "device %d has no access to multicast memory at %#lx", t.block->device,
            static_cast<unsigned long>(address));
    return at;
}
struct multicast_access {
    explicit multicast_access(thread_context& t) : of(t) { of.by_multicast = true; }
    ~multicast_access() { of.by_multicast = false; }
    thread_context& of;
};
}  // namespace

u64 thread_context::load_multicast(
    u64 address, u32 bytes, semantics how, scope reach, u64 (*f)(u64, u64, u64), u32 line) {
    u64 result = 0;
    bool is_first = true;
    const std::vector<u64> copies = copies_at(*this, address, bytes, line);
    const multicast_access here(*this);
    for (const u64 at : copies) {
        u64 x = 0;
        load_strong(space::global, at, &x, bytes, how, reach, line);
        result = is_first ? x : f(result, x, 0);
        is_first = false;
    }
    return result;
}
void thread_context::store_multicast(u64 address, u32 bytes, semantics how, scope reach, u64 value, u32 line) {
    const std::vector<u64> copies = copies_at(*this, address, bytes, line);
    const multicast_access here(*this);
    for (const u64 at : copies) store_strong(space::global, at, &value, bytes, how, reach, line);
}
void thread_context::update_multicast(
    u64 address, u32 bytes, semantics how, scope reach, u64 (*f)(u64, u64, u64), u64 value, u32 line) {
    const std::vector<u64> copies = copies_at(*this, address, bytes, line);
    const multicast_access here(*this);
    for (const u64 at : copies) update(space::global, at, bytes, how, reach, f, value, 0, line);
}

// ---- addresses

u64 thread_context::to_generic(space s, u64 address) const {
    return s == space::shared ? reinterpret_cast<u64>(block->shared) + (address - shared_window) : address;
}
u64 thread_context::from_generic(space s, u64 address) const {
    return s == space::shared ? address - reinterpret_cast<u64>(block->shared) + shared_window : address;
}
u64 thread_context::variable(const char* name) const {
    return reinterpret_cast<u64>(find_variable(name, block->device));
}
u64 thread_context::dynamic_shared() const {
    return shared_window + static_cast<u64>(block->running->shared_bytes + 15) / 16 * 16;
}

u32 thread_context::dynamic_shared_bytes() const {
    return static_cast<u32>(shared_window + block->shared_bytes - dynamic_shared());
}
bool thread_context::is_in(space s, u64 address) const {
    const bool in_shared = address - reinterpret_cast<u64>(block->shared) < block->shared_bytes,
               in_local = is_on_stack(*this, address);
    switch (s) {
        case space::shared:
            return in_shared;
        case space::local:
            return in_local;
        default:
            return !in_shared && !in_local;
    }
}
u64 thread_context::grid_workspace() const { return reinterpret_cast<u64>(block->workspace); }

// ---- cp.async

void thread_context::copy_async(u64 shared_to, u64 global_from, u32 bytes, u32 from_bytes, u32 line) {
    fiber& f = block->fibers[index];
    f.copies.push_back({shared_to, global_from, bytes, from_bytes, line, f.group});
}
void thread_context::commit_copies() { ++block->fibers[index].group; }
void thread_context::wait_for_copies(u32 groups_left) {
    fiber& f = block->fibers[index];
    std::vector<fiber::copy> later;
    for (const fiber::copy& c : f.copies) {
        if (c.group + groups_left >= f.group && groups_left != 0) {
            later.push_back(c);
            continue;
        }
        unsigned char bytes[16] = {};
        if (c.from_bytes > 0)
            std::memcpy(bytes, plain(space::global, c.from, c.from_bytes, false, c.line), c.from_bytes);
        std::memcpy(plain(space::shared, c.to, c.bytes, true, c.line), bytes, c.bytes);
    }
    f.copies = std::move(later);
}

}  // namespace emulated
