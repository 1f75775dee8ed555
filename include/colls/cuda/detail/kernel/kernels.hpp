// The kernels of collective calls.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A launch runs all channels of its ranks, one thread block each, all resident at once.
#pragma once

#include <colls/cuda/detail/kernel/device_thread_group.hpp>
#include <colls/cuda/detail/kernel/eager_executor.hpp>
#include <colls/cuda/detail/kernel/message_executor.hpp>
#include <colls/cuda/detail/kernel/multicast_executor.hpp>
#include <colls/cuda/detail/kernel/schedule_executor.hpp>

namespace colls::inline v1::cuda::detail {

/// Ranks of a launch, at most; threads of a block.
inline constexpr int max_local_ranks = 32, block_threads = 512;

/// A local rank's buffers in a call.
struct kernel_buffers {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    shared_address in_where, out_where;
};

/// Calls of a launch, at most.
inline constexpr int most_calls = 16;

template <class Op, class Epilogue>
struct kernel_arguments {
    const rank_handle* handles = nullptr;  ///< [rank_count], in device memory
    std::int32_t rank_count = 1, calls = 1;
    kernel_call common;                  ///< without the buffers, and without what is in `parts`
    call_part parts[most_calls];         ///< in the order of their channels
    kernel_buffers of[max_local_ranks];  ///< [calls * rank_count]
    std::int32_t has_offsets = 0;
    std::uint64_t offsets[max_ranks + 1] = {};  ///< see kernel_call; by value, so that a graph keeps its own
    Op op;
    Epilogue epilogue;

    /// Sets the call of this block in the block's state; returns the block's channel.
    __device__ int load_call() const {
        const unsigned local = blockIdx.x % static_cast<unsigned>(rank_count);
        const int channel = static_cast<int>(blockIdx.x / static_cast<unsigned>(rank_count));
        int i = 0;
        COLLS_ROLLED
        while (i + 1 < calls && channel >= parts[i + 1].first_channel) ++i;
        if (has_offsets != 0)
            for (unsigned b = threadIdx.x; b <= max_ranks; b += blockDim.x)
                device_thread_group::state().offsets[b] = offsets[b];
        if (threadIdx.x == 0) {
            const kernel_buffers& mine = of[static_cast<unsigned>(i * rank_count) + local];
            block_state& state = device_thread_group::state();
            state.self = handles[local];
            kernel_call& c = state.call;
            c = common;
            static_cast<call_part&>(c) = parts[i];
            c.in = mine.in;
            c.out = mine.out;
            c.in_where = mine.in_where;
            c.out_where = mine.out_where;
            if (has_offsets != 0) c.offsets = state.offsets;
        }
        __syncthreads();
        return channel;
    }
};

/// A call by a schedule.
template <class Schedule, class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1)
    schedule_kernel(const __grid_constant__ kernel_arguments<Op, Epilogue> a, const Schedule s) {
    const int channel = a.load_call();
    run_schedule<T, D>(device_thread_group(), channel, s, a.op, a.epilogue);
}

/// An all_reduce by the switch.
template <class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1) multicast_kernel(
    const __grid_constant__ kernel_arguments<Op, Epilogue> a, const __grid_constant__ multicast_window window) {
    const int channel = a.load_call();
    run_by_multicast<T, D>(device_thread_group(), channel, window, a.op, a.epilogue);
}

/// Messages between this rank and others.
struct message_arguments {
    const rank_handle* handle = nullptr;  ///< in device memory
    message_list list;
};
static_assert(sizeof(message_arguments) <= 4096, "what a kernel takes on every device");

template <class G>
__global__ void __launch_bounds__(block_threads, 1) message_kernel(const __grid_constant__ message_arguments a) {
    if (threadIdx.x == 0) {
        G::state().self = *a.handle;
        G::state().call = {};
    }
    __syncthreads();
    const int channels = G::state().self.sizes.channels;
    run_messages(G(), (static_cast<int>(blockIdx.x) + a.list.first_channel) % channels, a.list);
}

/// A call on the eager path.
template <collective what, class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1)
    eager_kernel(const __grid_constant__ kernel_arguments<Op, Epilogue> a) {
    const int channel = a.load_call();
    run_eager<what, T, D>(device_thread_group(), channel, a.op, a.epilogue);
}

}  // namespace colls::inline v1::cuda::detail
