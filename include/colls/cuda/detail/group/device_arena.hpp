// An allocator of a range of device memory that other processes have mapped.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/group/rank_context.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// First fit, in multiples of 256 bytes. Can be called from several threads.
class device_arena {
public:
    device_arena(std::byte* at, std::size_t bytes) { free_.push_back({at, bytes}); }

    /// Null where there is no free range of `bytes`.
    std::byte* take(std::size_t bytes) {
        bytes = rounded(bytes);
        const std::lock_guard lock(mutex_);
        for (auto& f : free_)
            if (f.bytes >= bytes) {
                std::byte* const at = f.at;
                f.at += bytes;
                f.bytes -= bytes;
                return at;
            }
        return nullptr;
    }
    /// Returns what take(bytes) has given.
    void give(std::byte* at, std::size_t bytes) {
        if (born_ != v1::detail::forks.load(std::memory_order_relaxed)) return;  // a lock may be that of another thread
        const std::lock_guard lock(mutex_);
        free_.push_back({at, rounded(bytes)});
        std::sort(free_.begin(), free_.end(), [](const range& a, const range& b) { return a.at < b.at; });
        std::vector<range> joined;
        for (const range& f : free_) {
            if (f.bytes == 0) continue;
            if (!joined.empty() && joined.back().at + joined.back().bytes == f.at)
                joined.back().bytes += f.bytes;
            else
                joined.push_back(f);
        }
        free_ = std::move(joined);
    }

private:
    struct range {
        std::byte* at;
        std::size_t bytes;
    };
    static std::size_t rounded(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256; }

    const unsigned born_ = v1::detail::count_forks();
    std::mutex mutex_;
    std::vector<range> free_;
};

}  // namespace colls::inline v1::cuda::detail
