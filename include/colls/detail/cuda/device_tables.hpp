// Small tables in a device's memory, for as long as a group of ranks lives.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/cuda/runtime.hpp>

#include <vector>

namespace colls::inline v1::cuda::detail {

/// Copies tables to a device. Its memory is allocated by the constructor: an allocation during a call would wait for
/// kernels, on this device or another, that may wait for this call.
class device_tables {
public:
    explicit device_tables(int device) : device_(device), stream_(device), first_(device, reserved) {}

    /// A copy of `data` in device memory, which lives as long as this object.
    template <class T>
    const T* copy(const std::vector<T>& data) {
        const std::size_t bytes = (data.size() * sizeof(T) + 255) / 256 * 256;
        const relaxed_capture relaxed;
        const device_guard guard(device_);
        if (used_ + bytes > reserved) {
            more_.emplace_back(device_, bytes, nullptr);
            return put(more_.back().data(), data);
        }
        std::byte* const at = first_.data() + used_;
        used_ += bytes;
        return put(at, data);
    }

private:
    static constexpr std::size_t reserved = 1 << 20;

    template <class T>
    const T* put(std::byte* at, const std::vector<T>& data) const {
        if (!data.empty())
            check(cudaMemcpyAsync(at, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice, stream_.get()),
                "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
        return reinterpret_cast<const T*>(at);
    }

    int device_;
    private_stream stream_;
    device_memory first_;
    std::vector<device_memory> more_;
    std::size_t used_ = 0;
};

}  // namespace colls::inline v1::cuda::detail
