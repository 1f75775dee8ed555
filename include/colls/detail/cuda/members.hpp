// The ranks of a group that live in this process, on one device: their memory, what the kernels are told of the group,
// and what is kept between calls. How the group came to be stands in virtual_ranks.hpp and communicator.hpp.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/cuda/kernels.hpp>
#include <colls/detail/cuda/runtime.hpp>
#include <colls/detail/support/environment.hpp>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

namespace colls::inline v1::cuda {

/// The same on all ranks of a group.
struct options {
    int channels = 0;                     ///< blocks of a rank, at most; 0: as many as the device holds
    std::size_t small_bytes = 32 << 10;   ///< messages up to this go in one hop
    std::size_t chunk_bytes = 128 << 10;  ///< of one block's part of a slot, at most
    std::size_t scratch_bytes = 1 << 20;  ///< of a channel
    std::size_t arena_bytes = 64 << 20;   ///< between processes: what `allocate` takes from
    double timeout = 0;                   ///< seconds that a kernel waits for a peer; 0: COLLS_TIMEOUT
};

namespace detail {

inline constexpr std::size_t letter_bytes = 8 << 10, least_slice = 16 << 10, small_slice = 2 << 10;

/// One rank of this process.
struct member {
    int rank = 0;
    pinned<report> status;
};

/// What a device's channel count is limited by.
inline int multiprocessors(int device) {
    int count = 0;
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    int cooperative = 0;
    check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device), "cudaDeviceGetAttribute");
    if (cooperative == 0) throw error(errc::unsupported, "colls: cuda: this device has no cooperative launch");
    return count;
}

/// What a kernel wants to know of a schedule, after its proof at this group size: a kernel cannot refuse.
template <class S>
slot_map proven_map(const S& s, int n) {
    slot_map map = map_of(s, n);
    if (const v1::detail::finding f = any_schedule(s).prove(n); !f.right)
        throw error(errc::wrong_schedule,
            (message() << "colls: a kernel at " << n << " ranks: " << f.text.text()).text(), f.rank, none, f.round);
    return map;
}

/// Fixed facts of a schedule type at this group's size, on this device.
struct kept_map {
    const void* type = nullptr;
    std::vector<std::byte> value;
    slot_map map;
    const slot_info* slots = nullptr;  // on the device
    const std::uint8_t* overwrites = nullptr;
};

/// Small tables on a device, for as long as it lives. The memory is there from the beginning: allocating it during a
/// call would wait for kernels, on this device or another, that may wait for this call.
class device_tables {
public:
    explicit device_tables(int device) : device_(device), stream_(device), first_(device, reserved) {}
    template <class T>
    const T* copy(const std::vector<T>& data) {
        const std::size_t bytes = (data.size() * sizeof(T) + 255) / 256 * 256;
        const outside_capture free;
        const on_device there(device_);
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
    own_stream stream_;
    device_memory first_;
    std::vector<device_memory> more_;
    std::size_t used_ = 0;
};

class members {
public:
    /// `channels`: agreed on by all ranks.
    members(int n, int device, int channels, const options& o)
        : n_(n), device_(device), options_(limited(o)), tables_(device) {
        sizes_.ranks = n;
        sizes_.blocks = channels;
        sizes_.letter_bytes = letter_bytes;
        sizes_.scratch_bytes = (o.scratch_bytes + 127) / 128 * 128;
        seconds_ = o.timeout > 0 ? o.timeout : environment::read().timeout;
    }
    members(const members&) = delete;
    members& operator=(const members&) = delete;

    int size() const { return n_; }
    int device() const { return device_; }
    const layout& sizes() const { return sizes_; }
    const options& chosen() const { return options_; }
    const std::vector<member>& locals() const { return locals_; }
    const team* teams() const { return reinterpret_cast<const team*>(teams_.data()); }

    /// Tells the kernels who is where. spaces[r]: rank r's workspace; regions[r * count + i]: where its region i
    /// begins; both as this device reaches them.
    void join(const std::vector<int>& ranks, const std::vector<std::byte*>& spaces,
        const std::vector<std::uint64_t>& regions) {
        spaces_ = device_memory(device_, spaces.size() * sizeof(std::byte*), spaces.data());
        regions_ = device_memory(device_, regions.size() * sizeof(std::uint64_t), regions.data());
        std::vector<team> teams;
        for (const int r : ranks) {
            locals_.push_back({r, {}});
            team t;
            t.rank = r;
            t.sizes = sizes_;
            t.workspaces = reinterpret_cast<std::byte* const*>(spaces_.data());
            t.regions = reinterpret_cast<const std::uint64_t*>(regions_.data());
            t.region_count = static_cast<std::uint32_t>(regions.size() / spaces.size());
            t.status = locals_.back().status.get();
            t.patience = static_cast<std::uint64_t>(seconds_ * 1e9);
            teams.push_back(t);
        }
        teams_ = device_memory(device_, teams.size() * sizeof(team), teams.data());
    }

    /// What a kernel found since the last call: thrown here, for ever after.
    void look() const {
        for (const member& m : locals_) {
            const report& r = *m.status.get();
            const auto why =
                static_cast<failure>(std::atomic_ref<std::uint64_t>(m.status->what).load(std::memory_order_acquire));
            if (why == failure::nothing) continue;
            message text;
            text << "colls: cuda: rank " << m.rank << ": an earlier call failed: ";
            if (r.told_by != none) text << "rank " << r.told_by << " gave up, because ";
            if (why == failure::late) {
                text << "rank " << r.peer << " did not come within " << seconds_ << " s";
                if (r.round != none) text << " in round " << r.round;
                text << " (block " << r.block << ")";
            } else {
                text << "rank " << r.peer
                     << " made another call (its collective, schedule, type, operator, count or root differs)";
            }
            text << "; the group can no longer be used";
            // A rank that others missed has nobody to blame but who told it.
            const int peer = r.peer == m.rank ? r.told_by : r.peer;
            throw error(why == failure::late ? errc::timeout : errc::mismatch, text.text(), m.rank, peer, r.round);
        }
    }

    /// How the others find a buffer of this rank.
    reachable place_of(const void* at, std::size_t bytes) const {
        const auto address = reinterpret_cast<std::uint64_t>(at);
        if (everywhere_) return {address, reachable::everywhere, 0};
        if (address >= arena_ && address + bytes <= arena_ + arena_bytes_) return {address - arena_, 1, 0};
        return {0, reachable::hidden, 0};
    }
    /// Between processes: the memory that the others have mapped, as region 1.
    void export_arena(const std::byte* at, std::size_t bytes) {
        everywhere_ = false;
        arena_ = reinterpret_cast<std::uint64_t>(at);
        arena_bytes_ = bytes;
    }
    bool everywhere() const { return everywhere_; }
    std::uint64_t arena() const { return arena_; }
    std::size_t arena_bytes() const { return arena_bytes_; }

    template <class S>
    const kept_map& map_for(const S& s) {
        static const char type = 0;
        std::vector<std::byte> value(std::is_empty_v<S> ? 0 : sizeof(S));
        if (!value.empty()) std::memcpy(value.data(), &s, value.size());
        for (const auto& k : maps_)
            if (k->type == &type && k->value == value) return *k;
        auto k = std::make_unique<kept_map>();
        k->type = &type;
        k->value = std::move(value);
        k->map = proven_map(s, n_);
        k->slots = tables_.copy(k->map.slots);
        k->overwrites = tables_.copy(k->map.overwrites);
        maps_.push_back(std::move(k));
        return *maps_.back();
    }
    /// A copy on the device, for as long as the group lives: graphs may hold it.
    const std::uint64_t* kept(const std::vector<std::uint64_t>& offsets) {
        for (const auto& [there, copy] : offsets_)
            if (there == offsets) return copy;
        offsets_.emplace_back(offsets, tables_.copy(offsets));
        return offsets_.back().second;
    }

    /// Loads a kernel's module, here and on the devices of the process's other ranks: loaded lazily, it would wait for
    /// kernels that wait for it. Returns how many of its blocks the device holds at once.
    int resident(const void* kernel) {
        for (const auto& [known, blocks] : kernels_)
            if (known == kernel) return blocks;
        const outside_capture free;
        for (const int other : neighbours_) {
            const on_device there(other);
            cudaFuncAttributes unused{};
            check(cudaFuncGetAttributes(&unused, kernel),
                "cudaFuncGetAttributes (is the program compiled for this device?)");
        }
        const on_device here(device_);
        cudaFuncAttributes unused{};
        check(
            cudaFuncGetAttributes(&unused, kernel), "cudaFuncGetAttributes (is the program compiled for this device?)");
        int each = 0;
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, block_threads, 0),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
        kernels_.emplace_back(kernel, each * multiprocessors(device_));
        return kernels_.back().second;
    }
    void has_neighbours(std::vector<int> devices) { neighbours_ = std::move(devices); }

private:
    // A pass counts a chunk's elements in 32 bits.
    static options limited(options o) {
        if (o.chunk_bytes > (std::size_t{1} << 30)) o.chunk_bytes = std::size_t{1} << 30;
        return o;
    }

    const int n_, device_;
    const options options_;
    layout sizes_;
    double seconds_ = 0;
    std::vector<member> locals_;
    device_memory spaces_, regions_, teams_;
    bool everywhere_ = true;
    std::uint64_t arena_ = 0;
    std::size_t arena_bytes_ = 0;
    std::vector<std::unique_ptr<kept_map>> maps_;
    std::vector<std::pair<std::vector<std::uint64_t>, const std::uint64_t*>> offsets_;
    device_tables tables_;
    std::vector<std::pair<const void*, int>> kernels_;
    std::vector<int> neighbours_;
};

}  // namespace detail
}  // namespace colls::inline v1::cuda
