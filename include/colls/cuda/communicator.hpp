// One rank a GPU: the GPUs of one process through peer access, or one process a GPU through CUDA IPC.
#pragma once

#include <colls/detail/cuda/members.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>

namespace colls::inline v1 {
namespace detail {
// Outside namespace cuda, so that the host's all_gather is the one that is found.
template <class Host, class X>
void gather_cards(Host& host, const X& own, std::vector<X>& all) {
    const std::vector<unsigned char> mine(
        reinterpret_cast<const unsigned char*>(&own), reinterpret_cast<const unsigned char*>(&own) + sizeof own);
    std::vector<unsigned char> theirs(sizeof(X) * static_cast<std::size_t>(host.size()));
    all_gather(host, mine, theirs);
    all.resize(static_cast<std::size_t>(host.size()));
    for (std::size_t i = 0; i < all.size(); ++i) std::memcpy(&all[i], theirs.data() + i * sizeof(X), sizeof(X));
}
}  // namespace detail

namespace cuda {

template <class T>
class memory;
namespace detail {

/// Memory that a rank shares with the others: its workspace, then what `allocate` takes from.
class arena {
public:
    arena(std::byte* at, std::size_t bytes) { free_.push_back({at, bytes}); }
    std::byte* take(std::size_t bytes) {
        bytes = (bytes + 255) / 256 * 256;
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
    void give(std::byte* at, std::size_t bytes) {
        bytes = (bytes + 255) / 256 * 256;
        const std::lock_guard lock(mutex_);
        free_.push_back({at, bytes});
        std::sort(free_.begin(), free_.end(), [](const stretch& a, const stretch& b) { return a.at < b.at; });
        std::vector<stretch> joined;
        for (const stretch& f : free_) {
            if (f.bytes == 0) continue;
            if (!joined.empty() && joined.back().at + joined.back().bytes == f.at)
                joined.back().bytes += f.bytes;
            else
                joined.push_back(f);
        }
        free_ = std::move(joined);
    }

private:
    struct stretch {
        std::byte* at;
        std::size_t bytes;
    };
    std::mutex mutex_;
    std::vector<stretch> free_;
};

/// What each process tells the others of itself.
struct card {
    cudaIpcMemHandle_t handle;
    char device[32];  ///< PCI address
    std::uint64_t host;
    std::int32_t channels;
    std::uint64_t workspace_bytes, arena_bytes;
    std::int32_t fine;  ///< it has got so far
};

/// The same on all processes of a host, and of no other.
inline std::uint64_t host_identity() {
    std::uint64_t h = 0xcbf29ce484222325ull;
    if (std::FILE* const f = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
        for (int c = std::fgetc(f); c != EOF; c = std::fgetc(f))
            h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
        std::fclose(f);
    }
    return h;
}

/// Everything of a rank that must outlive kernels of others: shared by the process's ranks, met for between processes.
/// It goes when nobody's kernel can read it any more; where the others do not say so, it stays until the process ends.
struct grounds {
    std::vector<device_memory> spaces;
    std::vector<void*> opened;
    std::function<void()> meet;  ///< all processes
    std::shared_ptr<arena> exported;
    grounds() = default;
    grounds(const grounds&) = delete;
    ~grounds() {
        for (const device_memory& s : spaces) settle(s.device());
        for (void* const p : opened) cudaIpcCloseMemHandle(p);
        if (meet) try {
                meet();
            } catch (const std::exception&) {  // one is late, or gone: its kernel may still be there
                for (device_memory& s : spaces) s.leak();
            }
    }
};

}  // namespace detail

/// Device memory that the other ranks of a communicator reach directly: see communicator::allocate.
template <class T>
class memory {
    static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");

public:
    memory(std::shared_ptr<detail::arena> from, std::byte* at, std::size_t count)
        : from_(std::move(from)), data_(reinterpret_cast<T*>(at)), size_(count) {}
    memory(memory&& other) noexcept
        : from_(std::move(other.from_)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)) {}
    memory& operator=(memory&&) = delete;
    ~memory() {
        if (data_ != nullptr) from_->give(reinterpret_cast<std::byte*>(data_), size_ * sizeof(T));
    }
    T* data() const { return data_; }
    std::size_t size() const { return size_; }

private:
    std::shared_ptr<detail::arena> from_;
    T* data_;
    std::size_t size_;
};

/// One rank's end of a group of GPUs: one buffer a call. Stream-ordered; may be captured into graphs; one stream at a
/// time, by one host thread at a time. Every rank makes the same calls in the same order. Several communicators may be
/// in use at once, on streams of their own, as far as their blocks (options.channels of 512 threads for each) are on
/// the device together.
///
/// A call that failed has left its output undefined, and the group cannot be used any more. The rank may write to its
/// buffers again at once: a kernel of another rank that is late and still reads them finds out that this rank gave up,
/// and fails as well. Memory that is not from `allocate`, and that GPUs of one process therefore read directly, must
/// not be freed before the kernels of all ranks are over (cudaDeviceSynchronize for each device; they give up by their
/// own deadline).
class communicator {
public:
    static constexpr bool many = false;

    /// Of no group.
    communicator() = default;
    /// Ranks are processes, one device each, that have a group on the host (`host`, any of the library's communicators,
    /// which has to outlive this one; include <colls/collectives.hpp>). Collective. `device`: of this rank. Buffers
    /// from `allocate` are read in place by the other ranks, others go through scratch memory. All on one host; between
    /// hosts take the host's library across, as examples/gpu_cluster does. Throws colls::error on all ranks:
    /// unsupported (another host; too little memory), peer_failed (a peer's device cannot be reached).
    template <class Host>
        requires requires(Host& h) {
            h.rank();
            h.size();
            h.context();
        }
    communicator(Host& host, int device, const options& o = {}) {
        using namespace detail;
        const int n = host.size(), rank = host.rank();
        if (n < 1 || n > max_ranks)
            throw error(errc::unsupported, "colls: cuda::communicator: a group has 1 to 72 ranks", rank);
        std::vector<card> cards;
        const auto exchange = [&](const card& own) { v1::detail::gather_cards(host, own, cards); };
        auto ground = std::make_unique<grounds>();
        ground->meet = [&host] {
            std::vector<char> all;
            v1::detail::gather_cards(host, char{}, all);
        };
        card own{};
        std::string trouble;
        // What fails on one rank fails on all: nobody throws before the others know.
        const auto attempt = [&](const auto& step) {
            if (!trouble.empty()) return;
            try {
                step();
            } catch (const error& e) {
                trouble = e.what();
            }
            own.fine = trouble.empty();
        };
        attempt([&] {
            const on_device there(device);
            own.host = host_identity();
            own.channels = o.channels > 0 ? o.channels : std::min(multiprocessors(device), 64);
            detail::check(cudaDeviceGetPCIBusId(own.device, sizeof own.device, device), "cudaDeviceGetPCIBusId", rank);
        });
        exchange(own);
        int channels = own.channels;
        for (const card& c : cards) channels = std::min(channels, c.fine ? c.channels : channels);
        attempt([&] {
            for (int r = 0; r < n; ++r)
                if (cards[static_cast<std::size_t>(r)].host != own.host)
                    throw error(errc::unsupported,
                        (message() << "colls: cuda::communicator: rank " << r << " is on another host than rank "
                                   << rank
                                   << ": make a group of each host, and go between them with the host's library")
                            .text(),
                        rank, r);
            members_ = std::make_unique<detail::members>(n, device, channels, o);
            own.workspace_bytes = (members_->sizes().bytes() + 255) / 256 * 256;
            own.arena_bytes = o.arena_bytes;
            ground->spaces.emplace_back(device, own.workspace_bytes + own.arena_bytes);
            const on_device there(device);
            detail::check(cudaIpcGetMemHandle(&own.handle, ground->spaces[0].data()), "cudaIpcGetMemHandle", rank);
        });
        exchange(own);
        std::vector<std::byte*> spaces(static_cast<std::size_t>(n));
        attempt([&] {
            const on_device there(device);
            for (int r = 0; r < n; ++r) {
                const card& c = cards[static_cast<std::size_t>(r)];
                if (!c.fine) continue;
                void* at = ground->spaces[0].data();
                if (r != rank) {
                    reach(c, device, rank, r);
                    detail::check(cudaIpcOpenMemHandle(&at, c.handle, cudaIpcMemLazyEnablePeerAccess),
                        "cudaIpcOpenMemHandle", rank);
                    ground->opened.push_back(at);
                }
                spaces[static_cast<std::size_t>(r)] = static_cast<std::byte*>(at);
            }
        });
        exchange(own);
        for (int r = 0; r < n; ++r)
            if (!cards[static_cast<std::size_t>(r)].fine)
                throw error(errc::peer_failed,
                    (message() << "colls: cuda::communicator: rank " << r << " could not join"
                               << (r == rank ? ": " : "; its own error says why") << (r == rank ? trouble.c_str() : ""))
                        .text(),
                    rank, r);
        std::vector<std::uint64_t> regions;
        for (int r = 0; r < n; ++r) {
            regions.push_back(0);
            regions.push_back(reinterpret_cast<std::uint64_t>(spaces[static_cast<std::size_t>(r)]) +
                              cards[static_cast<std::size_t>(r)].workspace_bytes);
        }
        members_->join({rank}, spaces, regions);
        std::byte* const arena_at = ground->spaces[0].data() + own.workspace_bytes;
        members_->export_arena(arena_at, own.arena_bytes);
        ground->exported = std::make_shared<arena>(arena_at, own.arena_bytes);
        exchange(own);  // nobody's kernel looks for a workspace that is not ready
        ground_ = std::move(ground);
        rank_ = rank;
    }

    /// Ranks are the given devices of this process, rank r on devices[r]: one communicator each, to be used by one
    /// thread or by one each. The last one that goes frees their memory. Throws colls::error: peer_failed where one of
    /// the devices does not reach another.
    static std::vector<communicator> of_devices(const std::vector<int>& devices, const options& o = {}) {
        using namespace detail;
        const int n = static_cast<int>(devices.size());
        if (n < 1 || n > max_ranks)
            throw error(errc::invalid_argument, "colls: cuda::communicator::of_devices takes 1 to 72 devices");
        int channels = o.channels > 0 ? o.channels : 64;
        for (std::size_t a = 0; a < devices.size(); ++a) {
            channels = std::min(channels, multiprocessors(devices[a]));
            for (std::size_t b = 0; b < a; ++b)
                if (devices[a] == devices[b])
                    throw error(errc::invalid_argument,
                        "colls: cuda::communicator::of_devices: a device twice: take virtual_ranks for ranks on one "
                        "device");
        }
        for (int a = 0; a < n; ++a)
            for (int b = 0; b < n; ++b)
                if (a != b) enable(devices[static_cast<std::size_t>(a)], devices[static_cast<std::size_t>(b)], a, b);
        const auto ground = std::make_shared<grounds>();
        std::vector<communicator> all(devices.size());
        std::vector<std::byte*> spaces;
        for (std::size_t r = 0; r < devices.size(); ++r) {
            all[r].members_ = std::make_unique<detail::members>(n, devices[r], channels, o);
            all[r].rank_ = static_cast<int>(r);
            all[r].ground_ = ground;
            ground->spaces.emplace_back(devices[r], all[r].members_->sizes().bytes());
            spaces.push_back(ground->spaces.back().data());
        }
        for (std::size_t r = 0; r < devices.size(); ++r) {
            all[r].members_->join({static_cast<int>(r)}, spaces, std::vector<std::uint64_t>(devices.size()));
            all[r].members_->has_neighbours(devices);
        }
        return all;
    }

    communicator(communicator&&) = default;
    communicator& operator=(communicator&&) = delete;
    /// Waits for the device and, between processes, for the others to get here, as long as the host's group would wait
    /// for them: if they do not come, the memory that their kernels may still read is given back only at the process's
    /// end.
    ~communicator() {
        if (members_) detail::settle(device());
    }

    int rank() const { return rank_; }
    int size() const { return members_->size(); }
    int device() const { return members_->device(); }
    /// Throws what kernels have found, if they have found anything wrong. Does not wait for them.
    void check() const { members_->look(); }

    /// Uninitialised device memory for `count` elements that the other ranks reach directly. Not collective. It must
    /// not outlive the communicator. Throws unsupported where options.arena_bytes is used up.
    template <class T>
    memory<T> allocate(std::size_t count) {
        const std::size_t bytes = count == 0 ? 1 : count * sizeof(T);
        if (!ground_->exported) return allocate_plain<T>(count, bytes);
        std::byte* const at = ground_->exported->take(bytes);
        if (at == nullptr)
            throw error(errc::unsupported,
                (v1::detail::message() << "colls: cuda: rank " << rank_ << ": allocate of " << bytes
                                       << " bytes: the arena of " << members_->arena_bytes()
                                       << " bytes is used up: see options.arena_bytes")
                    .text(),
                rank_);
        return {ground_->exported, at, count};
    }
    /// For the library.
    detail::members& members() { return *members_; }

private:
    // Within one process any memory of the device will do.
    template <class T>
    memory<T> allocate_plain(std::size_t count, std::size_t bytes) {
        auto block = std::make_shared<detail::device_memory>(device(), bytes);
        std::shared_ptr<detail::arena> whole(
            new detail::arena(block->data(), 0), [block](detail::arena* a) { delete a; });
        return {std::move(whole), block->data(), count};
    }

    static void enable(int from, int to, int a, int b) {
        using namespace detail;
        int can = 0;
        detail::check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer", a);
        if (can == 0)
            throw error(errc::peer_failed,
                (message() << "colls: cuda: rank " << a << " on device " << from << " cannot reach rank " << b
                           << " on device " << to << ": no peer access between them")
                    .text(),
                a, b);
        const on_device there(from);
        const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
        if (code == cudaErrorPeerAccessAlreadyEnabled)
            cudaGetLastError();
        else
            detail::check(code, "cudaDeviceEnablePeerAccess", a);
    }
    // A device that this process sees can be asked before its memory is opened.
    static void reach(const detail::card& c, int device, int rank, int peer) {
        int there = 0, can = 1;
        if (cudaDeviceGetByPCIBusId(&there, c.device) != cudaSuccess) {
            cudaGetLastError();
            return;
        }
        if (there == device) return;
        detail::check(cudaDeviceCanAccessPeer(&can, device, there), "cudaDeviceCanAccessPeer", rank);
        if (can == 0)
            throw error(errc::peer_failed,
                (v1::detail::message() << "colls: cuda: rank " << rank << " cannot reach the device of rank " << peer
                                       << " (" << c.device << "): no peer access between them")
                    .text(),
                rank, peer);
    }

    std::shared_ptr<detail::grounds> ground_;
    std::unique_ptr<detail::members> members_;
    int rank_ = none;
};

}  // namespace cuda
}  // namespace colls::inline v1
