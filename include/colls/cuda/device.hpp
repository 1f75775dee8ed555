// Collectives called from a user's own kernel.
//
// A call is made by all threads of a block, together with the blocks of the same channel at the other ranks; each block
// is a group of its own, so that a kernel may call once a row. All ranks make the same calls on a channel, in the same
// order. The kernel must be launched so that all its blocks are resident at once (cudaLaunchCooperativeKernel), with at
// most 512 threads a block, a multiple of 32. The calls use about 10 KB of its static shared memory, once.
//
//     __global__ void step(colls::cuda::device::ranks<colls::schedule_for<colls::direct,
//     colls::collective::all_reduce>> r, float* x) {
//         colls::cuda::device::all_reduce(r, local, channel, x, x, count, colls::sum_t{});   // in kernels: the type
//
// A call returns false where the group has failed: then leave the kernel; the host's next call, or check(), says why.
#pragma once

#include <colls/detail/cuda/kernels.hpp>
#include <colls/detail/cuda/submit.hpp>

namespace colls::inline v1::cuda {
namespace device {

/// Of an element, in calls within kernels.
inline constexpr std::uint64_t most_bytes_of_element = 16;

/// What a kernel is handed: pass it by value. Made on the host by ranks_for.
template <class Schedule>
struct ranks {
    const detail::team* teams = nullptr;
    std::int32_t locals = 1, channels = 1;
    detail::call table;  // the schedule's map
    std::uint64_t fingerprint = 0, small_bytes = 0, scratch_bytes = 0, chunk_bytes = 0;
    std::uint64_t arena = 0, arena_bytes = 0;
    std::int32_t everywhere = 1, scratch_needed = 0;
    Schedule schedule;

    /// Local rank `local`'s number in the group, and the group's size.
    __device__ int rank(int local) const { return teams[local].rank; }
    __device__ int size() const { return teams[0].sizes.ranks; }
};

}  // namespace device

/// For kernels of one's own: S on this group's ranks. Throws unsupported, wrong_schedule. The group must outlive the
/// kernels.
template <class S, class Comm>
device::ranks<S> ranks_for(Comm& comm, const S& s = {}) {
    static_assert(implemented_by<S> == collective::all_reduce, "colls: within kernels there is all_reduce");
    detail::members& m = comm.members();
    const detail::kept_map& k = m.map_for(s);
    if (m.sizes().scratch_bytes / (2 * static_cast<std::uint64_t>(k.map.width)) <
        detail::slot_bytes(detail::quantum, device::most_bytes_of_element))
        throw error(errc::unsupported,
            "colls: cuda: ranks_for: options.scratch_bytes has no room for the slots of this schedule",
            m.locals().front().rank);
    device::ranks<S> r;
    r.teams = m.teams();
    r.locals = static_cast<std::int32_t>(m.locals().size());
    r.channels = m.sizes().blocks;
    r.table.slots = k.slots;
    r.table.overwrites = k.overwrites;
    r.table.width = k.map.width;
    r.table.user_blocks = k.map.blocks;
    r.fingerprint = detail::mixed(k.map.fingerprint, detail::name_hash<S>());
    r.small_bytes = std::min<std::uint64_t>(m.sizes().letter_bytes, m.chosen().small_bytes);
    r.scratch_bytes = m.sizes().scratch_bytes;
    r.chunk_bytes = m.chosen().chunk_bytes;
    r.arena = m.arena();
    r.arena_bytes = m.arena_bytes();
    r.everywhere = m.everywhere();
    r.scratch_needed = k.map.scratch_needed;
    r.schedule = s;
    return r;
}

namespace device {

/// out[i] = epilogue(the combination of all ranks' in[i], i), i < count; `in` may be `out`. Every thread of the block
/// calls, with the same arguments; what they wrote to `in` before the call is read, and what they read from `out` after
/// it is there. `local`: which of this device's ranks the block is of (0, but for virtual_ranks); `channel` <
/// r.channels. Messages of up to 8 KB go in one hop. Cost otherwise: the schedule's.
template <class Schedule, class T, class D, class Op, class Epilogue = no_epilogue>
__device__ bool all_reduce(const ranks<Schedule>& r, int local, int channel, const T* in, D* out, std::size_t count,
    const Op& op, const Epilogue& epilogue = {}) {
    using namespace detail;
    static_assert(implemented_by<Schedule> == collective::all_reduce);
    static_assert(sizeof(T) <= most_bytes_of_element, "colls: within kernels an element has at most 16 bytes");
    static_assert(is_commutative<Op, accumulator<T, Op>> || keeps_order<Schedule>,
        "colls: this schedule may not keep the order of ranks: take direct or one_shot");
    const auto where = [&](const void* at, std::uint64_t bytes) -> reachable {
        const auto address = reinterpret_cast<std::uint64_t>(at);
        if (r.everywhere != 0) return {address, reachable::everywhere, 0};
        if (address >= r.arena && address + bytes <= r.arena + r.arena_bytes) return {address - r.arena, 1, 0};
        return {0, reachable::hidden, 0};
    };
    const device_group g;
    blackboard& board = g.board();
    call& c = board.now;
    const bool small = count * sizeof(T) <= r.small_bytes;
    // The data of all threads, before others are told of it; and the board, which the threads may have used otherwise.
    __syncthreads();
    if (threadIdx.x == 0) {
        board.us = r.teams[local];
        c = r.table;
        c.in = reinterpret_cast<const std::byte*>(in);
        c.out = reinterpret_cast<std::byte*>(out);
        c.in_where = where(in, count * sizeof(T));
        c.out_where = where(out, count * sizeof(D));
        c.count = count;
        c.fingerprint = mixed(mixed(r.fingerprint, count), sizeof(T));
        if (small) {
            c.user_blocks = 1;
        } else {
            constexpr bool as_it_is = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>;
            std::uint64_t bytes = r.chunk_bytes;
            if (r.scratch_needed != 0 || !as_it_is || r.everywhere == 0) {
                const std::uint64_t room = r.scratch_bytes / (2 * static_cast<std::uint64_t>(c.width)) / 128 * 128,
                                    more = quantum * sizeof(T) + 128;
                if (room < bytes + more) bytes = room - more;
            }
            c.chunk = bytes / sizeof(T) < quantum ? quantum : bytes / sizeof(T) / quantum * quantum;
            c.chunks = static_cast<std::int32_t>(
                chunks_needed(balanced(count, static_cast<std::uint64_t>(c.user_blocks), 0).count, 1, c.chunk));
        }
    }
    __syncthreads();
    const bool ok = small ? run_small<collective::all_reduce, T, D>(g, channel, op, epilogue)
                          : run_body<T, D>(g, channel, r.schedule, op, epilogue);
    __syncthreads();  // the results of all threads
    return ok;
}

}  // namespace device
}  // namespace colls::inline v1::cuda
