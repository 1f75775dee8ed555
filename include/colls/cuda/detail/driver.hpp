// The functions of the CUDA driver that the runtime has no equal of, found at run time: nothing links libcuda.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/runtime.hpp>
#include <colls/detail/support/descriptor.hpp>

#include <cuda.h>

#include <dlfcn.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace colls::inline v1::cuda::detail {

/// The driver's function of that name, as it was in CUDA 12.0, or 12.1, which added multicast memory: a driver refuses
/// versions later than its own. Null where it has none.
template <class Function>
Function* driver_function(const char* name) {
    [[maybe_unused]] const unsigned version = std::string_view(name).starts_with("cuMulticast") ? 12010 : 12000;
    void* f = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault, &found);
#else
    const cudaError_t code = cudaGetDriverEntryPoint(name, &f, cudaEnableDefault, &found);
#endif
    if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) return reinterpret_cast<Function*>(f);
    cudaGetLastError();
    return nullptr;
}

/// Calls the driver's function of that name; CUDA_ERROR_NOT_FOUND where it has none.
template <class... X>
CUresult try_driver(const char* name, X... x) {
    auto* const f = driver_function<CUresult(X...)>(name);
    return f == nullptr ? CUDA_ERROR_NOT_FOUND : f(x...);
}
/// The same; throws unsupported where it fails.
template <class... X>
void call_driver(const char* name, X... x) {
    const CUresult code = try_driver(name, x...);
    if (code == CUDA_SUCCESS) return;
    throw error(errc::unsupported,
        (error_text() << name
                      << (code == CUDA_ERROR_NOT_FOUND
                                 ? ": cudaGetDriverEntryPointByVersion finds no such function, or it failed with error "
                                 : " failed with error ")
                      << static_cast<int>(code) << " of the driver")
            .text());
}

/// The UUID of a device, which no other one has, whatever its number in a process: a slice of a GPU in MIG mode has the
/// GPU's bus id, and a UUID of its own.
using device_uuid = std::array<char, 16>;
inline device_uuid uuid_of(int number) {
    CUdevice device = 0;
    CUuuid uuid{};
    call_driver("cuDeviceGet", &device, number);
    call_driver("cuDeviceGetUuid", &uuid, device);
    return std::to_array(uuid.bytes);
}

/// A part of a fabric of GPUs, perhaps of several hosts (NVLink), which map each other's memory. All zero: of none.
struct fabric_clique {
    unsigned char cluster[16];
    std::uint32_t number;
    bool operator==(const fabric_clique&) const = default;
};
/// That of a device, by its PCI address. The management library says it (nvmlGpuFabricInfo_t), which nothing links.
inline fabric_clique clique_of(const char* pci) {
    static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    const auto call = [](const char* name, auto... x) {
        void* const f = library != nullptr ? dlsym(library, name) : nullptr;
        return f != nullptr && reinterpret_cast<int (*)(decltype(x)...)>(f)(x...) == 0;
    };
    struct {
        unsigned char cluster[16];
        int status;
        unsigned clique;
        unsigned char state;
    } info{};
    fabric_clique c{};
    void* device = nullptr;
    if (!call("nvmlInit_v2")) return c;
    constexpr int completed = 3;
    if (call("nvmlDeviceGetHandleByPciBusId_v2", pci, &device) &&
        call("nvmlDeviceGetGpuFabricInfo", device, static_cast<void*>(&info)) && info.state == completed &&
        info.status == 0 && std::memcmp(info.cluster, c.cluster, sizeof c.cluster) != 0) {
        std::memcpy(c.cluster, info.cluster, sizeof c.cluster);
        c.number = info.clique;
    }
    call("nvmlShutdown");
    return c;
}

/// A dma-buf of memory from cudaMalloc on the current device, in whole pages; none where the driver exports none.
inline v1::detail::descriptor dmabuf_of(std::byte* at, std::size_t bytes) {
    int file = -1;
    const CUresult code = try_driver("cuMemGetHandleForAddressRange", static_cast<void*>(&file),
        reinterpret_cast<CUdeviceptr>(at), bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ull);
    return code == CUDA_SUCCESS ? v1::detail::descriptor(file) : v1::detail::descriptor();
}

/// The allocation in which `at` lies, as the driver sees it: of cudaMalloc, or what one handle of cuMemCreate is mapped
/// to. Of 0 bytes from `at` on where the driver does not say.
struct allocation_range {
    std::uint64_t begin = 0, bytes = 0;
};
inline allocation_range allocation_of(const void* at) {
    static auto* const ask = driver_function<CUresult(CUdeviceptr*, std::size_t*, CUdeviceptr)>("cuMemGetAddressRange");
    const auto address = reinterpret_cast<CUdeviceptr>(at);
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    if (ask == nullptr || ask(&begin, &bytes, address) != CUDA_SUCCESS) return {address, 0};
    return {begin, bytes};
}

/// Is this device memory from cudaMalloc? Peer access and CUDA IPC reach no other. True where the driver does not say.
/// `range`: its allocation, where the driver says it. Both in one call of the driver, as each call asks.
inline bool is_of_cuda_malloc(const void* at, allocation_range* range = nullptr) {
    static auto* const ask =
        driver_function<CUresult(unsigned, CUpointer_attribute*, void**, CUdeviceptr)>("cuPointerGetAttributes");
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    unsigned long long capable = 0;  // wide enough for any of the driver's types
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    void* answers[] = {&capable, &begin, &bytes};
    if (ask == nullptr || ask(3, what, answers, reinterpret_cast<CUdeviceptr>(at)) != CUDA_SUCCESS) return true;
    if (range != nullptr) *range = {begin, bytes};
    return capable != 0;
}

}  // namespace colls::inline v1::cuda::detail
