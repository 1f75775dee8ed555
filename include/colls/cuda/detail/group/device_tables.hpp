// Small tables in a device's memory, for as long as a group of ranks lives.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/runtime.hpp>

#include <vector>

namespace colls::inline v1::cuda::detail {

/// Copies tables to a device. All of its memory is allocated by the constructor: an allocation during a call might wait
/// for kernels, on this device or another, that wait for this call.
class device_tables {
public:
    device_tables(int device, std::size_t bytes) : device_(device), stream_(device), memory_(device, bytes) {}

    /// Is there room for up to four more tables of `bytes` bytes together, and then for `reserve` bytes?
    bool has_room(std::size_t bytes, std::size_t reserve) const {
        return bytes + 4 * 256 + reserve <= memory_.size() - used_;
    }
    /// A copy of `data` in device memory, which lives as long as this object. Throws unsupported where the memory does
    /// not suffice.
    template <class T>
    const T* copy(const std::vector<T>& data) {
        const std::size_t bytes = (data.size() * sizeof(T) + 255) / 256 * 256;
        if (bytes > memory_.size() - used_)
            throw error(errc::unsupported,
                (error_text() << "colls: cuda: the tables of this group's schedules, now " << used_ + bytes
                              << " bytes, are more than options.table_bytes, " << memory_.size() << ": raise it")
                    .text());
        const relaxed_capture relaxed;
        const device_guard guard(device_);
        std::byte* const at = memory_.data() + used_;
        if (!data.empty())
            check(cudaMemcpyAsync(at, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice, stream_.get()),
                "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
        used_ += bytes;
        return reinterpret_cast<const T*>(at);
    }

private:
    const int device_;
    private_stream stream_;
    device_memory memory_;
    std::size_t used_ = 0;
};

}  // namespace colls::inline v1::cuda::detail
