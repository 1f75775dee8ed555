// See scheduler.hpp. This file is compiled without instrumentation.
#include "scheduler.hpp"

#include <cxxabi.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

namespace interleaving {
namespace {

constexpr std::size_t memory_bytes = std::size_t{1} << 20, stack_bytes = std::size_t{256} << 10;
constexpr std::size_t granule = 4, often = 64;

using clock = std::uint32_t;
struct vector_clock {
    clock of[most_ranks] = {};
    void join(const vector_clock& other) {
        for (int r = 0; r < most_ranks; ++r) of[r] = std::max(of[r], other.of[r]);
    }
};

/// Four bytes of shared memory.
struct cell {
    // State in the run `run`; reset by the first access of another.
    std::uint64_t run = 0;
    std::uint32_t version = 0;  // atomic stores
    int writer = -1;            // the last plain store
    clock written = 0;
    clock read[most_ranks] = {};  // the last plain loads
    vector_clock released;        // by the atomic store that is read now
    // Over all runs: several ranks use it, and one of them writes, so that the order matters.
    unsigned users = 0;
    bool is_written = false, is_point = false;
};

struct seen_word {
    std::size_t at;
    std::uint32_t version;
};

struct fiber {
    ucontext_t context;
    std::byte* stack = nullptr;
    // The exceptions that are being handled: the runtime keeps them for each thread.
    std::byte exceptions[2 * sizeof(void*)];
    bool over = false;
    bool waits = false;
    std::uint64_t asked_at = 0;  // + 1: the number of stores when it last looked although nothing had changed
    // A rank that loads the same values again, and stores nothing, waits for one of them to change.
    std::vector<seen_word> seen;
    std::size_t repeats = 0;
    vector_clock now, acquired, fenced;
};

struct decision {
    int chosen, options;
};

struct scheduler {
    program* running = nullptr;
    shared_memory shared{};
    std::vector<cell> cells;
    fiber fibers[most_ranks];
    ucontext_t outside;
    int current = -1;  // -1: no rank runs
    std::uint64_t run = 0, stores = 0, steps = 0, microseconds = 0;
    shared_memory ignored{};
    std::vector<decision> trail;
    std::size_t at = 0;  // in the trail
    bool grew = false;   // there are more points than when the exploration began
    std::string fault;

    scheduler() {
        const auto map = [](std::size_t bytes) {
            void* const at_page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (at_page == MAP_FAILED) throw std::bad_alloc();
            return static_cast<std::byte*>(at_page);
        };
        shared = {map(memory_bytes), memory_bytes};
        cells.resize(memory_bytes / granule);
        for (fiber& f : fibers) f.stack = map(stack_bytes);
    }

    bool covers(const volatile void* p) const {
        return reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(shared.at) < memory_bytes;
    }
    std::size_t index_of(const volatile void* p) const {
        return (reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(shared.at)) / granule;
    }
    cell& at_index(std::size_t i) {
        cell& c = cells[i];
        if (c.run != run) {
            c.run = run;
            c.version = 0;
            c.writer = -1;
            c.written = 0;
            std::fill_n(c.read, most_ranks, 0);
            c.released = {};
        }
        return c;
    }

    // ---- which rank goes on ----

    bool can_go_on(const fiber& f) {
        if (f.over) return false;
        if (!f.waits) return true;
        return std::any_of(
            f.seen.begin(), f.seen.end(), [&](const seen_word& s) { return at_index(s.at).version != s.version; });
    }
    /// The ranks that can go on, in the order in which they do by default.
    int options(int (&all)[most_ranks]) {
        int count = 0;
        const int first = current < 0 ? 0 : current;
        for (int k = 0; k < running->ranks; ++k) {
            const int r = (first + k) % running->ranks;
            if (can_go_on(fibers[r])) all[count++] = r;
        }
        if (count > 0) return count;
        // A rank may have loaded the same values again without waiting for them: it may look once more.
        for (int r = 0; r < running->ranks && count == 0; ++r)
            if (!fibers[r].over && fibers[r].asked_at != stores + 1) {
                fibers[r].asked_at = stores + 1;
                all[count++] = r;
            }
        return count;
    }
    int choose() {
        int all[most_ranks];
        const int count = options(all);
        if (count <= 1) return count == 0 ? -1 : all[0];
        if (at == trail.size()) trail.push_back({0, count});
        decision& d = trail[at++];
        if (d.options != count) {
            fault = "the ranks do not behave the same in two runs of one order";
            return -1;
        }
        return all[d.chosen];
    }
    void keep_exceptions(fiber& f) { std::memcpy(f.exceptions, abi::__cxa_get_globals(), sizeof f.exceptions); }
    void restore_exceptions(const fiber& f) {
        std::memcpy(static_cast<void*>(abi::__cxa_get_globals()), f.exceptions, sizeof f.exceptions);
    }
    /// The rank that runs gives way to the one that is chosen, which may be itself.
    void give_way() {
        const int next = choose();
        if (next == current && next >= 0) return;
        fiber& from = fibers[current];
        keep_exceptions(from);
        if (next < 0) return leave_run();
        current = next;
        restore_exceptions(fibers[next]);
        if (from.over)
            setcontext(&fibers[next].context);
        else
            swapcontext(&from.context, &fibers[next].context);
    }
    void leave_run() {
        current = -1;
        setcontext(&outside);
    }

    // ---- a rank's accesses ----

    void point(std::size_t i, bool writes) {
        cell& c = cells[i];
        c.users |= 1u << current;
        c.is_written |= writes;
        if (!c.is_point && c.is_written && (c.users & (c.users - 1)) != 0) c.is_point = grew = true;
        if (++steps > 1'000'000) fail("the run does not end");
        if (c.is_point) give_way();
    }
    void note_load(std::size_t i, int order) {
        fiber& f = fibers[current];
        cell& c = at_index(i);
        f.acquired.join(c.released);
        if (order != __ATOMIC_RELAXED) f.now.join(c.released);
        const auto found = std::find_if(f.seen.begin(), f.seen.end(), [&](const seen_word& s) { return s.at == i; });
        if (found == f.seen.end()) {
            f.seen.push_back({i, c.version});
        } else if (found->version != c.version) {
            f.seen.assign(1, {i, c.version});
            f.repeats = 0;
        } else {
            // A word that no other rank uses, as far as is known, is hardly what this rank waits for.
            f.repeats += c.is_point ? often : 1;
        }
    }
    /// Before a load: a rank that has loaded all that it loads twice more waits until something changes.
    void wait_if_it_repeats(std::size_t i) {
        fiber& f = fibers[current];
        const bool again = std::any_of(f.seen.begin(), f.seen.end(),
            [&](const seen_word& s) { return s.at == i && at_index(i).version == s.version; });
        const std::size_t rounds = f.asked_at == stores + 1 ? 16 : 2;
        if (!again || f.repeats < rounds * often * f.seen.size()) return;
        f.waits = true;
        give_way();
        f.waits = false;
        f.repeats = 0;
        for (seen_word& s : f.seen) s.version = at_index(s.at).version;
    }
    void note_store(std::size_t i, int order, bool continues) {
        fiber& f = fibers[current];
        cell& c = at_index(i);
        ++c.version;
        ++stores;
        f.seen.clear();
        f.repeats = 0;
        const vector_clock before = c.released;
        const bool releases = order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
        c.released = releases ? f.now : f.fenced;
        if (continues) c.released.join(before);
        ++f.now.of[current];
    }
    void plain(const volatile void* p, std::size_t bytes, bool writes) {
        const fiber& f = fibers[current];
        const auto last = reinterpret_cast<std::uintptr_t>(p) + bytes - 1;
        if (!covers(reinterpret_cast<const void*>(last))) return;
        for (std::size_t i = index_of(p), end = index_of(reinterpret_cast<const void*>(last)); i <= end; ++i) {
            cell& c = at_index(i);
            if (c.writer >= 0 && c.written > f.now.of[c.writer])
                race(i, writes ? "writes what rank " : "reads what rank ", c.writer, " writes");
            if (!writes) {
                c.read[current] = f.now.of[current];
                continue;
            }
            for (int r = 0; r < running->ranks; ++r)
                if (c.read[r] > f.now.of[r]) race(i, "writes what rank ", r, " reads");
            c.writer = current;
            c.written = f.now.of[current];
        }
    }
    [[noreturn]] void race(std::size_t i, const char* does, int other, const char* theirs) {
        fail("a race: rank " + std::to_string(current) + " " + does + std::to_string(other) + theirs + ", at byte " +
             std::to_string(i * granule) + " of the shared memory, and nothing orders the two");
    }

    // ---- a run, and all runs ----

    static void enter() {
        scheduler& s = the();
        s.running->run(s.current);
        s.fibers[s.current].over = true;
        s.give_way();
        // Not reached: the rank is over, and another one runs, or the run is over.
    }
    void run_once() {
        ++run;
        stores = steps = microseconds = 0;
        at = 0;
        fault.clear();
        running->begin();
        for (int r = 0; r < running->ranks; ++r) {
            fiber& f = fibers[r];
            f.over = f.waits = false;
            f.asked_at = 0;
            f.seen.clear();
            f.repeats = 0;
            f.now = f.acquired = f.fenced = {};
            f.now.of[r] = 1;
            std::memset(f.exceptions, 0, sizeof f.exceptions);
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = f.stack;
            f.context.uc_stack.ss_size = stack_bytes;
            f.context.uc_link = nullptr;
            makecontext(&f.context, &scheduler::enter, 0);
        }
        std::byte own[2 * sizeof(void*)];
        std::memcpy(own, abi::__cxa_get_globals(), sizeof own);
        current = choose();
        swapcontext(&outside, &fibers[current].context);
        std::memcpy(static_cast<void*>(abi::__cxa_get_globals()), own, sizeof own);
        if (!fault.empty()) return;
        for (int r = 0; r < running->ranks; ++r)
            if (!fibers[r].over) fault += "rank " + std::to_string(r) + " waits for ever; ";
    }
    /// The next order of ranks within the bound, depth first; false: there is none.
    bool advance_trail(int delays) {
        trail.resize(at);
        for (; !trail.empty(); trail.pop_back()) {
            int used = 1;
            for (const decision& d : trail) used += d.chosen;
            decision& last = trail.back();
            if (last.chosen + 1 < last.options && used <= delays) {
                ++last.chosen;
                return true;
            }
        }
        return false;
    }
    std::string order() const {
        std::string text;
        for (std::size_t i = 0; i < at; ++i)
            if (trail[i].chosen > 0)
                text += (text.empty() ? "" : ", ") + std::to_string(i) + ":" + std::to_string(trail[i].chosen);
        return text.empty() ? "in the default order" : "with delays (point:ranks) " + text;
    }

    static scheduler& the() {
        static scheduler s;
        return s;
    }
};

bool is_rank() { return scheduler::the().current >= 0; }

}  // namespace

shared_memory memory() { return scheduler::the().shared; }
void ignore(const shared_memory& part) { scheduler::the().ignored = part; }

void fail(const std::string& what) {
    scheduler& s = scheduler::the();
    s.fault = "rank " + std::to_string(s.current) + ": " + what;
    s.leave_run();
    __builtin_unreachable();
}

outcome explore(program& p, int delays) {
    scheduler& s = scheduler::the();
    s.running = &p;
    for (cell& c : s.cells) c.users = 0, c.is_written = c.is_point = false;
    outcome o;
    do {  // again with all points, once they are known
        s.trail.clear();
        s.grew = false;
        do {
            s.run_once();
            ++o.runs;
            o.most_points = std::max<std::uint64_t>(o.most_points, s.at);
            if (!s.fault.empty()) {
                o.fault = s.fault + " (" + s.order() + ")";
                return o;
            }
        } while (!s.grew && s.advance_trail(delays));
    } while (s.grew);
    return o;
}

}  // namespace interleaving

// What instrumented code calls. Atomic operations of ranks on shared memory are points; 16-bit ones are hints of the
// library about cores, which change nothing but how a rank waits.

using interleaving::is_rank;
using interleaving::scheduler;

namespace {

template <class T>
bool is_shared(const volatile T* p) {
    const scheduler& s = scheduler::the();
    return sizeof(T) >= interleaving::granule && is_rank() && s.covers(p) &&
           reinterpret_cast<std::uintptr_t>(p) - reinterpret_cast<std::uintptr_t>(s.ignored.at) >= s.ignored.bytes;
}
template <class T>
T load(const volatile T* p, int order) {
    if (!is_shared(p)) return *p;
    scheduler& s = scheduler::the();
    const std::size_t i = s.index_of(p);
    s.wait_if_it_repeats(i);
    s.point(i, false);
    s.note_load(i, order);
    return *p;
}
template <class T>
void store(volatile T* p, T value, int order) {
    if (!is_shared(p)) {
        *p = value;
        return;
    }
    scheduler& s = scheduler::the();
    const std::size_t i = s.index_of(p);
    s.point(i, true);
    s.note_store(i, order, false);
    *p = value;
}
template <class T, class F>
T change(volatile T* p, int order, F f) {
    const bool shared = is_shared(p);
    scheduler& s = scheduler::the();
    const std::size_t i = shared ? s.index_of(p) : 0;
    if (shared) {
        s.point(i, true);
        s.note_load(i, order == __ATOMIC_RELEASE ? __ATOMIC_RELAXED : order);
        s.note_store(i, order, true);
    }
    const T before = *p;
    *p = f(before);
    return before;
}
template <class T>
bool compare_exchange(volatile T* p, T* expected, T value, int order, int otherwise) {
    const bool shared = is_shared(p);
    scheduler& s = scheduler::the();
    if (shared) s.point(s.index_of(p), true);
    const T found = *p;
    const bool equal = found == *expected;
    if (shared) {
        s.note_load(s.index_of(p), equal ? order : otherwise);
        if (equal) s.note_store(s.index_of(p), order, true);
    }
    if (equal)
        *p = value;
    else
        *expected = found;
    return equal;
}
void plain(const volatile void* p, std::size_t bytes, bool writes) {
    if (is_rank() && bytes > 0 && scheduler::the().covers(p)) scheduler::the().plain(p, bytes, writes);
}

}  // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-declarations"
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define COLLS_ACCESS(size)                                               \
    void __tsan_read##size(void* p) { plain(p, size, false); }           \
    void __tsan_write##size(void* p) { plain(p, size, true); }           \
    void __tsan_unaligned_read##size(void* p) { plain(p, size, false); } \
    void __tsan_unaligned_write##size(void* p) { plain(p, size, true); }
COLLS_ACCESS(1)
COLLS_ACCESS(2)
COLLS_ACCESS(4)
COLLS_ACCESS(8)
COLLS_ACCESS(16)
void __tsan_read_range(void* p, unsigned long bytes) { plain(p, bytes, false); }
void __tsan_write_range(void* p, unsigned long bytes) { plain(p, bytes, true); }

#define COLLS_ATOMIC(bits, T)                                                                               \
    T __tsan_atomic##bits##_load(const volatile T* p, int order) { return load<T>(p, order); }              \
    void __tsan_atomic##bits##_store(volatile T* p, T v, int order) { store<T>(p, v, order); }              \
    T __tsan_atomic##bits##_exchange(volatile T* p, T v, int order) {                                       \
        return change<T>(p, order, [=](T) { return v; });                                                   \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int order) {                                      \
        return change<T>(p, order, [=](T x) { return static_cast<T>(x + v); });                             \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int order) {                                      \
        return change<T>(p, order, [=](T x) { return static_cast<T>(x - v); });                             \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int order) {                                       \
        return change<T>(p, order, [=](T x) { return static_cast<T>(x | v); });                             \
    }                                                                                                       \
    T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int order) {                                      \
        return change<T>(p, order, [=](T x) { return static_cast<T>(x & v); });                             \
    }                                                                                                       \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* e, T v, int order, int otherwise) { \
        return compare_exchange<T>(p, e, v, order, otherwise);                                              \
    }                                                                                                       \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* e, T v, int order, int otherwise) {   \
        return compare_exchange<T>(p, e, v, order, otherwise);                                              \
    }                                                                                                       \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T e, T v, int order, int otherwise) {       \
        compare_exchange<T>(p, &e, v, order, otherwise);                                                    \
        return e;                                                                                           \
    }
COLLS_ATOMIC(8, unsigned char)
COLLS_ATOMIC(16, unsigned short)
COLLS_ATOMIC(32, unsigned)
COLLS_ATOMIC(64, unsigned long)

void __tsan_atomic_thread_fence(int order) {
    if (!is_rank()) return;
    interleaving::fiber& f = scheduler::the().fibers[scheduler::the().current];
    if (order != __ATOMIC_RELEASE) f.now.join(f.acquired);
    if (order != __ATOMIC_ACQUIRE) f.fenced = f.now;
}
void __tsan_atomic_signal_fence(int) {}

// The linker sends calls of memcpy and memmove here, which the compiler does not report.
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
    plain(from, bytes, false);
    plain(to, bytes, true);
    return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
    plain(from, bytes, false);
    plain(to, bytes, true);
    return __real_memmove(to, from, bytes);
}
// A rank's clock goes on by a microsecond each time that it is read: runs of one order are the same.
int __real_clock_gettime(clockid_t which, timespec* t);
/// The ranks are one thread: what it gave up on a busy machine, other programs would get.
int __wrap_sched_yield() { return 0; }
int __wrap_nanosleep(const timespec*, timespec*) { return 0; }

int __wrap_clock_gettime(clockid_t which, timespec* t) {
    if (!is_rank()) return __real_clock_gettime(which, t);
    const std::uint64_t now = ++scheduler::the().microseconds;
    *t = {static_cast<time_t>(now / 1'000'000), static_cast<long>(now % 1'000'000 * 1000)};
    return 0;
}
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) { return __wrap_memcpy(to, from, bytes); }
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) { return __wrap_memmove(to, from, bytes); }
void* __tsan_memset(void* to, int value, std::size_t bytes) {
    plain(to, bytes, true);
    return std::memset(to, value, bytes);
}
}
#pragma GCC diagnostic pop
