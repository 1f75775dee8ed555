// Registering a GPU's memory for RDMA, as a user does it: compiled where CUDA's headers are. Not tested on hardware.
#include <colls/transports/verbs.hpp>

#include <cuda.h>

#include <unistd.h>
#include <optional>

/// Registers memory from cuMemAlloc or cudaMalloc that begins at `at`, whole pages of the processor. Returns nothing
/// where the driver does not export it as a dma-buf.
std::optional<colls::verbs::registered> register_gpu_memory(CUdeviceptr at, std::size_t bytes) {
    int file = -1;
    if (cuMemGetHandleForAddressRange(&file, at, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS)
        return std::nullopt;
    std::optional<colls::verbs::registered> known;
    try {
        known = colls::verbs::register_dmabuf(file, 0, reinterpret_cast<void*>(at), bytes);
    } catch (...) {
        close(file);
        throw;
    }
    close(file);  // the registration has a reference of its own
    return known;
}
