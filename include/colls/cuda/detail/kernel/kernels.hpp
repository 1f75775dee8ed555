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

/// Calls of a launch, at most.
inline constexpr int most_calls = 16;

/// What differs between the calls of a launch, and between its ranks.
struct joint_calls {
    call_part parts[most_calls];         ///< in the order of their channels
    kernel_buffers of[max_local_ranks];  ///< [calls * rank_count]
};
/// The same, and where blocks of given sizes begin: see kernel_call.
struct call_tables : joint_calls {
    std::int32_t has_offsets = 0;
    std::uint64_t offsets[max_ranks + 1] = {};
};

/// Tables: call_tables, which a graph keeps; or, since the host copies all arguments at each launch, `const
/// joint_calls*`, for one rank whose blocks are balanced. It then leads to the rank's device memory, where a launch
/// before has stored them (store_calls), and is not looked at for one call.
template <class Op, class Epilogue, class Tables>
struct kernel_arguments {
    static constexpr bool are_short = std::is_pointer_v<Tables>;
    const rank_handle* handles = nullptr;  ///< [rank_count], in device memory
    std::int32_t rank_count = 1, calls = 1;
    kernel_call common;  ///< the only call of the only rank; else without what is in the tables
    Tables tables{};
    Op op;
    Epilogue epilogue;

    __device__ const joint_calls& joint() const {
        if constexpr (are_short)
            return *tables;
        else
            return tables;
    }

    /// Sets the call of this block in the block's state; returns the block's channel.
    __device__ int load_call() const {
        const unsigned local = blockIdx.x % static_cast<unsigned>(rank_count);
        const int channel = static_cast<int>(blockIdx.x / static_cast<unsigned>(rank_count));
        int i = 0;
        COLLS_ROLLED
        while (i + 1 < calls && channel >= joint().parts[i + 1].first_channel) ++i;
        block_state& state = device_thread_group::state();
        if (threadIdx.x == 0) {
            state.self = handles[local];
            state.call = common;
            if (calls * rank_count > 1) {
                static_cast<call_part&>(state.call) = joint().parts[i];
                static_cast<kernel_buffers&>(state.call) = joint().of[static_cast<unsigned>(i * rank_count) + local];
            }
        }
        if constexpr (!are_short)
            if (tables.has_offsets != 0) {
                for (unsigned b = threadIdx.x; b <= max_ranks; b += blockDim.x) state.offsets[b] = tables.offsets[b];
                if (threadIdx.x == 0) state.call.offsets = state.offsets;
            }
        __syncthreads();
        return channel;
    }
};

static_assert(sizeof(kernel_arguments<char, char, const joint_calls*>) <= 192, "copied by each launch of a call");

/// Stores what is too long for the arguments of the next launch. A template, so that no unit has it in vain.
template <class Tables>
__global__ void store_calls(const __grid_constant__ Tables from, Tables* to) {
    constexpr unsigned words = sizeof(Tables) / sizeof(std::uint64_t);
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
        reinterpret_cast<std::uint64_t*>(to)[i] = reinterpret_cast<const std::uint64_t*>(&from)[i];
}

/// A call by a schedule.
template <class Schedule, class T, class D, class Op, class Epilogue, class Tables = const joint_calls*>
__global__ void __launch_bounds__(block_threads, 1) schedule_kernel(
    const __grid_constant__ kernel_arguments<Op, Epilogue, Tables> a, const __grid_constant__ Schedule s) {
    const int channel = a.load_call();
    run_schedule<T, D>(device_thread_group(), channel, s, a.op, a.epilogue);
}

/// An all_reduce by the switch.
template <class T, class D, class Op, class Epilogue, class Tables = const joint_calls*>
__global__ void __launch_bounds__(block_threads, 1) multicast_kernel(
    const __grid_constant__ kernel_arguments<Op, Epilogue, Tables> a, const __grid_constant__ multicast_window window) {
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
template <collective what, class T, class D, class Op, class Epilogue, class Tables = const joint_calls*>
__global__ void __launch_bounds__(block_threads, 1)
    eager_kernel(const __grid_constant__ kernel_arguments<Op, Epilogue, Tables> a) {
    const int channel = a.load_call();
    run_eager<what, T, D>(device_thread_group(), channel, a.op, a.epilogue);
}

}  // namespace colls::inline v1::cuda::detail
