// Device memory that kernels of other ranks access: its lifetime.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/group/device_arena.hpp>
#include <colls/cuda/detail/group/multicast_memory.hpp>
#include <colls/cuda/detail/group/shared_buffers.hpp>
#include <colls/cuda/detail/runtime.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// The memory of a group that kernels of several ranks access: of all devices of a process, or of this process and what
/// it has mapped of the others. It is freed when no kernel can access it any more. Where the other processes do not
/// confirm that, it stays allocated until this process ends.
struct shared_allocations {
    std::vector<device_memory> owned;
    std::vector<pinned_memory> pinned;            ///< instead, where devices do not reach each other's memory
    std::vector<int> devices;                     ///< whose kernels access it, beside those of `owned`
    std::unique_ptr<multicast_memory> multicast;  ///< where it was asked for and is there
    std::unique_ptr<mapped_buffer> by_fabric;     ///< in place of `owned`, where ranks of other hosts reach it
    buffer_mappings mapped;                       ///< memory of other processes
    std::function<void()> synchronise_processes;  ///< a barrier over all processes; throws if one does not come
    std::shared_ptr<device_arena> arena;          ///< of owned memory that other processes have mapped

    shared_allocations() = default;
    shared_allocations(const shared_allocations&) = delete;
    ~shared_allocations() {
        for (const device_memory& m : owned) synchronise(m.device());
        for (const int d : devices) synchronise(d);
        mapped.clear();
        if (synchronise_processes) try {
                synchronise_processes();
            } catch (const std::exception&) {  // a process is late or dead, and its kernel may still be running
                for (device_memory& m : owned) m.leak();
                static_cast<void>(by_fabric.release());
                static_cast<void>(multicast.release());
            }
    }
};

}  // namespace colls::inline v1::cuda::detail
