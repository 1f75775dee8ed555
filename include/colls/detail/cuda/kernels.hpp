// The kernels: a block is one channel of one rank, all blocks of a launch being resident at once.
#pragma once

#include <colls/detail/cuda/body.hpp>
#include <colls/detail/cuda/device_group.hpp>
#include <colls/detail/cuda/small.hpp>

namespace colls::inline v1::cuda::detail {

/// Ranks that one launch may hold; threads of a block.
inline constexpr int max_local = 32, block_threads = 512;

/// A local rank's buffers in a call.
struct buffers {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    reachable in_where, out_where;
};
template <class Op, class Epilogue>
struct launch {
    const team* teams = nullptr;  ///< [locals], in the device's memory
    std::int32_t locals = 1;
    call common;
    buffers of[max_local];
    Op op;
    Epilogue epilogue;

    /// Puts a local rank's call on the board; returns which block of it this one is.
    __device__ int take_up() const {
        if (threadIdx.x == 0) {
            const unsigned local = blockIdx.x % static_cast<unsigned>(locals);
            blackboard& board = device_group::board();
            board.us = teams[local];
            call& c = board.now;
            c = common;
            c.in = of[local].in;
            c.out = of[local].out;
            c.in_where = of[local].in_where;
            c.out_where = of[local].out_where;
        }
        __syncthreads();
        return static_cast<int>(blockIdx.x / static_cast<unsigned>(locals));
    }
};

template <class Schedule, class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1)
    large_kernel(const __grid_constant__ launch<Op, Epilogue> a, const Schedule s) {
    const int block = a.take_up();
    run_body<T, D>(device_group(), block, s, a.op, a.epilogue);
}

template <collective what, class T, class D, class Op, class Epilogue>
__global__ void __launch_bounds__(block_threads, 1) small_kernel(const __grid_constant__ launch<Op, Epilogue> a) {
    const int block = a.take_up();
    run_small<what, T, D>(device_group(), block, a.op, a.epilogue);
}

}  // namespace colls::inline v1::cuda::detail
