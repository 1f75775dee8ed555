// What translated kernels call: memory, barriers, shuffles and fences of one simulated thread.
//
// A simulated thread is a fiber; all fibers of a process run on one host thread, in an order that EMULATED_SEED
// chooses. The machine stops the program, with the kernel, the line of its PTX and of its source, where a kernel
// - accesses memory that is misaligned, outside of live allocations, freed, or outside of the block's shared or the
// thread's local memory;
// - accesses memory that another thread accesses, one of them writing, with no order between them (ordering.hpp);
// - waits at barriers or in a warp for threads that cannot come.
// Environment: EMULATED_SEED (default 1); EMULATED_WEAK=0: do not check order and let loads see the newest values
// (faster); EMULATED_YIELD: a thread gives way after about this many accesses (default 300, 0: never).
#pragma once

#include "kernels.hpp"
#include "memory.hpp"
#include "numbers.hpp"
#include "ordering.hpp"

#include <cstring>

namespace emulated {

enum class space { generic, global, shared, local, param, constant };
enum class shuffle_mode { up, down, butterfly, index };
enum class vote_mode { all, any, uniform, ballot };
enum class reduction { none, count, all, any };

/// Where shared memory begins in its address space: as with CUDA 12 and later, the first bytes are not the kernel's.
inline constexpr u64 shared_window = 1024;

struct block_context;
struct local_frame;

/// What one thread of the grid is and does.
class thread_context {
public:
    u32 tid[3] = {}, ntid[3] = {}, ctaid[3] = {}, nctaid[3] = {};
    u32 index = 0;  ///< in the block
    block_context* block = nullptr;
    thread_order order;  ///< what this thread has synchronised with
    local_frame* frames = nullptr;
    bool by_multicast = false;  ///< accesses a copy of multicast memory: the right to that is the multicast memory's

    u32 lane() const { return index & 31; }

    /// The host address of `bytes` bytes at `address` for a plain access, after its checks.
    unsigned char* plain(space, u64 address, u32 bytes, bool writes, u32 line);
    /// Likewise for ld.global.nc: what is there must have been written before the grid began.
    unsigned char* read_only(u64 address, u32 bytes, u32 line);
    /// Accesses that may be used to synchronise. `bytes` is at most 16.
    void load_strong(space, u64 address, void* to, u32 bytes, semantics, scope, u32 line);
    void store_strong(space, u64 address, const void* from, u32 bytes, semantics, scope, u32 line);
    /// Replaces the value by f(old, a, b); returns the old one.
    u64 update(
        space, u64 address, u32 bytes, semantics, scope, u64 (*f)(u64 old, u64 a, u64 b), u64 a, u64 b, u32 line);
    void fence(scope, bool sequential, u32 line);
    /// multimem: on the same offset of each copy of multicast memory.
    u64 load_multicast(u64 address, u32 bytes, semantics, scope, u64 (*f)(u64, u64, u64), u32 line);
    void store_multicast(u64 address, u32 bytes, semantics, scope, u64 value, u32 line);
    void update_multicast(u64 address, u32 bytes, semantics, scope, u64 (*f)(u64, u64, u64), u64 value, u32 line);

    u64 to_generic(space, u64 address) const;
    u64 from_generic(space, u64 address) const;
    u64 variable(const char* name) const;
    u64 dynamic_shared() const;  ///< the address of `.extern .shared` variables
    u32 dynamic_shared_bytes() const;
    bool is_in(space, u64 generic_address) const;
    u64 grid_workspace() const;  ///< 256 bytes of global memory, zero when a grid starts: for cooperative groups

    /// bar and barrier. `count`: threads that take part, 0 for all. Returns the reduction of the predicates.
    u32 barrier(u32 id, u32 count, bool waits, reduction, bool predicate, u32 line);
    void warp_barrier(u32 mask, u32 line);
    u32 shuffle(shuffle_mode, u32 value, u32 b, u32 c, u32 mask, bool& in_range, u32 line);
    u32 vote(vote_mode, bool predicate, u32 mask, u32 line);
    u32 match(u64 value, u32 bits, bool all, u32 mask, bool& same, u32 line);
    u32 reduce(u32 value, u32 (*f)(u32, u32), u32 mask, u32 line);
    bool elect(u32 mask, u32& leader, u32 line);

    /// cp.async: the copy takes place at a later wait.
    void copy_async(u64 shared_to, u64 global_from, u32 bytes, u32 from_bytes, u32 line);
    void commit_copies();
    void wait_for_copies(u32 groups_left);

    /// Gives way to other threads. `waits`: this thread can do nothing until another one has done something.
    void yield(bool waits);
    [[noreturn]] void exit();
    [[noreturn]] void fail(u32 line, const char* text, ...) __attribute__((format(printf, 3, 4)));
};

/// A function's local memory, or a parameter with an address, while the function runs: bounds of accesses through
/// pointers.
struct local_frame {
    local_frame(thread_context& t, unsigned char* memory, u64 size, bool is_new)
        : begin(reinterpret_cast<u64>(memory)), bytes(size), below(t.frames), of(t) {
        if (is_new) std::memset(memory, 0xcd, size);
        t.frames = this;
    }
    ~local_frame() { of.frames = below; }
    local_frame(const local_frame&) = delete;
    local_frame& operator=(const local_frame&) = delete;

    u64 begin, bytes;
    local_frame* below;
    thread_context& of;
};

// ---- the forms that translate.py writes

template <class T>
T load(thread_context& t, space s, u64 address, u32 line) {
    T x;
    std::memcpy(&x, t.plain(s, address, sizeof x, false, line), sizeof x);
    return x;
}
template <class T>
T load_read_only(thread_context& t, u64 address, u32 line) {
    T x;
    std::memcpy(&x, t.read_only(address, sizeof x, line), sizeof x);
    return x;
}
template <class T, std::size_t n>
void load_read_only(thread_context& t, u64 address, T (&to)[n], u32 line) {
    std::memcpy(to, t.read_only(address, sizeof to, line), sizeof to);
}
template <class T>
void store(thread_context& t, space s, u64 address, T x, u32 line) {
    std::memcpy(t.plain(s, address, sizeof x, true, line), &x, sizeof x);
}
/// A parameter at a place that the translator has checked.
template <class T>
T& parameter(unsigned char* at) {
    return *reinterpret_cast<T*>(at);
}
template <class T, std::size_t n>
void load(thread_context& t, space s, u64 address, T (&to)[n], u32 line) {
    std::memcpy(to, t.plain(s, address, sizeof to, false, line), sizeof to);
}
template <class T, std::size_t n>
void store(thread_context& t, space s, u64 address, const T (&from)[n], u32 line) {
    std::memcpy(t.plain(s, address, sizeof from, true, line), from, sizeof from);
}
template <class T, std::size_t n>
void load_strong(thread_context& t, space s, u64 address, T (&to)[n], semantics how, scope reach, u32 line) {
    // Each element of a vector is an access of its own. One that is not aligned is an error as a whole.
    if (address % sizeof to != 0) return t.load_strong(s, address, to, sizeof to, how, reach, line);
    for (std::size_t k = n; k-- > 0;) t.load_strong(s, address + k * sizeof(T), &to[k], sizeof(T), how, reach, line);
}
template <class T, std::size_t n>
void store_strong(thread_context& t, space s, u64 address, const T (&from)[n], semantics how, scope reach, u32 line) {
    if (address % sizeof from != 0) return t.store_strong(s, address, from, sizeof from, how, reach, line);
    for (std::size_t k = n; k-- > 0;) t.store_strong(s, address + k * sizeof(T), &from[k], sizeof(T), how, reach, line);
}
template <class T, std::size_t n>
void load_parameter(const unsigned char* from, T (&to)[n]) {
    std::memcpy(to, from, sizeof to);
}
template <class T, std::size_t n>
void store_parameter(unsigned char* to, const T (&from)[n]) {
    std::memcpy(to, from, sizeof from);
}

/// The functions of atom and red.
namespace atomic {
template <class T, class F>
u64 on(u64 old, u64 a, F f) {
    u64 r = 0;
    put(r, static_cast<T>(f(get<T>(old), get<T>(a))));
    return static_cast<bits_of<sizeof(T)>>(r);
}
template <class T>
u64 add(u64 old, u64 a, u64) {
    if constexpr (is_small_float<T>)
        return on<T>(old, a, [](T x, T y) { return rounded<T>(value_of(x) + value_of(y)); });
    else
        return on<T>(old, a, [](T x, T y) { return x + y; });
}
template <class T>
u64 min(u64 old, u64 a, u64) {
    return on<T>(old, a, [](T x, T y) { return extreme(x, y, false); });
}
template <class T>
u64 max(u64 old, u64 a, u64) {
    return on<T>(old, a, [](T x, T y) { return extreme(x, y, true); });
}
template <class T>
u64 inc(u64 old, u64 a, u64) {
    return on<T>(old, a, [](T x, T y) { return x >= y ? T{0} : x + 1; });
}
template <class T>
u64 dec(u64 old, u64 a, u64) {
    return on<T>(old, a, [](T x, T y) { return x == 0 || x > y ? y : x - 1; });
}
template <class T>
u64 and_(u64 old, u64 a, u64) {
    return old & a;
}
template <class T>
u64 or_(u64 old, u64 a, u64) {
    return old | a;
}
template <class T>
u64 xor_(u64 old, u64 a, u64) {
    return old ^ a;
}
template <class T>
u64 exch(u64, u64 a, u64) {
    return a;
}
template <class T>
u64 cas(u64 old, u64 a, u64 b) {
    return old == a ? b : old;
}
/// Two small floats in 32 bits.
template <class T, u64 (*f)(u64, u64, u64)>
u64 pair(u64 old, u64 a, u64) {
    return f(old & 0xffff, a & 0xffff, 0) | f(old >> 16 & 0xffff, a >> 16 & 0xffff, 0) << 16;
}
}  // namespace atomic

/// %globaltimer: nanoseconds.
u64 global_timer(thread_context&);

}  // namespace emulated
