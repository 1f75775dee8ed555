// Collectives called from a user's own kernel.
//
// A call is made by all threads of a block, together with the blocks of the same channel at the other ranks. Channels
// are independent of each other, so that a kernel may make a call for each row of a matrix. All ranks make the same
// calls on a channel, in the same order.
//
// The kernel must be launched so that all its blocks are resident at once (cudaLaunchCooperativeKernel), with at most
// 512 threads a block, a multiple of 32, in one dimension; calls of other blocks are refused. Calls use 29 KB of its
// static shared memory, however many it makes. A kernel of that many threads must say so by __launch_bounds__: with
// calls in it, it may take 152 registers, of which a device has enough for 384 threads only. check_launch tells.
//
//     __global__ void __launch_bounds__(512) step(const __grid_constant__ colls::cuda::device::ranks<schedule> r,
//     float* x, std::size_t count)
//     {
//         colls::cuda::device::all_reduce(r, 0, blockIdx.x, x, x, count, colls::sum_t{});   // in kernels: the type
//     }
//     auto r = colls::cuda::ranks_for<schedule>(comm);    // schedule: colls::schedule_for<colls::direct,
//                                                         //               colls::collective::all_reduce>
#pragma once

#include <colls/cuda/detail/kernel/rank_order.hpp>
#include <colls/cuda/detail/launch/device_call.hpp>
#include <colls/cuda/epilogue.hpp>

namespace colls::inline v1::cuda {
namespace device {

/// A group's ranks of one device, as kernels call on them by Schedule. Made on the host by ranks_for; a kernel takes it
/// by value.
template <class Schedule>
struct ranks {
    std::int32_t locals = 1;    ///< ranks of this device: 1, but for virtual_ranks
    std::int32_t channels = 1;  ///< channels of a rank, which calls name from 0 on

    /// The number in the group of local rank `local`, and the group's size.
    __device__ int rank(int local) const { return info.handles[local].rank; }
    __device__ int size() const { return info.handles[0].sizes.ranks; }

    detail::device_call_info info;                               ///< for the library
    detail::stored_schedule<implemented_by<Schedule>> schedule;  ///< likewise
};

}  // namespace device

/// What a kernel needs to make calls by the schedule S, of the collective that S implements, on `comm`, a communicator
/// or virtual_ranks, which must outlive the kernels. Proves the schedule and copies its tables to the device at the
/// first call. Throws colls::error: unsupported (ranks or ports beyond what a kernel takes, too little scratch memory),
/// wrong_schedule.
template <class S, class Comm>
device::ranks<S> ranks_for(Comm& comm, const S& s = {}) {
    detail::local_ranks& context = comm.context();
    context.expect_unseen_calls();
    device::ranks<S> r;
    r.locals = static_cast<std::int32_t>(context.ranks().size());
    r.channels = context.sizes().channels;
    detail::stored_slot_map& map = context.map_for(s);
    r.info = detail::make_device_call_info(context, map);
    r.schedule = {context.steps_for(map, s, none)};
    return r;
}

/// Checks that blocks of `threads` threads of `kernel`, which makes calls on `comm`, can be launched, `blocks` of them
/// resident at once; before the first launch. Throws colls::error: unsupported, which says what to change;
/// invalid_argument where calls are not for such blocks.
template <class Comm, class... X>
void check_launch(Comm& comm, void (*kernel)(X...), int blocks, int threads, std::size_t dynamic_shared = 0) {
    detail::check_kernel(comm.context(), reinterpret_cast<const void*>(kernel), blocks, threads, dynamic_shared);
}

namespace device {

// What is common to all calls:
//
// local     which of r.locals this block belongs to; 0, but for virtual_ranks
// channel   below r.channels; no other block of the rank may be in a call on it
// in, out   memory of the device, of elements of at most 16 bytes; between devices of one process that of cudaMalloc.
//           In place as on the host: the same buffer, or the rank's own block of the other one. Where a rank has no
//           input or output, it is not looked at
// count     elements of all ranks' blocks together, which are balanced; of a whole buffer where there are no blocks.
// The
//           same on all ranks
// root      below r.size(), the same on all ranks
// op        must commute, unless the schedule is `direct` or `one_shot`
// epilogue  see epilogue.hpp
//
// All threads of the block call with the same arguments. What they wrote to `in` before is read, and what is in `out`
// can be read by all of them afterwards. Each call returns false, on all threads, if the group has failed: leave the
// kernel then; the host's next call on the communicator, or check(), throws the reason.
//
// Cost: 1 round for messages of up to 64 KB / n from one rank to another; for an all_reduce also 2, for up to 32 KB
// (the eager path; no more than options.small_bytes, and what fits options.packet_bytes). Else that of the schedule.

/// For the library: the call of `what`.
template <collective what, class Schedule, class T, class D, class Op, class Epilogue>
__device__ bool call(const ranks<Schedule>& r, int local, int channel, int root, const T* in, D* out, std::size_t count,
    const Op& op, const Epilogue& epilogue) {
    static_assert(implemented_by<Schedule> == what, "colls: ranks_for was given a schedule of another collective");
    static_assert(sizeof(T) <= detail::max_element_bytes, "colls: within kernels an element has at most 16 bytes");
    if constexpr (reduces(what))
        static_assert(detail::order_is_right<Schedule, T, Op>,
            "colls: this operator is not known to commute, and this schedule is not known to keep the order of ranks: "
            "take direct or one_shot");
    const detail::device_thread_group g;
    const int hops = detail::eager_hops<what, T>(r.info, count);
    const bool fits = blockDim.y == 1 && blockDim.z == 1 && blockDim.x % 32 == 0 && blockDim.x <= detail::block_threads;
    // Other ranks read what all threads have written; and the threads may use the block's shared memory otherwise.
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
        detail::set_call<what, T, D, Op, Epilogue>(r.info, local, root, in, out, count, hops);
        if (!fits) detail::give_up(g, channel, detail::failure::wrong_block, g.state().self.rank, none, 0);
    }
    __syncthreads();
    if (!fits) return false;
    const bool ok = hops != 0 ? detail::run_eager<what, T, D>(g, channel, op, epilogue)
                              : detail::run_schedule<T, D>(g, channel, r.schedule, op, epilogue);
    __syncthreads();  // all threads have written their part of the result
    return ok;
}

/// out[i] = epilogue(op over all ranks' in[i], i) for i < count, on every rank.
template <class Schedule, class T, class D, class Op, class Epilogue = no_epilogue>
__device__ bool all_reduce(const ranks<Schedule>& r, int local, int channel, const T* in, D* out, std::size_t count,
    const Op& op, const Epilogue& epilogue = {}) {
    return call<collective::all_reduce>(r, local, channel, 0, in, out, count, op, epilogue);
}
/// The same in the output of the root alone.
template <class Schedule, class T, class D, class Op, class Epilogue = no_epilogue>
__device__ bool reduce(const ranks<Schedule>& r, int local, int channel, const T* in, D* out, std::size_t count,
    const Op& op, int root, const Epilogue& epilogue = {}) {
    return call<collective::reduce>(r, local, channel, root, in, out, count, op, epilogue);
}
/// The same of each rank's own block, in an output of that block alone.
template <class Schedule, class T, class D, class Op, class Epilogue = no_epilogue>
__device__ bool reduce_scatter(const ranks<Schedule>& r, int local, int channel, const T* in, D* out, std::size_t count,
    const Op& op, const Epilogue& epilogue = {}) {
    return call<collective::reduce_scatter>(r, local, channel, 0, in, out, count, op, epilogue);
}
/// op over in[i] of the ranks up to this one.
template <class Schedule, class T, class Op>
__device__ bool inclusive_scan(
    const ranks<Schedule>& r, int local, int channel, const T* in, T* out, std::size_t count, const Op& op) {
    return call<collective::inclusive_scan>(r, local, channel, 0, in, out, count, op, no_epilogue{});
}
/// op over in[i] of the ranks before this one; rank 0's output is left as it is.
template <class Schedule, class T, class Op>
__device__ bool exclusive_scan(
    const ranks<Schedule>& r, int local, int channel, const T* in, T* out, std::size_t count, const Op& op) {
    return call<collective::exclusive_scan>(r, local, channel, 0, in, out, count, op, no_epilogue{});
}
/// The root's buffer, to all others.
template <class Schedule, class T>
__device__ bool broadcast(const ranks<Schedule>& r, int local, int channel, T* inout, std::size_t count, int root) {
    return call<collective::broadcast>(
        r, local, channel, root, static_cast<const T*>(inout), inout, count, detail::no_operator{}, no_epilogue{});
}
/// Rank i's block of the root's buffer, to rank i.
template <class Schedule, class T>
__device__ bool scatter(
    const ranks<Schedule>& r, int local, int channel, const T* in, T* out, std::size_t count, int root) {
    return call<collective::scatter>(r, local, channel, root, in, out, count, detail::no_operator{}, no_epilogue{});
}
/// The ranks' blocks, in the order of ranks, in the root's output.
template <class Schedule, class T>
__device__ bool gather(
    const ranks<Schedule>& r, int local, int channel, const T* in, T* out, std::size_t count, int root) {
    return call<collective::gather>(r, local, channel, root, in, out, count, detail::no_operator{}, no_epilogue{});
}
/// The ranks' blocks, in the order of ranks, on every rank.
template <class Schedule, class T>
__device__ bool all_gather(const ranks<Schedule>& r, int local, int channel, const T* in, T* out, std::size_t count) {
    return call<collective::all_gather>(r, local, channel, 0, in, out, count, detail::no_operator{}, no_epilogue{});
}
/// Block i of rank j's input is block j of rank i's output. `count`: of either, a multiple of the number of ranks. Not
/// in place.
template <class Schedule, class T>
__device__ bool all_to_all(const ranks<Schedule>& r, int local, int channel, const T* in, T* out, std::size_t count) {
    return call<collective::all_to_all>(r, local, channel, 0, in, out, count, detail::no_operator{}, no_epilogue{});
}
/// Waits for all ranks. What a rank's threads wrote before, those of all ranks can read afterwards.
template <class Schedule>
__device__ bool barrier(const ranks<Schedule>& r, int local, int channel) {
    detail::device_thread_group::fence();
    const bool ok = call<collective::barrier>(r, local, channel, 0, static_cast<const unsigned char*>(nullptr),
        static_cast<unsigned char*>(nullptr), 0, detail::no_operator{}, no_epilogue{});
    detail::device_thread_group::fence();
    return ok;
}

}  // namespace device
}  // namespace colls::inline v1::cuda
