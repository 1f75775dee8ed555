// A thread group that is a block of a kernel: see thread_group.hpp.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/kernel/message_state.hpp>

#include <cuda/atomic>

namespace colls::inline v1::cuda::detail {

class device_thread_group {
public:
    __device__ static int index() { return anew(static_cast<int>(threadIdx.x)); }
    __device__ static int size() { return anew(static_cast<int>(blockDim.x)); }
    __device__ static bool any(bool mine) { return __syncthreads_or(mine) != 0; }
    // At an address that the compiler knows: access through a pointer takes a third more code.
    __device__ static block_state& state() {
        __shared__ block_state shared;
        return shared;
    }
    __device__ static message_state& messages() {
        __shared__ message_state shared;
        return shared;
    }

    // Both are under way at once, which two loads with order would not be; one fence orders both.
    __device__ static bool reached(const std::uint64_t* a, const std::uint64_t* b, std::uint64_t least) {
        const std::uint64_t one = relaxed(a), two = relaxed(b);
        if (one < least || two < least) return false;
        ::cuda::atomic_thread_fence(::cuda::memory_order_acquire, ::cuda::thread_scope_system);
        return true;
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
    __device__ static packet relaxed(const packet* from) {
        packet p;
        asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
            : "=l"(p.word[0]), "=l"(p.word[1])
            : "l"(__cvta_generic_to_global(from))
            : "memory");
        return p;
    }
    __device__ static void put(packet* to, const packet& p) {
        asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "l"(p.word[0]),
            "l"(p.word[1])
            : "memory");
    }
    __device__ static bool claim(std::uint32_t* w, std::uint32_t x) { return atomicCAS_system(w, 0u, x) == 0u; }
    __device__ static void fence() { __threadfence_system(); }
    // Plain accesses, ordered by the words that are acquired and released around them. Not through the read-only cache:
    // peers write this memory while the kernel runs. The compiler does not see that they are of global memory, because
    // it finds their addresses in shared memory, and would take the slower instructions of any memory.
    __device__ static quad load(const quad* from) {
        quad q;
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(q.word[0]), "=r"(q.word[1]), "=r"(q.word[2]), "=r"(q.word[3])
            : "l"(__cvta_generic_to_global(from))
            : "memory");
        return q;
    }
    __device__ static void store(quad* to, const quad& q) {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(q.word[0]),
            "r"(q.word[1]), "r"(q.word[2]), "r"(q.word[3])
            : "memory");
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
