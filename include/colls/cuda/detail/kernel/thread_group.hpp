// The concept thread_group: what the executors of a kernel are written against.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// The same executors run as a thread block on a device and as a few threads on the host, where ThreadSanitizer checks
// their synchronisation. Needs no CUDA header.
#pragma once

#include <colls/config.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

// Device code under nvcc, host code elsewhere. CALLED: functions that are used in many places and take long anyway are
// not inlined, for they would make up most of a kernel's size.
#if defined(__CUDACC__)
#define COLLS_DEVICE __device__
#define COLLS_HOST_DEVICE __host__ __device__
#define COLLS_DEVICE_CALLED __device__ __noinline__
#define COLLS_CALLED __noinline__
#define COLLS_UNROLL _Pragma("unroll")
#define COLLS_ROLLED _Pragma("unroll 1")
#else
#define COLLS_DEVICE
#define COLLS_HOST_DEVICE
#define COLLS_DEVICE_CALLED
#define COLLS_CALLED
#define COLLS_UNROLL
#define COLLS_ROLLED
#endif

namespace colls::inline v1::cuda::detail {

/// x, of which the compiler knows nothing for sm_100 and later. It works out what depends on x where that is used, and
/// not before the loops around, from where the results would take registers that loads in flight need.
template <class I>
COLLS_DEVICE I anew(I x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    if constexpr (sizeof x == 8)
        asm volatile("" : "+l"(x));
    else
        asm volatile("" : "+r"(x));
#endif
    return x;
}

/// 16 bytes, moved by one access.
struct alignas(16) quad {
    std::uint32_t word[4];
};

/// Two words of data and flag, moved by one access: see flagged_words.hpp.
struct alignas(16) packet {
    std::uint64_t word[2];
};

struct block_state;
struct message_state;

/// Threads that share a barrier and a block_state, and how they reach memory that other ranks write. Copies of a group
/// are the same group.
///   index(), size()    of the calling thread; threads of the group
///   any(b)             a barrier; returns true on all threads if b was true on one
///   state()            the group's block_state; messages(): its message_state
///   release            stores a counter that orders all other accesses between two ranks
///   reached(a, b, x)   true if counters a and b are at least x, which orders as well
///   relaxed, put       loads and stores a word or a packet between two ranks, without order, also of a packet's words
///   load, store        16 bytes
///   claim(w, x)        changes a word from 0 to x; true for the one thread of all that has changed it
///   fence()            orders all reads before it before all accesses after it, at all ranks
///   now(), pause()     a clock in nanoseconds; between two looks at a word
template <class G>
concept thread_group = requires(G& g, const std::uint64_t* from, std::uint64_t* to, const quad* source, quad* target,
    std::uint32_t* word, const std::uint32_t* seen, const packet* arriving, packet* leaving) {
    { g.index() } -> std::convertible_to<int>;
    { g.size() } -> std::convertible_to<int>;
    { g.any(true) } -> std::same_as<bool>;
    { g.state() } -> std::same_as<block_state&>;
    { g.messages() } -> std::same_as<message_state&>;
    { g.reached(from, from, std::uint64_t{}) } -> std::same_as<bool>;
    g.release(to, std::uint64_t{});
    { g.relaxed(from) } -> std::same_as<std::uint64_t>;
    { g.relaxed(seen) } -> std::same_as<std::uint32_t>;
    g.put(to, std::uint64_t{});
    { g.relaxed(arriving) } -> std::same_as<packet>;
    g.put(leaving, packet{});
    { g.load(source) } -> std::same_as<quad>;
    g.store(target, quad{});
    { g.claim(word, std::uint32_t{}) } -> std::same_as<bool>;
    g.fence();
    { g.now() } -> std::same_as<std::uint64_t>;
    g.pause();
};

}  // namespace colls::inline v1::cuda::detail
