// A thread group that is a block of a kernel: see thread_group.hpp.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/cuda/block_state.hpp>

#include <cuda/atomic>

namespace colls::inline v1::cuda::detail {

class device_thread_group {
public:
    __device__ static int index() { return static_cast<int>(threadIdx.x); }
    __device__ static int size() { return static_cast<int>(blockDim.x); }
    __device__ static bool any(bool mine) { return __syncthreads_or(mine) != 0; }
    // At an address that the compiler knows: access through a pointer takes a third more code.
    __device__ static block_state& state() {
        __shared__ block_state shared;
        return shared;
    }

    __device__ static std::uint64_t acquire(const std::uint64_t* w) {
        return word(w).load(::cuda::memory_order_acquire);
    }
    __device__ static void release(std::uint64_t* w, std::uint64_t x) {
        word(w).store(x, ::cuda::memory_order_release);
    }
    __device__ static std::uint64_t relaxed(const std::uint64_t* w) {
        return word(w).load(::cuda::memory_order_relaxed);
    }
    __device__ static std::uint32_t relaxed(const std::uint32_t* w) {
        return word(w).load(::cuda::memory_order_relaxed);
    }
    __device__ static void put(std::uint64_t* w, std::uint64_t x) { word(w).store(x, ::cuda::memory_order_relaxed); }
    __device__ static bool claim(std::uint32_t* w, std::uint32_t x) { return atomicCAS_system(w, 0u, x) == 0u; }
    __device__ static void fence() { __threadfence_system(); }
    // Plain accesses, ordered by the words that are acquired and released around them. Not through the read-only cache:
    // peers write this memory while the kernel runs.
    __device__ static quad load(const quad* from) {
        const uint4 q = *reinterpret_cast<const uint4*>(from);
        return {{q.x, q.y, q.z, q.w}};
    }
    __device__ static void store(quad* to, const quad& q) {
        *reinterpret_cast<uint4*>(to) = make_uint4(q.word[0], q.word[1], q.word[2], q.word[3]);
    }
    __device__ static std::uint64_t now() {
        std::uint64_t t;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
        return t;
    }
    __device__ static void pause() {}

private:
    template <class W>
    __device__ static ::cuda::atomic_ref<W, ::cuda::thread_scope_system> word(const W* w) {
        return ::cuda::atomic_ref<W, ::cuda::thread_scope_system>(*const_cast<W*>(w));
    }
};
static_assert(thread_group<device_thread_group>);

}  // namespace colls::inline v1::cuda::detail
