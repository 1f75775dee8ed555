// How a group of ranks on one device is made.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/group/local_ranks.hpp>

#include <memory>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// n ranks on one device, and the memory of their workspaces.
struct virtual_group {
    device_memory memory;
    std::unique_ptr<local_ranks> ranks;
};

/// See virtual_ranks.
inline virtual_group make_virtual_group(int n, const options& o) {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    const int resident = multiprocessors(device);
    const int channels = o.channels > 0 ? o.channels : n > 0 ? resident / n : 0;
    const int most = max_local_ranks < max_ranks ? max_local_ranks : max_ranks;
    if (n < 1 || n > most || channels < 1 || channels * n > resident)
        throw error(n < 1 ? errc::invalid_argument : errc::unsupported,
            (error_text() << "colls: cuda::virtual_ranks: " << n << " ranks of " << channels
                          << " blocks each: a group has 1 to " << most << " ranks, and device " << device << " holds "
                          << resident << " blocks at once: take fewer ranks, or a lower options.channels")
                .text());
    if (o.protocol == protocol::multicast)
        throw error(errc::unsupported,
            "colls: cuda::virtual_ranks: options.protocol is multicast, and one device has no multicast memory: only "
            "groups of several devices have it");
    virtual_group group;
    group.ranks = std::make_unique<local_ranks>(n, device, channels, o);
    const std::size_t each = static_cast<std::size_t>(group.ranks->sizes().bytes() + 127) / 128 * 128;
    group.memory = device_memory(device, each * static_cast<std::size_t>(n));
    std::vector<int> ranks;
    std::vector<std::byte*> workspaces;
    for (int r = 0; r < n; ++r) {
        ranks.push_back(r);
        workspaces.push_back(group.memory.data() + each * static_cast<std::size_t>(r));
    }
    group.ranks->connect(ranks, workspaces, std::vector<std::uint64_t>(static_cast<std::size_t>(n)));
    return group;
}

}  // namespace colls::inline v1::cuda::detail
