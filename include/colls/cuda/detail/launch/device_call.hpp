// Calls that a user's kernel makes: what the kernel is handed, and how a block turns its arguments into a kernel_call.
// IWYU pragma: private, include <colls/cuda/device.hpp>
#pragma once

#include <colls/cuda/detail/kernel/kernels.hpp>
#include <colls/cuda/detail/launch/launch.hpp>

namespace colls::inline v1::cuda::detail {

/// The largest element of calls within kernels: for scratch memory, which is checked on the host.
inline constexpr std::uint64_t max_element_bytes = 16;

/// What calls within kernels share, of one schedule on one group.
struct device_call_info {
    const rank_handle* handles = nullptr;  ///< of each local rank
    kernel_call common;                    ///< the slot map
    std::uint64_t fingerprint = 0, scratch_bytes = 0, chunk_bytes = 0;
    std::uint64_t small_bytes = 0, eager_bytes = 0;
    reachable_memory reachable;
    std::int32_t scratch_needed = 0, ranks = 1;
};

/// Throws unsupported, wrong_schedule.
inline device_call_info make_device_call_info(local_ranks& ranks, const stored_slot_map& m) {
    const workspace_layout& sizes = ranks.sizes();
    const std::uint64_t slots = 2 * static_cast<std::uint64_t>(m.map.width);
    if (sizes.scratch_bytes / slots < slot_bytes(quantum, max_element_bytes)) {
        const int rank = ranks.ranks().front().rank;
        throw error(errc::unsupported,
            (error_text() << "colls: cuda: ranks_for on rank " << rank << ": options.scratch_bytes has no room for "
                          << static_cast<std::size_t>(slots) << " slots of this schedule: raise it")
                .text(),
            rank);
    }
    device_call_info info;
    info.handles = ranks.handles();
    info.common.slots = m.slots;
    info.common.overwrites = m.overwrites;
    info.common.width = m.map.width;
    info.common.keeps_input = m.map.keeps_input;
    info.common.user_blocks = m.map.blocks;
    info.fingerprint = m.map.fingerprint;
    info.small_bytes = ranks.chosen_options().small_bytes;
    info.eager_bytes = sizes.eager_bytes;
    info.scratch_bytes = sizes.scratch_bytes;
    info.chunk_bytes = ranks.chosen_options().chunk_bytes;
    if (ranks.far())
        info.chunk_bytes = std::min<std::uint64_t>(
            info.chunk_bytes, chunk_for_windows(ranks, m.map, max_element_bytes) * max_element_bytes);
    info.reachable = ranks.reachable();  // where it names shared buffers, of those at the time of a call
    info.scratch_needed = m.map.scratch_needed;
    info.ranks = ranks.size();
    return info;
}

/// See check_launch.
inline void check_kernel(local_ranks& ranks, const void* kernel, int blocks, int threads, std::size_t dynamic_shared) {
    const int rank = ranks.ranks().front().rank;
    error_text why;
    why << "colls: cuda: check_launch on rank " << rank << ": blocks of " << threads << " threads: ";
    if (threads < 32 || threads > block_threads || threads % 32 != 0)
        throw error(errc::invalid_argument,
            (why << "calls take blocks of 32 to " << block_threads << " threads, a multiple of 32").text(), rank);
    const device_guard guard(ranks.device());
    cudaFuncAttributes a{};
    check(cudaFuncGetAttributes(&a, kernel), "cudaFuncGetAttributes (is the program compiled for this device?)", rank);
    if (threads > a.maxThreadsPerBlock)
        throw error(errc::unsupported,
            (why << "the kernel takes " << a.numRegs << " registers a thread, so that a block of it has at most "
                 << a.maxThreadsPerBlock << ": declare it __launch_bounds__(" << threads << "), or take fewer")
                .text(),
            rank);
    int each = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, dynamic_shared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor", rank);
    if (const int most = each * multiprocessors(ranks.device()); blocks > most)
        throw error(errc::unsupported,
            (why << blocks << " are to be resident at once, and the device holds " << most << ": launch fewer").text(),
            rank);
}

/// Hops of a call on the eager path; 0: it goes by the schedule.
template <collective what, class T>
__device__ int eager_hops(const device_call_info& info, std::size_t count) {
    const auto blocks = static_cast<std::uint64_t>(sends_blocks(what) ? info.ranks : 1);
    const std::uint64_t bytes = divided(count + blocks - 1, blocks).whole * sizeof(T);
    for (int hops = 1; bytes <= info.small_bytes && hops <= most_hops(what, info.ranks); ++hops)
        if (eager_room<T>(bytes, info.ranks, hops) <= info.eager_bytes) return hops;
    return 0;
}

/// Sets a call of local rank `local` in the block's state. `count`: elements of all blocks together. By one thread.
template <collective what, class T, class D, class Op, class Epilogue>
__device__ void set_call(
    const device_call_info& info, int local, int root, const T* in, D* out, std::size_t count, int hops) {
    constexpr collective_traits is = traits_of(what);
    block_state& state = device_thread_group::state();
    state.self = info.handles[local];
    const int rank = state.self.rank;
    const auto shared = [&](const void* at, content has, bool at_root, std::size_t size) {
        if (has == content::nothing || (at_root && rank != root)) return shared_address{};
        const std::uint64_t all =
            has == content::own_block
                ? balanced(count, static_cast<std::uint64_t>(info.ranks), static_cast<std::uint64_t>(rank)).count
                : count;
        return info.reachable.address_of(reinterpret_cast<std::uint64_t>(at), all * size);
    };
    kernel_call& c = state.call;
    c = info.common;
    c.in = reinterpret_cast<const std::byte*>(in);
    c.out = reinterpret_cast<std::byte*>(out);
    c.in_where = shared(in, is.in, is.in_at_root, sizeof(T));
    c.out_where = shared(out, is.out, is.out_at_root, sizeof(D));
    c.count = count;
    c.root = root;
    c.fingerprint = mixed(mixed(mixed(info.fingerprint, count), sizeof(T)), static_cast<std::uint64_t>(root));
    if (hops != 0) {
        c.user_blocks = sends_blocks(what) ? info.ranks : 1;
        c.chunks = hops;
        return;
    }
    constexpr bool is_plain = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>,
                   stages = has_leaf<Op, accumulator<T, Op>>;
    c.chunk = chunk_elements<T>(info.chunk_bytes);
    if (info.scratch_needed != 0 || !is_plain || stages || info.reachable.all == 0) {
        // Each slot, and its landing slot, has to fit into scratch memory.
        const std::uint64_t most =
            chunk_within(info.scratch_bytes / (2 * static_cast<std::uint64_t>(c.width)), sizeof(T));
        if (most < c.chunk) c.chunk = most;
    }
    c.chunks = static_cast<std::int32_t>(
        chunks_needed(balanced(count, static_cast<std::uint64_t>(c.user_blocks), 0).count, 1, c.chunk));
}

}  // namespace colls::inline v1::cuda::detail
