// The stand-in of the CUDA runtime: what its parts share. Programs see it through <cuda_runtime_api.h> alone.
//
//   devices.cpp   devices, memory, what a pointer is
//   sharing.cpp   memory between devices and processes
//   virtual_memory.cpp   memory of cuMemCreate, multicast memory
//   streams.cpp   order of work, events, graphs, copies
//   launches.cpp  kernels
//   faults.cpp    errors on purpose, and what was not given back
//
// docs/emulator.md lists the environment variables.
#pragma once

#include "kernels.hpp"
#include "memory.hpp"

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace emulated {

// ---- settings and errors

int setting(const char* name, int otherwise);
int device_count();
int multiprocessors();
double patience();  ///< seconds

/// The error that the calling thread has: keeps it for cudaGetLastError, and returns it.
cudaError_t fail(cudaError_t);
/// The calls that EMULATED_FAIL can make fail: all that return an error, but for those that ask for the last one.
inline constexpr std::string_view known_calls[] = {
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMulticastAddDevice",
    "cuMulticastBindMem",
    "cuMulticastCreate",
    "cuMulticastGetGranularity",
    "cuMulticastUnbind",
    "cudaDeviceCanAccessPeer",
    "cudaDeviceDisablePeerAccess",
    "cudaDeviceEnablePeerAccess",
    "cudaDeviceFlushGPUDirectRDMAWrites",
    "cudaDeviceGetAttribute",
    "cudaDeviceGetByPCIBusId",
    "cudaDeviceGetP2PAttribute",
    "cudaDeviceGetPCIBusId",
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaEventCreate",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
    "cudaFuncGetAttributes",
    "cudaFuncSetAttribute",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaGetDriverEntryPointByVersion",
    "cudaGetSymbolAddress",
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudaGraphInstantiate",
    "cudaGraphLaunch",
    "cudaHostAlloc",
    "cudaHostGetDevicePointer",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaIpcCloseMemHandle",
    "cudaIpcGetMemHandle",
    "cudaIpcOpenMemHandle",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchHostFunc",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMallocHost",
    "cudaMallocManaged",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemcpyFromSymbol",
    "cudaMemcpyPeerAsync",
    "cudaMemcpyToSymbol",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaPointerGetAttributes",
    "cudaRuntimeGetVersion",
    "cudaSetDevice",
    "cudaStreamBeginCapture",
    "cudaStreamCreate",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamEndCapture",
    "cudaStreamGetDevice",
    "cudaStreamGetId",
    "cudaStreamIsCapturing",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaThreadExchangeStreamCaptureMode",
};
consteval bool is_known_call(std::string_view name) {
    for (const std::string_view known : known_calls)
        if (known == name) return true;
    return false;
}
/// The error with which EMULATED_FAIL makes this call fail, or cudaSuccess. Each call counts itself by it.
cudaError_t injected(const char* call);
/// Stops the program: a deadlock, or a use that CUDA leaves undefined.
[[noreturn]] void stop(const std::string& why);

#define EMULATED_CALL(name)                                                                         \
    static_assert(is_known_call(name));                                                             \
    if (const cudaError_t emulated_error = emulated::injected(name); emulated_error != cudaSuccess) \
    return emulated::fail(emulated_error)

/// Counts what a program holds: live objects of a kind, listed at its end if they are not given back.
void count_live(const char* kind, int change);

// ---- devices.cpp

int current_device();
bool is_device(int);
/// The number of a device on the machine, of which a process may see a part.
int physical_device(int);
/// Are the devices slices of one GPU (EMULATED_MIG)?
bool are_slices();
/// A device's UUID: the same in all processes.
CUuuid uuid_of(int);
/// Host memory that the runtime knows nothing of.
bool is_pageable(const void*);
/// Every byte is in one live allocation, or all are pageable.
bool is_memory(const void*, std::size_t bytes);
bool is_pool_memory(const void*);
/// The file of device memory, by which another process opens it; -1 if there is none.
int file_of(const void* allocation);

// ---- virtual_memory.cpp

/// May the device access the mapping that begins there? Nothing where no mapping of cuMemMap does.
std::optional<bool> access_to_mapping(int device, std::uintptr_t at);
/// The driver's function of that name; null: there is none here.
void* virtual_memory_function(std::string_view name);

// ---- streams.cpp

struct stream;

struct ticket {
    std::shared_ptr<stream> of;
    std::uint64_t number = 0;            ///< of the work after which it is over
    std::shared_ptr<const order> end{};  ///< what is ordered before what waits for it, once it is over
};

/// The stream behind a handle, and the legacy stream of the current device behind null; null for a handle of no stream.
std::shared_ptr<stream> stream_of(cudaStream_t);
int device_of(const stream&);
/// Appends work to a stream, or to the graph that the stream is captured into. `own`: set to when it is over, unless
/// captured.
cudaError_t enqueue(cudaStream_t, std::function<void()>, ticket* own = nullptr);
/// What has been done is then before the caller: the host, or the work that a stream does.
void wait_for(const ticket&);
bool is_over(const ticket&);
/// What is ordered before the work that this thread does for a stream, and then before what comes after it.
order& order_of_work();
/// Waits for all work of a device. `call`: for the report of a deadlock.
void wait_for_device(int device, const char* call);
/// True while a stream is captured; then `call` fails on this thread unless its capture mode is relaxed, and spoils the
/// capture.
cudaError_t forbidden_in_capture(const char* call);

// ---- launches.cpp

/// Names the kernels that run on a device: for reports.
std::string running_kernels(int device);
/// Waits until no kernel runs on the device, as calls do that change its memory map. Reports a deadlock.
void wait_for_kernels(int device, const char* call);

}  // namespace emulated
