// Devices and their memory.
#include "runtime.hpp"

#include <cuda.h>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace emulated {

namespace {

constexpr std::size_t page = 4096;
std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

thread_local int device_now = 0;

/// What the table of allocations does not know of one.
struct holding {
    std::size_t mapped = 0;
    int file = -1;  ///< of device memory: by which another process opens it
    bool pool = false;
    bool registered = false;  ///< the program's own memory
};
struct holdings {
    std::mutex mutex;
    std::map<const void*, holding> by_address;
};
holdings& held() {
    static holdings* const h = new holdings;
    return *h;
}

/// Enough descriptors for one a piece of device memory.
void raise_limit_of_files() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

const char* name_of(memory_kind kind) {
    return kind == memory_kind::pinned ? "host memory of the runtime" : "device memory";
}

cudaError_t allocate(void** at, std::size_t bytes, memory_kind kind, bool pool) {
    if (at == nullptr) return cudaErrorInvalidValue;
    *at = nullptr;
    if (bytes == 0) return cudaSuccess;
    holding h;
    h.pool = pool;
    h.mapped = whole_pages(bytes);
    const bool shareable = kind == memory_kind::device && !pool;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (shareable) {
        static const bool raised = (raise_limit_of_files(), true);
        static_cast<void>(raised);
        static std::atomic<int> files{0};
        h.file = memfd_create(("emulated-" + std::to_string(files.fetch_add(1))).c_str(), MFD_CLOEXEC);
        if (h.file < 0 || ftruncate(h.file, static_cast<off_t>(h.mapped)) != 0) {
            if (h.file >= 0) close(h.file);
            return cudaErrorMemoryAllocation;
        }
        flags = MAP_SHARED;
    }
    void* const memory = mmap(nullptr, h.mapped, PROT_READ | PROT_WRITE, flags, h.file, 0);
    if (memory == MAP_FAILED) {
        if (h.file >= 0) close(h.file);
        return cudaErrorMemoryAllocation;
    }
    // Memory that a program does not write first holds no zeros. (Of large memory the beginning.)
    std::memset(memory, 0xcd, h.mapped < (std::size_t{8} << 20) ? h.mapped : std::size_t{8} << 20);
    add_allocation(memory, bytes, current_device(), kind);
    {
        const std::lock_guard lock(held().mutex);
        held().by_address[memory] = h;
    }
    count_live(name_of(kind), 1);
    *at = memory;
    return cudaSuccess;
}

cudaError_t release(void* at) {
    const auto a = find_allocation(at);
    holding h;
    {
        const std::lock_guard lock(held().mutex);
        const auto i = held().by_address.find(at);
        if (i == held().by_address.end() || i->second.registered) return cudaErrorInvalidValue;
        h = i->second;
        held().by_address.erase(i);
    }
    remove_allocation(at);
    unmap_for_good(at, h.mapped);
    if (h.file >= 0) close(h.file);
    count_live(name_of(a->kind), -1);
    return cudaSuccess;
}

bool holds(const void* at) {
    const std::lock_guard lock(held().mutex);
    return held().by_address.contains(at);
}

}  // namespace

bool are_slices() { return setting("EMULATED_MIG", 0) != 0; }

/// The devices that this process sees, by their numbers on the machine. CUDA_VISIBLE_DEVICES lists them, up to the
/// first that there is not. Of slices a process sees one.
static const std::vector<int>& visible_devices() {
    static const std::vector<int> all = [] {
        std::vector<int> seen;
        const int there = setting("EMULATED_DEVICES", 1);
        const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
        for (int d = 0; visible == nullptr && d < there; ++d) seen.push_back(d);
        std::istringstream in(visible != nullptr ? visible : "");
        for (std::string d; std::getline(in, d, ',');) {
            char* end = nullptr;
            const long number = std::strtol(d.c_str(), &end, 10);
            if (end == d.c_str() || *end != '\0' || number < 0 || number >= there) break;
            seen.push_back(static_cast<int>(number));
        }
        if (are_slices() && !seen.empty()) seen.resize(1);
        return seen;
    }();
    return all;
}
int device_count() { return static_cast<int>(visible_devices().size()); }
int physical_device(int d) { return visible_devices()[static_cast<std::size_t>(d)]; }
CUuuid uuid_of(int d) {
    CUuuid uuid{};
    std::memcpy(uuid.bytes, "emulated device", 15);
    uuid.bytes[15] = static_cast<char>(physical_device(d));
    return uuid;
}
/// The number of the bus that a device of this process is on.
static int bus_of(int d) { return are_slices() ? 1 : physical_device(d) + 1; }
int multiprocessors() {
    static const int n = setting("EMULATED_SMS", 8);
    return n;
}
int current_device() { return device_now; }
bool is_device(int d) { return d >= 0 && d < device_count(); }
bool is_pageable(const void* at) { return !find_allocation(at).has_value(); }
bool is_memory(const void* at, std::size_t bytes) {
    if (bytes == 0) return true;
    const auto a = find_allocation(at);
    if (a) {
        const auto address = reinterpret_cast<std::uintptr_t>(at);
        if (a->contains(address, bytes)) return true;
        // Mappings of cuMemMap side by side are one range.
        const std::uintptr_t end = a->address + a->bytes;
        const auto next = find_allocation(reinterpret_cast<const void*>(end));
        return next && access_to_mapping(a->device, a->address) && access_to_mapping(next->device, end) &&
               is_memory(reinterpret_cast<const void*>(end), bytes - (end - address));
    }
    return at != nullptr && !is_freed(at);
}
bool is_pool_memory(const void* at) {
    const auto a = find_allocation(at);
    if (!a) return false;
    const std::lock_guard lock(held().mutex);
    const auto i = held().by_address.find(reinterpret_cast<const void*>(a->address));
    return i != held().by_address.end() && i->second.pool;
}
int file_of(const void* at) {
    const std::lock_guard lock(held().mutex);
    const auto i = held().by_address.find(at);
    return i == held().by_address.end() ? -1 : i->second.file;
}

}  // namespace emulated

using namespace emulated;

/// What a program on the emulator may define: a flush is a call of it.
extern "C" [[gnu::weak]] void emulated_flush();

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
    EMULATED_CALL("cudaDriverGetVersion");
    return *version = CUDART_VERSION, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    EMULATED_CALL("cudaRuntimeGetVersion");
    return *version = CUDART_VERSION, cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
    EMULATED_CALL("cudaGetDeviceCount");
    *n = device_count();
    return *n > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* d) {
    EMULATED_CALL("cudaGetDevice");
    if (device_count() == 0) return fail(cudaErrorNoDevice);
    *d = device_now;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
    EMULATED_CALL("cudaSetDevice");
    if (!is_device(d)) return fail(cudaErrorInvalidDevice);
    device_now = d;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    EMULATED_CALL("cudaDeviceSynchronize");
    if (const cudaError_t e = forbidden_in_capture("cudaDeviceSynchronize"); e != cudaSuccess) return fail(e);
    wait_for_device(device_now, "cudaDeviceSynchronize");
    return cudaSuccess;
}
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget, cudaFlushGPUDirectRDMAWritesScope) {
    EMULATED_CALL("cudaDeviceFlushGPUDirectRDMAWrites");
    if (emulated_flush != nullptr) emulated_flush();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int d) {
    EMULATED_CALL("cudaDeviceGetAttribute");
    if (!is_device(d)) return fail(cudaErrorInvalidDevice);
    switch (what) {
        case cudaDevAttrMultiProcessorCount:
            *value = multiprocessors();
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *value = 9;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = 0;
            break;
        case cudaDevAttrMaxThreadsPerBlock:
            *value = 1024;
            break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = 2048;
            break;
        case cudaDevAttrMaxBlocksPerMultiprocessor:
            *value = 32;
            break;
        case cudaDevAttrWarpSize:
            *value = 32;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = 48 << 10;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = 227 << 10;
            break;
        case cudaDevAttrCooperativeLaunch:
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrCanMapHostMemory:
        case cudaDevAttrManagedMemory:
        case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrMemoryPoolsSupported:
            *value = 1;
            break;
        case cudaDevAttrGPUDirectRDMASupported:
            *value = setting("EMULATED_DIRECT", 1) > 0;
            break;
        case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
            *value = setting("EMULATED_DIRECT", 1) == 1 ? cudaFlushGPUDirectRDMAWritesOptionHost : 0;
            break;
        case cudaDevAttrGPUDirectRDMAWritesOrdering:
            *value = setting("EMULATED_DIRECT", 1) == 3 ? cudaGPUDirectRDMAWritesOrderingOwner
                                                        : cudaGPUDirectRDMAWritesOrderingNone;
            break;
        case cudaDevAttrMemSyncDomainCount:
            *value = 4;
            break;
        case cudaDevAttrPageableMemoryAccess:
        case cudaDevAttrHostNativeAtomicSupported:
            *value = 0;
            break;
        default:
            stop("cudaDeviceGetAttribute: attribute " + std::to_string(static_cast<int>(what)) +
                 " is not emulated: add it to devices.cpp");
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
    EMULATED_CALL("cudaGetDeviceProperties");
    if (!is_device(d)) return fail(cudaErrorInvalidDevice);
    *p = {};
    std::snprintf(p->name, sizeof p->name, "emulator");
    p->uuid = uuid_of(d);
    p->major = 9;
    p->totalGlobalMem = std::size_t{16} << 30;
    p->multiProcessorCount = multiprocessors();
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->cooperativeLaunch = p->unifiedAddressing = p->managedMemory = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int room, int d) {
    EMULATED_CALL("cudaDeviceGetPCIBusId");
    if (!is_device(d)) return fail(cudaErrorInvalidDevice);
    std::snprintf(text, static_cast<std::size_t>(room), "0000:%02x:00.0", bus_of(d));
    return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* d, const char* text) {
    EMULATED_CALL("cudaDeviceGetByPCIBusId");
    unsigned bus = 0;
    if (std::sscanf(text, "0000:%x:00.0", &bus) == 1)
        for (int seen = 0; seen < device_count(); ++seen)
            if (bus_of(seen) == static_cast<int>(bus)) return *d = seen, cudaSuccess;
    return fail(cudaErrorInvalidDevice);
}

// Memory. cudaMalloc and cudaFree may have to change the map of a device's memory, and then wait for its kernels: a
// program that calls them while a kernel waits for it can stand still, and here does.
cudaError_t cudaMalloc(void** at, std::size_t bytes) {
    EMULATED_CALL("cudaMalloc");
    if (const cudaError_t e = forbidden_in_capture("cudaMalloc"); e != cudaSuccess) return fail(e);
    wait_for_kernels(device_now, "cudaMalloc");
    return fail(allocate(at, bytes, memory_kind::device, false));
}
cudaError_t cudaMallocManaged(void** at, std::size_t bytes, unsigned) {
    EMULATED_CALL("cudaMallocManaged");
    if (const cudaError_t e = forbidden_in_capture("cudaMallocManaged"); e != cudaSuccess) return fail(e);
    return fail(allocate(at, bytes, memory_kind::managed, false));
}
static cudaError_t allocate_host(void** at, std::size_t bytes, const char* call) {
    if (const cudaError_t e = forbidden_in_capture(call); e != cudaSuccess) return fail(e);
    wait_for_kernels(device_now, call);
    return fail(allocate(at, bytes, memory_kind::pinned, false));
}
cudaError_t cudaHostAlloc(void** at, std::size_t bytes, unsigned) {
    EMULATED_CALL("cudaHostAlloc");
    return allocate_host(at, bytes, "cudaHostAlloc");
}
cudaError_t cudaMallocHost(void** at, std::size_t bytes) {
    EMULATED_CALL("cudaMallocHost");
    return allocate_host(at, bytes, "cudaMallocHost");
}
cudaError_t cudaFree(void* at) {
    EMULATED_CALL("cudaFree");
    if (at == nullptr) return cudaSuccess;
    if (const cudaError_t e = forbidden_in_capture("cudaFree"); e != cudaSuccess) return fail(e);
    const auto a = find_allocation(at);
    if (!a || a->kind == memory_kind::pinned || a->kind == memory_kind::mapped || !holds(at))
        return fail(cudaErrorInvalidValue);
    wait_for_device(a->device, "cudaFree");
    return fail(release(at));
}
cudaError_t cudaFreeHost(void* at) {
    EMULATED_CALL("cudaFreeHost");
    if (at == nullptr) return cudaSuccess;
    if (const cudaError_t e = forbidden_in_capture("cudaFreeHost"); e != cudaSuccess) return fail(e);
    const auto a = find_allocation(at);
    if (!a || a->kind != memory_kind::pinned || !holds(at)) return fail(cudaErrorInvalidValue);
    for (int d = 0; d < device_count(); ++d) wait_for_device(d, "cudaFreeHost");
    return fail(release(at));
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    EMULATED_CALL("cudaHostGetDevicePointer");
    const auto a = find_allocation(host);
    if (!a || a->kind != memory_kind::pinned) return fail(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void* at, std::size_t bytes, unsigned) {
    EMULATED_CALL("cudaHostRegister");
    if (at == nullptr || bytes == 0) return fail(cudaErrorInvalidValue);
    if (find_allocation(at)) return fail(cudaErrorHostMemoryAlreadyRegistered);
    add_allocation(at, bytes, device_now, memory_kind::pinned);
    {
        const std::lock_guard lock(held().mutex);
        held().by_address[at] = {.registered = true};
    }
    count_live("registered host memory", 1);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
    EMULATED_CALL("cudaHostUnregister");
    {
        const std::lock_guard lock(held().mutex);
        const auto i = held().by_address.find(at);
        if (i == held().by_address.end() || !i->second.registered) return fail(cudaErrorHostMemoryNotRegistered);
        held().by_address.erase(i);
    }
    for (int d = 0; d < device_count(); ++d) wait_for_device(d, "cudaHostUnregister");
    remove_allocation(at);
    count_live("registered host memory", -1);
    return cudaSuccess;
}
// Pool memory: no other device reaches it, and no other process. Its allocation and its end are ordered by the stream;
// here it is allocated at once, which no kernel can tell from outside.
cudaError_t cudaMallocAsync(void** at, std::size_t bytes, cudaStream_t s) {
    EMULATED_CALL("cudaMallocAsync");
    if (!stream_of(s)) return fail(cudaErrorInvalidResourceHandle);
    if (const cudaError_t e = forbidden_in_capture("cudaMallocAsync"); e != cudaSuccess) return fail(e);
    return fail(allocate(at, bytes, memory_kind::device, true));
}
cudaError_t cudaFreeAsync(void* at, cudaStream_t s) {
    EMULATED_CALL("cudaFreeAsync");
    if (!is_pool_memory(at)) return fail(cudaErrorInvalidValue);
    return fail(enqueue(s, [at] { release(at); }));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* p, const void* at) {
    EMULATED_CALL("cudaPointerGetAttributes");
    *p = {};
    p->device = -2;
    const auto a = find_allocation(at);
    if (!a) {
        p->type = cudaMemoryTypeUnregistered;
        return cudaSuccess;
    }
    p->device = a->device;
    p->devicePointer = const_cast<void*>(at);
    p->type = a->kind == memory_kind::pinned    ? cudaMemoryTypeHost
              : a->kind == memory_kind::managed ? cudaMemoryTypeManaged
                                                : cudaMemoryTypeDevice;
    if (p->type != cudaMemoryTypeDevice) p->hostPointer = const_cast<void*>(at);
    return cudaSuccess;
}

// What cudaGetDriverEntryPoint hands out.
static CUresult emulated_cuPointerGetAttribute(void* answer, CUpointer_attribute what, CUdeviceptr at) {
    const auto* const p = reinterpret_cast<const void*>(at);
    const auto a = find_allocation(p);
    if (!a) return CUDA_ERROR_INVALID_VALUE;
    const bool device = a->kind == memory_kind::device || a->kind == memory_kind::mapped;
    switch (what) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *static_cast<unsigned*>(answer) =
                a->kind == memory_kind::pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            *static_cast<int*>(answer) = device && a->kind != memory_kind::mapped && !is_pool_memory(p) &&
                                         !access_to_mapping(a->device, a->address);
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            *static_cast<void**>(answer) = is_pool_memory(p) ? &held() : nullptr;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *static_cast<int*>(answer) = a->device;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *static_cast<CUdeviceptr*>(answer) = a->address;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *static_cast<std::size_t*>(answer) = a->bytes;
            return CUDA_SUCCESS;
        default:
            stop("cuPointerGetAttribute: attribute " + std::to_string(static_cast<int>(what)) +
                 " is not emulated: add it to devices.cpp");
    }
}
static CUresult emulated_cuPointerGetAttributes(unsigned n, CUpointer_attribute* what, void** answers, CUdeviceptr at) {
    for (unsigned i = 0; i < n; ++i)
        if (const CUresult r = emulated_cuPointerGetAttribute(answers[i], what[i], at); r != CUDA_SUCCESS) return r;
    return CUDA_SUCCESS;
}
/// A dma-buf is a file without bytes, which a program can count.
static CUresult emulated_cuMemGetHandleForAddressRange(
    void* handle, CUdeviceptr at, std::size_t bytes, CUmemRangeHandleType type, unsigned long long) {
    const auto a = find_allocation(reinterpret_cast<const void*>(at));
    if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || !a || a->kind != memory_kind::device || at % 4096 != 0 ||
        bytes % 4096 != 0 || at + bytes > a->address + a->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *static_cast<int*>(handle) = memfd_create("emulated dma-buf", MFD_CLOEXEC);
    return CUDA_SUCCESS;
}
static CUresult emulated_cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at) {
    const auto a = find_allocation(reinterpret_cast<const void*>(at));
    if (!a) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = a->address;
    if (bytes != nullptr) *bytes = a->bytes;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** f, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* found) {
    EMULATED_CALL("cudaGetDriverEntryPointByVersion");
    const std::string_view wanted = name;
    *f = nullptr;
    if (wanted == "cuPointerGetAttribute") *f = reinterpret_cast<void*>(&emulated_cuPointerGetAttribute);
    if (wanted == "cuPointerGetAttributes") *f = reinterpret_cast<void*>(&emulated_cuPointerGetAttributes);
    if (wanted == "cuMemGetHandleForAddressRange")
        *f = reinterpret_cast<void*>(&emulated_cuMemGetHandleForAddressRange);
    if (wanted == "cuMemGetAddressRange") *f = reinterpret_cast<void*>(&emulated_cuMemGetAddressRange);
    if (*f == nullptr) *f = virtual_memory_function(wanted);
    if (found != nullptr) *found = *f != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/// EMULATED_BOOT: what the system says of the host's boot. What follows a dot in it is the clique of the host's
/// devices.
std::FILE* fopen(const char* path, const char* how) {
    static auto* const of_system =
        reinterpret_cast<std::FILE* (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "fopen"));
    char* const boot = std::getenv("EMULATED_BOOT");
    if (boot == nullptr || std::strcmp(path, "/proc/sys/kernel/random/boot_id") != 0) return of_system(path, how);
    return fmemopen(boot, std::strlen(boot), "r");
}
// The management library.
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void**) { return 0; }
int nvmlDeviceGetGpuFabricInfo(void*, void* to) {
    struct {
        unsigned char cluster[16] = {1};
        int status = 0;
        unsigned clique = 0;
        unsigned char state = 3;  // completed
    } info;
    const char* const boot = std::getenv("EMULATED_BOOT");
    const char* const clique = boot != nullptr ? std::strchr(boot, '.') : nullptr;
    if (clique == nullptr) return 3;  // not supported
    info.clique = static_cast<unsigned>(std::atoi(clique + 1));
    std::memcpy(to, &info, sizeof info);
    return 0;
}

}  // extern "C"
