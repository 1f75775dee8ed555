// Ranks as groups of blocks on one GPU.
#pragma once

#include <colls/detail/cuda/members.hpp>

namespace colls::inline v1::cuda {

/// n ranks on the current device, all blocks of which run in one cooperative launch: for tests, for measuring, and for
/// programs that share one GPU among what would be ranks elsewhere. A call takes one buffer a rank, as a range of
/// ranges of device memory, in the order of ranks. Stream-ordered, may be captured into graphs; one group is for one
/// stream at a time, several groups for several at once. Used by one host thread at a time. Throws colls::error:
/// unsupported (no device; more ranks than can be resident: `channels` blocks for each of n must fit).
class virtual_ranks {
public:
    static constexpr bool many = true;

    explicit virtual_ranks(int n, const options& o = {}) {
        int device = 0;
        detail::check(cudaGetDevice(&device), "cudaGetDevice");
        const int room = detail::multiprocessors(device), channels = o.channels > 0 ? o.channels : n > 0 ? room / n : 0;
        const int most = detail::max_local < max_ranks ? detail::max_local : max_ranks;
        if (n < 1 || n > most || channels < 1 || channels * n > room)
            throw error(n < 1 ? errc::invalid_argument : errc::unsupported,
                (v1::detail::message() << "colls: cuda::virtual_ranks(" << n << ") of " << channels
                                       << " blocks each: device " << device << " holds " << room
                                       << " blocks at once, and a launch " << most << " ranks")
                    .text());
        members_ = std::make_unique<detail::members>(n, device, channels, o);
        const std::size_t each = static_cast<std::size_t>(members_->sizes().bytes() + 127) / 128 * 128;
        space_ = detail::device_memory(device, each * static_cast<std::size_t>(n));
        std::vector<int> ranks;
        std::vector<std::byte*> spaces;
        for (int r = 0; r < n; ++r) {
            ranks.push_back(r);
            spaces.push_back(space_.data() + each * static_cast<std::size_t>(r));
        }
        members_->join(ranks, spaces, std::vector<std::uint64_t>(static_cast<std::size_t>(n)));
    }
    virtual_ranks(virtual_ranks&&) = default;
    virtual_ranks& operator=(virtual_ranks&&) = delete;
    /// Waits for the device: kernels may still be using the group's memory.
    ~virtual_ranks() {
        if (members_) detail::settle(device());
    }

    int size() const { return members_->size(); }
    int device() const { return members_->device(); }
    /// Throws what kernels have found, if they have found anything wrong. Does not wait for them.
    void check() const { members_->look(); }
    /// For the library.
    detail::members& members() { return *members_; }

private:
    detail::device_memory space_;
    std::unique_ptr<detail::members> members_;
};

}  // namespace colls::inline v1::cuda
