// The CUDA runtime, as far as a group of ranks needs it: errors as colls::error, memory that frees itself.
#pragma once

#include <colls/detail/support/message.hpp>
#include <colls/error.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <new>
#include <utility>

namespace colls::inline v1::cuda::detail {

using v1::detail::message;

/// Throws where the runtime reports an error; what the call was, and on which rank, stand in the text.
inline void check(cudaError_t code, const char* call, int rank = none) {
    if (code == cudaSuccess) return;
    cudaGetLastError();  // else the next call, of whoever it is, would find it again
    const bool absent =
        code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver || code == cudaErrorInvalidDevice;
    message text;
    text << "colls: cuda";
    if (rank != none) text << ": rank " << rank;
    text << ": " << call << " failed: " << cudaGetErrorString(code);
    throw error(absent ? errc::unsupported : errc::peer_failed, text.text(), rank);
}

/// Makes a device the thread's current one for a scope.
class on_device {
public:
    explicit on_device(int device) {
        check(cudaGetDevice(&before_), "cudaGetDevice");
        if (device != before_) check(cudaSetDevice(device), "cudaSetDevice");
        changed_ = device != before_;
    }
    on_device(const on_device&) = delete;
    on_device& operator=(const on_device&) = delete;
    ~on_device() {
        if (changed_) cudaSetDevice(before_);
    }

private:
    int before_ = 0;
    bool changed_ = false;
};

/// Until a device's kernels are over. For destructors: throws nothing.
inline void settle(int device) {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    cudaSetDevice(before);
}

/// Lets a scope allocate and copy while some stream is being captured into a graph.
class outside_capture {
public:
    outside_capture() { check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode"); }
    outside_capture(const outside_capture&) = delete;
    outside_capture& operator=(const outside_capture&) = delete;
    ~outside_capture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A stream beside all others, for what must not touch those that are captured.
class own_stream {
public:
    explicit own_stream(int device) {
        const on_device there(device);
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    own_stream(const own_stream&) = delete;
    own_stream& operator=(const own_stream&) = delete;
    ~own_stream() { cudaStreamDestroy(stream_); }
    cudaStream_t get() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

/// Memory of one device: a copy of host data, or all zero.
class device_memory {
public:
    device_memory() = default;
    device_memory(int device, std::size_t bytes, const void* data = nullptr) : device_(device), bytes_(bytes) {
        const on_device there(device);
        const own_stream stream(device);
        check(cudaMalloc(&at_, bytes == 0 ? 1 : bytes), "cudaMalloc");
        cudaError_t code = cudaSuccess;
        if (bytes != 0)
            code = data != nullptr ? cudaMemcpyAsync(at_, data, bytes, cudaMemcpyHostToDevice, stream.get())
                                   : cudaMemsetAsync(at_, 0, bytes, stream.get());
        if (code == cudaSuccess) code = cudaStreamSynchronize(stream.get());
        if (code != cudaSuccess) cudaFree(at_);
        check(code, "filling device memory");
    }
    device_memory(device_memory&& other) noexcept { *this = std::move(other); }
    device_memory& operator=(device_memory&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(bytes_, other.bytes_);
        std::swap(at_, other.at_);
        return *this;
    }
    ~device_memory() {
        if (at_ != nullptr) cudaFree(at_);
    }
    /// Leaves the memory to the process's end.
    void leak() { at_ = nullptr; }
    std::byte* data() const { return static_cast<std::byte*>(at_); }
    std::size_t size() const { return bytes_; }
    int device() const { return device_; }

private:
    int device_ = 0;
    std::size_t bytes_ = 0;
    void* at_ = nullptr;
};

/// Host memory that kernels write.
template <class T>
class pinned {
public:
    pinned() {
        void* at = nullptr;
        check(cudaHostAlloc(&at, sizeof(T), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
        at_ = new (at) T{};
    }
    pinned(pinned&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
    pinned& operator=(pinned&&) = delete;
    ~pinned() {
        if (at_ != nullptr) cudaFreeHost(at_);
    }
    T* get() const { return at_; }
    T* operator->() const { return at_; }

private:
    T* at_ = nullptr;
};

}  // namespace colls::inline v1::cuda::detail
