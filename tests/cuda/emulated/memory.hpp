// The table of live allocations: the stand-in of the CUDA runtime fills it, each access of a kernel to global memory
// asks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace emulated {

enum class memory_kind {
    device,   ///< cudaMalloc
    managed,  ///< cudaMallocManaged
    pinned,   ///< cudaHostAlloc, cudaHostRegister
    mapped,   ///< of another process: cudaIpcOpenMemHandle
    multicast,
};

struct cell;  // what the machine knows about the accesses to 16 bytes: ordering.hpp

struct allocation {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    int device = 0;  ///< that owns the memory
    memory_kind kind = memory_kind::device;
    bool shared_out = false;  ///< other processes may write it: share_allocation
    cell* cells = nullptr;    ///< of each 16 bytes from `address`, rounded down, on; null if ordering is not checked

    bool contains(std::uintptr_t a, std::size_t n) const { return a - address < bytes && n <= bytes - (a - address); }
};

/// Adds live memory. Each byte may be in one allocation at most: std::invalid_argument otherwise.
void add_allocation(const void* address, std::size_t bytes, int device, memory_kind kind);

/// The memory at `address`, the start of an allocation, is live no longer: call it before the memory is given back,
/// when no kernel that may use it runs. False: there is no such allocation.
bool remove_allocation(const void* address);

/// From now on, another process may access the allocation that `address` lies in: cudaIpcGetMemHandle.
void share_allocation(const void* address);

/// The allocation that `address` lies in.
std::optional<allocation> find_allocation(const void* address);

/// Whether `address` was in an allocation that has been removed, and is in none now.
bool is_freed(const void* address);
/// Ends the mapping, and keeps its addresses: host memory that had them would be taken for memory that was freed.
void unmap_for_good(void* address, std::size_t bytes);

/// Multicast memory: kernels use [address, address + bytes) through multimem instructions only, which access the same
/// offset of each of `copies`, whose memory has been added before. remove_allocation ends it.
void add_multicast(const void* address, std::size_t bytes, std::span<void* const> copies);

/// Asked at a kernel's access to an allocation of another device: whether `device` may access it now. Without a rule,
/// all may. An answer is remembered until the next call of forget_access (call it when peer access is disabled).
void set_access_rule(bool (*may_access)(int device, const allocation&));
void forget_access();

}  // namespace emulated
