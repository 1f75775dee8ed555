// The kernels of collective calls.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// A launch runs all channels of its ranks, one thread block each, all resident at once.
#pragma once

#include <colls/cuda/detail/device_thread_group.hpp>
#include <colls/cuda/detail/eager_executor.hpp>
#include <colls/cuda/detail/multicast_executor.hpp>
#include <colls/cuda/detail/packet_executor.hpp>
#include <colls/cuda/detail/schedule_executor.hpp>

namespace colls::inline v1::cuda::detail {

/// Ranks of a launch, at most; threads of a block.
inline constexpr int max_local_ranks = 32, block_threads = 512;

/// A local rank's buffers in a call.
struct kernel_buffers {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    shared_address in_where, out_where;
};

template <class Op, class Epilogue>
struct kernel_arguments {
    const rank_handle* handles = nullptr;  ///< [rank_count], in device memory
    std::int32_t rank_count = 1;
    kernel_call common;  ///< without the buffers
    kernel_buffers of[max_local_ranks];
    std::int32_t has_offsets = 0;
    std::uint64_t offsets[max_ranks + 1] = {};  ///< see kernel_call; by value, so that a graph keeps its own
    Op op;
    Epilogue epilogue;

    /// Sets the call of this block's rank in the block's state; returns the block's channel.
    __device__ int load_call() const {
        if (has_offsets != 0)
            for (unsigned i = threadIdx.x; i <= max_ranks; i += blockDim.x)
                device_thread_group::state().offsets[i] = offsets[i];
        if (threadIdx.x == 0) {
            const unsigned local = blockIdx.x % static_cast<unsigned>(rank_count);
            block_state& state = device_thread_group::state();
            state.self = handles[local];
            kernel_call& c = state.call;
            c = common;
            c.in = of[local].in;
            c.out = of[local].out;
            c.in_where = of[local].in_where;
            c.out_where = of[local].out_where;
            if (has_offsets != 0) c.offsets = state.offsets;
        }
        __syncthreads();
        return static_cast<int>(blockIdx.x / static_cast<unsigned>(rank_count));
    }
};

/// A call by a schedule.
template <class Schedule, class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1)
    schedule_kernel(const __grid_constant__ kernel_arguments<Op, Epilogue> a, const Schedule s) {
    const int channel = a.load_call();
    run_schedule<T, D>(device_thread_group(), channel, s, a.op, a.epilogue);
}

/// A call by a schedule, by packets.
template <class Schedule, class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1)
    packet_kernel(const __grid_constant__ kernel_arguments<Op, Epilogue> a, const Schedule s) {
    const int channel = a.load_call();
    run_by_packets<T, D>(device_thread_group(), channel, s, a.op, a.epilogue);
}

/// An all_reduce by the switch.
template <class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1) multicast_kernel(
    const __grid_constant__ kernel_arguments<Op, Epilogue> a, const __grid_constant__ multicast_window window) {
    const int channel = a.load_call();
    run_by_multicast<T, D>(device_thread_group(), channel, window, a.op, a.epilogue);
}

/// A call on the eager path.
template <collective what, class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1)
    eager_kernel(const __grid_constant__ kernel_arguments<Op, Epilogue> a) {
    const int channel = a.load_call();
    run_eager<what, T, D>(device_thread_group(), channel, a.op, a.epilogue);
}

}  // namespace colls::inline v1::cuda::detail
