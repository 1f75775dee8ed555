// A thread group: what the kernel body is written against, so that the same body runs as a block on a device and as a
// few threads on the host, where ThreadSanitizer follows it. No CUDA header is needed to read any of this.
#pragma once

#include <colls/config.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

// What a kernel is made of is device code under nvcc, and host code elsewhere. What is used in many places and takes
// long anyway is called, not inlined: it would make up most of a kernel's size.
#if defined(__CUDACC__)
#define COLLS_DEVICE __device__
#define COLLS_DEVICE_CALLED __device__ __noinline__
#define COLLS_CALLED __noinline__
#define COLLS_UNROLL _Pragma("unroll")
#define COLLS_ROLLED _Pragma("unroll 1")
#else
#define COLLS_DEVICE
#define COLLS_DEVICE_CALLED
#define COLLS_CALLED
#define COLLS_UNROLL
#define COLLS_ROLLED
#endif

namespace colls::inline v1::cuda::detail {

/// 16 bytes, moved by one access.
struct alignas(16) quad {
    std::uint32_t word[4];
};

struct blackboard;

/// Threads that stop at a common barrier, and how they reach memory that other ranks write.
///   index(), size()    of the calling thread, of the group
///   any(b)             a barrier; true for all if b was true for one
///   board()            memory that the group's threads share (copies of a group share all they have)
///   acquire, release   a counter, with all writes before it, between any two ranks
///   relaxed, put       a word by itself, likewise
///   load, store        16 bytes
///   claim(w, x)        true for the first caller alone (0 becomes x)
///   fence()            reads before it are over before what comes after it is read
///   now(), pause()     nanoseconds; between two looks at a word
template <class G>
concept thread_group = requires(G& g, const std::uint64_t* from, std::uint64_t* to, const quad* source, quad* goal,
    std::uint32_t* word, const std::uint32_t* seen) {
    { g.index() } -> std::convertible_to<int>;
    { g.size() } -> std::convertible_to<int>;
    { g.any(true) } -> std::same_as<bool>;
    { g.board() } -> std::same_as<blackboard&>;
    { g.acquire(from) } -> std::same_as<std::uint64_t>;
    g.release(to, std::uint64_t{});
    { g.relaxed(from) } -> std::same_as<std::uint64_t>;
    { g.relaxed(seen) } -> std::same_as<std::uint32_t>;
    g.put(to, std::uint64_t{});
    { g.load(source) } -> std::same_as<quad>;
    g.store(goal, quad{});
    { g.claim(word, std::uint32_t{}) } -> std::same_as<bool>;
    g.fence();
    { g.now() } -> std::same_as<std::uint64_t>;
    g.pause();
};

}  // namespace colls::inline v1::cuda::detail
