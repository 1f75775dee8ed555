// How a group of GPUs is made: of processes, one GPU each (CUDA IPC), or of the GPUs of one process (peer access).
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/cuda/local_ranks.hpp>
#include <colls/detail/cuda/shared_allocations.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace colls::inline v1 {
namespace detail {

/// values[r] = rank r's `own`, on all ranks. Not in namespace cuda, where the name all_gather would be that of
/// colls::cuda.
template <class Host, class X>
void exchange_values(Host& host, const X& own, std::vector<X>& values) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&own);
    const std::vector<unsigned char> mine(bytes, bytes + sizeof own);
    std::vector<unsigned char> all(sizeof(X) * static_cast<std::size_t>(host.size()));
    all_gather(host, mine, all);
    values.resize(static_cast<std::size_t>(host.size()));
    for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(&values[i], all.data() + i * sizeof(X), sizeof(X));
}

}  // namespace detail

namespace cuda::detail {

/// Channels of a rank, at most, where options.channels does not say.
inline constexpr int default_channels = 64;

/// One rank of a new group.
struct joined_rank {
    int rank = none;
    std::shared_ptr<shared_allocations> memory;
    std::unique_ptr<local_ranks> ranks;
};

/// A number that is the same in all processes of a host, and differs between hosts: a hash of the kernel's boot id.
inline std::uint64_t host_identity() {
    std::uint64_t h = 0xcbf29ce484222325ull;
    if (std::FILE* const f = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
        for (int c = std::fgetc(f); c != EOF; c = std::fgetc(f))
            h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
        std::fclose(f);
    }
    return h;
}

/// What each process tells the others while a group is made.
struct process_info {
    std::int32_t succeeded;  ///< in every step so far
    std::uint64_t host;
    char device[32];  ///< PCI bus id
    std::int32_t channels;
    std::uint64_t workspace_bytes, arena_bytes;
    cudaIpcMemHandle_t memory;  ///< the workspace, with the arena behind it
};

[[noreturn]] inline void no_peer_access(int rank, int device, int peer, const char* peer_device) {
    throw error(errc::peer_failed,
        (message() << "colls: cuda: rank " << rank << " on device " << device << " cannot reach rank " << peer
                   << " on device " << peer_device << ": no peer access between them")
            .text(),
        rank, peer);
}

/// Throws peer_failed where `device` has no access to a peer's device. A device that this process does not see cannot
/// be asked, and is accepted: opening its memory will fail.
inline void check_peer_access(const process_info& peer_info, int device, int rank, int peer) {
    int peer_device = 0, can = 1;
    if (cudaDeviceGetByPCIBusId(&peer_device, peer_info.device) != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    if (peer_device == device) return;
    check(cudaDeviceCanAccessPeer(&can, device, peer_device), "cudaDeviceCanAccessPeer", rank);
    if (can == 0) no_peer_access(rank, device, peer, peer_info.device);
}

/// Lets kernels on device `from`, of rank a, access memory of device `to`, of rank b.
inline void enable_peer_access(int from, int to, int a, int b) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer", a);
    if (can == 0) no_peer_access(a, from, b, (message() << to).text());
    const device_guard guard(from);
    const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
    else
        check(code, "cudaDeviceEnablePeerAccess", a);
}

/// See communicator's constructor. Collective over `host`.
template <class Host>
joined_rank join_processes(Host& host, int device, const options& o) {
    const int n = host.size(), rank = host.rank();
    if (n < 1 || n > max_ranks)
        throw error(errc::unsupported,
            (message() << "colls: cuda::communicator: rank " << rank << ": a group has 1 to " << max_ranks
                       << " ranks, and this host group has " << n)
                .text(),
            rank);
    joined_rank joined{rank, std::make_shared<shared_allocations>(), nullptr};
    shared_allocations& memory = *joined.memory;
    memory.synchronise_processes = [&host] {
        std::vector<char> all;
        v1::detail::exchange_values(host, char{}, all);
    };
    std::vector<process_info> all;
    process_info own{};
    const auto exchange = [&] { v1::detail::exchange_values(host, own, all); };
    // A step that fails on one rank fails on all: no rank throws before the others know.
    std::string failure_text;
    const auto attempt = [&](const auto& step) {
        if (!failure_text.empty()) return;
        try {
            step();
        } catch (const error& e) {
            failure_text = e.what();
        }
        own.succeeded = failure_text.empty();
    };

    attempt([&] {
        const device_guard guard(device);
        own.host = host_identity();
        own.channels = o.channels > 0 ? o.channels : std::min(multiprocessors(device), default_channels);
        check(cudaDeviceGetPCIBusId(own.device, sizeof own.device, device), "cudaDeviceGetPCIBusId", rank);
    });
    exchange();
    int channels = own.channels;
    for (const process_info& p : all) channels = std::min(channels, p.succeeded ? p.channels : channels);
    attempt([&] {
        for (int r = 0; r < n; ++r)
            if (all[static_cast<std::size_t>(r)].host != own.host)
                throw error(errc::unsupported,
                    (message() << "colls: cuda::communicator: rank " << r << " is on another host than rank " << rank
                               << ": make a group of each host, and go between them with the host's library")
                        .text(),
                    rank, r);
        joined.ranks = std::make_unique<local_ranks>(n, device, channels, o);
        own.workspace_bytes = (joined.ranks->sizes().bytes() + 255) / 256 * 256;
        own.arena_bytes = o.arena_bytes;
        memory.owned.emplace_back(device, own.workspace_bytes + own.arena_bytes);
        const device_guard guard(device);
        check(cudaIpcGetMemHandle(&own.memory, memory.owned[0].data()), "cudaIpcGetMemHandle", rank);
    });
    exchange();
    std::vector<std::byte*> workspaces(static_cast<std::size_t>(n));
    attempt([&] {
        const device_guard guard(device);
        for (int r = 0; r < n; ++r) {
            const process_info& p = all[static_cast<std::size_t>(r)];
            if (!p.succeeded) continue;
            void* at = memory.owned[0].data();
            if (r != rank) {
                check_peer_access(p, device, rank, r);
                check(
                    cudaIpcOpenMemHandle(&at, p.memory, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle", rank);
                memory.mapped.push_back(at);
            }
            workspaces[static_cast<std::size_t>(r)] = static_cast<std::byte*>(at);
        }
    });
    exchange();
    for (int r = 0; r < n; ++r)
        if (!all[static_cast<std::size_t>(r)].succeeded)
            throw error(errc::peer_failed,
                (message() << "colls: cuda::communicator: rank " << r << " could not join"
                           << (r == rank ? ": " : "; its own error says why")
                           << (r == rank ? failure_text.c_str() : ""))
                    .text(),
                rank, r);

    std::vector<std::uint64_t> regions;  // of each rank: absolute, exported
    for (int r = 0; r < n; ++r) {
        regions.push_back(0);
        regions.push_back(reinterpret_cast<std::uint64_t>(workspaces[static_cast<std::size_t>(r)]) +
                          all[static_cast<std::size_t>(r)].workspace_bytes);
    }
    joined.ranks->connect({rank}, workspaces, regions);
    std::byte* const arena_at = memory.owned[0].data() + own.workspace_bytes;
    joined.ranks->export_memory(arena_at, own.arena_bytes);
    memory.arena = std::make_shared<device_arena>(arena_at, own.arena_bytes);
    exchange();  // every workspace is ready before any rank's kernel accesses it
    return joined;
}

/// See communicator::of_devices.
inline std::vector<joined_rank> join_devices(const std::vector<int>& devices, const options& o) {
    const int n = static_cast<int>(devices.size());
    if (n < 1 || n > max_ranks)
        throw error(errc::invalid_argument, (message() << "colls: cuda::communicator::of_devices: a group has 1 to "
                                                       << max_ranks << " ranks, and got " << n << " devices")
                                                .text());
    int channels = o.channels > 0 ? o.channels : default_channels;
    for (std::size_t a = 0; a < devices.size(); ++a) {
        channels = std::min(channels, multiprocessors(devices[a]));
        for (std::size_t b = 0; b < a; ++b)
            if (devices[a] == devices[b])
                throw error(errc::invalid_argument,
                    (message() << "colls: cuda::communicator::of_devices: device " << devices[a]
                               << " is given twice: take virtual_ranks for several ranks on one device")
                        .text());
    }
    for (int a = 0; a < n; ++a)
        for (int b = 0; b < n; ++b)
            if (a != b)
                enable_peer_access(devices[static_cast<std::size_t>(a)], devices[static_cast<std::size_t>(b)], a, b);
    const auto memory = std::make_shared<shared_allocations>();
    std::vector<joined_rank> all;
    std::vector<std::byte*> workspaces;
    for (int r = 0; r < n; ++r) {
        const int device = devices[static_cast<std::size_t>(r)];
        all.push_back({r, memory, std::make_unique<local_ranks>(n, device, channels, o)});
        memory->owned.emplace_back(device, all.back().ranks->sizes().bytes());
        workspaces.push_back(memory->owned.back().data());
    }
    for (const joined_rank& j : all) {
        j.ranks->connect({j.rank}, workspaces, std::vector<std::uint64_t>(devices.size()));
        j.ranks->set_peer_devices(devices);
    }
    return all;
}

}  // namespace cuda::detail
}  // namespace colls::inline v1
