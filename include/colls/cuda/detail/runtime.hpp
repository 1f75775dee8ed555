// The CUDA runtime as a group of ranks uses it: errors as colls::error; devices, streams and memory as owning types.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <utility>

namespace colls::inline v1::cuda::detail {

using v1::detail::error_text;

/// Throws colls::error if `code` is an error of the runtime: unsupported where there is no such device or driver, else
/// peer_failed. `call`: the name of the function that returned it. `rank`: of the group, if known.
inline void check(cudaError_t code, const char* call, int rank = none) {
    if (code == cudaSuccess) return;
    cudaGetLastError();  // clears it, or a later cudaGetLastError of the program would report it again
    const bool absent =
        code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver || code == cudaErrorInvalidDevice;
    error_text text;
    text << "colls: cuda";
    if (rank != none) text << ": rank " << rank;
    text << ": " << call << " failed: " << cudaGetErrorString(code);
    throw error(absent ? errc::unsupported : errc::peer_failed, text.text(), rank);
}

/// Makes a device the thread's current one for a scope.
class device_guard {
public:
    explicit device_guard(int device) {
        check(cudaGetDevice(&before_), "cudaGetDevice");
        if (device != before_) check(cudaSetDevice(device), "cudaSetDevice");
        changed_ = device != before_;
    }
    device_guard(const device_guard&) = delete;
    device_guard& operator=(const device_guard&) = delete;
    ~device_guard() {
        if (changed_) cudaSetDevice(before_);
    }

private:
    int before_ = 0;
    bool changed_ = false;
};

/// Waits until all work on a device is over. Throws nothing, ignores errors: for destructors.
inline void synchronise(int device) {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    cudaSetDevice(before);
}

/// Lets a scope allocate and copy while a stream is being captured into a graph. Where it cannot, because an earlier
/// kernel has failed, so will what the scope does.
class relaxed_capture {
public:
    relaxed_capture() noexcept : is_changed_(cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) {
        if (!is_changed_) cudaGetLastError();
    }
    relaxed_capture(const relaxed_capture&) = delete;
    relaxed_capture& operator=(const relaxed_capture&) = delete;
    ~relaxed_capture() {
        if (is_changed_) cudaThreadExchangeStreamCaptureMode(&mode_);
    }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    const bool is_changed_;
};

/// Are calls on this stream being captured into a graph?
inline bool is_captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
}

/// A stream that does not synchronise with the default stream: for copies while another stream is being captured.
class private_stream {
public:
    explicit private_stream(int device) {
        const device_guard there(device);
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    private_stream(const private_stream&) = delete;
    private_stream& operator=(const private_stream&) = delete;
    ~private_stream() { cudaStreamDestroy(stream_); }
    cudaStream_t get() const { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

/// Memory of one device, which begins as a copy of host data, or as zeros.
class device_memory {
public:
    device_memory() = default;
    device_memory(int device, std::size_t bytes, const void* data = nullptr) : device_(device), bytes_(bytes) {
        const device_guard there(device);
        const private_stream stream(device);
        check(cudaMalloc(&at_, bytes == 0 ? 1 : bytes), "cudaMalloc");
        try {
            if (bytes != 0 && data != nullptr)
                check(cudaMemcpyAsync(at_, data, bytes, cudaMemcpyHostToDevice, stream.get()), "cudaMemcpyAsync");
            else if (bytes != 0)
                check(cudaMemsetAsync(at_, 0, bytes, stream.get()), "cudaMemsetAsync");
            check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
        } catch (...) {
            cudaFree(at_);
            throw;
        }
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
    /// Leaves the memory allocated until the process ends.
    void leak() { at_ = nullptr; }
    std::byte* data() const { return static_cast<std::byte*>(at_); }
    std::size_t size() const { return bytes_; }
    int device() const { return device_; }

private:
    int device_ = 0;
    std::size_t bytes_ = 0;
    void* at_ = nullptr;
};

/// Host memory that kernels of all devices reach at the same address; begins as zeros.
class pinned_memory {
public:
    explicit pinned_memory(std::size_t bytes) {
        check(cudaHostAlloc(&at_, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
        std::memset(at_, 0, bytes);
    }
    pinned_memory(pinned_memory&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
    pinned_memory& operator=(pinned_memory&&) = delete;
    ~pinned_memory() {
        if (at_ != nullptr) cudaFreeHost(at_);
    }
    std::byte* data() const { return static_cast<std::byte*>(at_); }

private:
    void* at_ = nullptr;
};

/// A value in host memory that kernels of all devices can write.
template <class T>
class pinned_value {
public:
    pinned_value() {
        void* at = nullptr;
        check(cudaHostAlloc(&at, sizeof(T), cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
        at_ = new (at) T{};
    }
    pinned_value(pinned_value&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
    pinned_value& operator=(pinned_value&&) = delete;
    ~pinned_value() {
        if (at_ != nullptr) cudaFreeHost(at_);
    }
    T* get() const { return at_; }
    T* operator->() const { return at_; }

private:
    T* at_ = nullptr;
};

}  // namespace colls::inline v1::cuda::detail
