// Buffers of users that the processes of a group map from each other.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Each rank tells the others the pieces of its buffer: the allocation of cudaMalloc, or the handles of cuMemCreate that
// are mapped to it. Descriptors, which the host group cannot carry, go through a socket, one rank after the other.
#pragma once

#include <colls/cuda/detail/check_arguments.hpp>
#include <colls/cuda/detail/group/joint_steps.hpp>
#include <colls/cuda/detail/group/local_ranks.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/net/detail/forming/hand_over.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// A piece of a buffer, as another process gets it.
struct shared_piece {
    enum way : std::uint32_t { ipc, fabric, file };
    way by;
    std::uint64_t bytes;
    unsigned char handle[64];  ///< of CUDA IPC or of the fabric
};
static_assert(sizeof(cudaIpcMemHandle_t) == 64);
/// Handles of the fabric, which headers before CUDA 12.3 do not know: 64 bytes.
inline constexpr auto fabric_handles = static_cast<CUmemAllocationHandleType>(8);

/// What each process tells the others while it shares a buffer, or ends one.
struct share_info {
    std::int32_t succeeded, ends;
    std::uint32_t number;          ///< of the buffer: the same on all ranks
    std::uint32_t pieces, files;   ///< how many; of them, descriptors
    std::uint64_t offset, socket;  ///< where it begins in them; where descriptors are fetched
    shared_piece some[4];          ///< the next of its pieces
    char why[320];
};

/// A handle of memory that this process holds.
struct held_handle {
    CUmemGenericAllocationHandle h = 0;
    held_handle() = default;
    held_handle(const held_handle&) = delete;
    ~held_handle() {
        if (h != 0) try_driver("cuMemRelease", h);
    }
};

/// Memory of another process that this one has mapped.
class mapped_buffer {
public:
    mapped_buffer() = default;
    mapped_buffer(const mapped_buffer&) = delete;
    ~mapped_buffer() {
        if (opened_ != nullptr) cudaIpcCloseMemHandle(opened_);
        if (mapped_ != 0) try_driver("cuMemUnmap", at_, mapped_);
        if (at_ != 0) try_driver("cuMemAddressFree", at_, reserved_);
    }
    /// Returns where the pieces begin. `files`: of those that are descriptors. Throws what the driver reports.
    std::uint64_t map(
        int device, const std::vector<shared_piece>& pieces, const std::vector<v1::detail::descriptor>& files) {
        const device_guard there(device);
        if (pieces.front().by == shared_piece::ipc) {
            cudaIpcMemHandle_t handle;
            std::memcpy(&handle, pieces.front().handle, sizeof handle);
            check(cudaIpcOpenMemHandle(&opened_, handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
            return reinterpret_cast<std::uint64_t>(opened_);
        }
        std::size_t bytes = 0;
        for (const shared_piece& p : pieces) bytes += p.bytes;
        reserve(bytes);
        auto file = files.begin();
        for (const shared_piece& p : pieces) {
            shared_piece copy = p;
            const bool by_file = p.by == shared_piece::file;
            void* const from = by_file ? reinterpret_cast<void*>(std::intptr_t{(file++)->get()}) : copy.handle;
            held_handle imported;  // a mapping outlives its handle
            call_driver("cuMemImportFromShareableHandle", &imported.h, from,
                by_file ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : fabric_handles);
            add(imported.h, p.bytes);
        }
        allow(device);
        return at_;
    }
    /// Makes memory of the device that processes of its fabric may map, of whole granules; it begins as zeros. Returns
    /// how they get it. Throws what the driver reports.
    shared_piece create(int device, std::size_t bytes) {
        const device_guard there(device);
        shared_piece p{shared_piece::fabric, bytes, {}};
        CUmemAllocationProp about{};
        about.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        about.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        about.location.id = device;
        about.requestedHandleTypes = fabric_handles;
        held_handle made;
        call_driver("cuMemCreate", &made.h, bytes, const_cast<const CUmemAllocationProp*>(&about), 0ull);
        call_driver("cuMemExportToShareableHandle", static_cast<void*>(p.handle), made.h, fabric_handles, 0ull);
        reserve(bytes);
        add(made.h, bytes);
        allow(device);
        const private_stream stream(device);
        check(cudaMemsetAsync(data(), 0, bytes, stream.get()), "cudaMemsetAsync");
        check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
        return p;
    }
    std::byte* data() const { return reinterpret_cast<std::byte*>(at_); }

private:
    void reserve(std::size_t bytes) {
        call_driver("cuMemAddressReserve", &at_, bytes, std::size_t{0}, CUdeviceptr{0}, 0ull);
        reserved_ = bytes;
    }
    void add(CUmemGenericAllocationHandle what, std::size_t bytes) {
        call_driver("cuMemMap", at_ + mapped_, bytes, std::size_t{0}, what, 0ull);
        mapped_ += bytes;
    }
    void allow(int device) {
        CUmemAccessDesc access{};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = device;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        call_driver("cuMemSetAccess", at_, reserved_, const_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
    }

    void* opened_ = nullptr;
    CUdeviceptr at_ = 0;
    std::size_t reserved_ = 0, mapped_ = 0;
};

/// The pieces of the buffer of one rank.
struct described_buffer {
    std::vector<shared_piece> pieces;
    std::vector<v1::detail::descriptor> files;
    std::uint64_t offset = 0;
};

/// Throws invalid_argument, unsupported.
inline described_buffer describe_buffer(int rank, int device, const void* at, std::size_t bytes) {
    described_buffer d;
    if (bytes == 0) return d;
    const auto unsupported = [&](const char* why) { throw error(errc::unsupported, why, rank); };
    const device_guard there(device);
    const bool by_ipc = check_pointer("share", rank, at, bytes, device, "shared");
    const std::uint64_t begin = reinterpret_cast<std::uint64_t>(at), end = begin + bytes;
    allocation_range a = allocation_of(at);
    d.offset = begin - a.begin;
    for (std::uint64_t next = a.begin; next < end; next += a.bytes) {
        void* const here = reinterpret_cast<void*>(next);
        if (next != a.begin) a = allocation_of(here);
        shared_piece p{shared_piece::ipc, a.bytes, {}};
        if (a.bytes == 0 || a.begin != next || (by_ipc && a.begin + a.bytes < end))
            refuse("share", rank, "the buffer is longer than the memory that is allocated there");
        held_handle held;
        CUmemAllocationProp about{};
        CUresult failed = CUDA_SUCCESS;
        if (by_ipc) {
            cudaIpcMemHandle_t handle;
            if (const cudaError_t code = cudaIpcGetMemHandle(&handle, here); code != cudaSuccess) {
                cudaGetLastError();
                unsupported((error_text() << "cudaIpcGetMemHandle failed: " << cudaGetErrorString(code)
                                          << " (managed memory cannot be shared): take memory of cudaMalloc")
                        .text());
            }
            std::memcpy(p.handle, &handle, sizeof handle);
        } else if (failed = try_driver("cuMemRetainAllocationHandle", &held.h, here); failed != CUDA_SUCCESS) {
            unsupported((error_text() << "cuMemRetainAllocationHandle failed with error " << static_cast<int>(failed)
                                      << " of the driver (memory of a pool, from cudaMallocAsync, has no handle): take "
                                         "memory of cudaMalloc or cuMemCreate")
                    .text());
        } else {
            call_driver("cuMemGetAllocationPropertiesFromHandle", &about, held.h);
            const auto exported = [&](void* to, CUmemAllocationHandleType type) {
                if ((about.requestedHandleTypes & type) == 0) return false;
                failed = try_driver("cuMemExportToShareableHandle", to, held.h, type, 0ull);
                return failed == CUDA_SUCCESS;
            };
            int file = -1;
            if (exported(p.handle, fabric_handles)) {
                p.by = shared_piece::fabric;
            } else if (exported(&file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
                p.by = shared_piece::file;
                v1::detail::descriptor owned(file);
                d.files.push_back(std::move(owned));
            } else if (failed != CUDA_SUCCESS) {
                unsupported((error_text() << "cuMemExportToShareableHandle failed with error "
                                          << static_cast<int>(failed) << " of the driver")
                        .text());
            } else {
                unsupported(
                    "its memory of cuMemCreate is not for other processes: allocate it with requestedHandleTypes "
                    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR or CU_MEM_HANDLE_TYPE_FABRIC");
            }
        }
        d.pieces.push_back(p);
    }
    return d;
}

using buffer_mappings = std::vector<std::unique_ptr<mapped_buffer>>;
class shared_range;

/// What the processes of a group share, as one of them knows it. Collective calls, which end within the timeouts of
/// the host group and of the environment.
class buffer_sharing : joint_steps<share_info> {
public:
    /// by_fabric: ranks of other hosts map this one's buffers, too.
    buffer_sharing(local_ranks& ranks, int rank, info_exchange exchange, bool by_fabric)
        : joint_steps(rank, ranks.size(), std::move(exchange), "cuda::communicator::share", "shares nothing",
              "could not share"),
          ranks_(ranks),
          by_fabric_(by_fabric) {}

    bool is_foreign() const { return ranks_.is_foreign(); }
    /// Throws on all ranks if one fails; then nothing is mapped.
    std::unique_ptr<shared_range> share(const void* at, std::size_t bytes);
    /// Returns when all ranks have ended the buffer. Where one does not, the group is broken.
    void end(std::uint32_t number, buffer_mappings& mapped) noexcept {
        synchronise(ranks_.device());  // no kernel of this rank reads what it has mapped
        const bool is_told = forget(number);
        mapped.clear();
        in_use_[number] = false;
        own_ = {1, 1, number, 0, 0, 0, 0, {}, {}};
        if (disagrees_) return;
        // Kernels that wait for a call of this rank would wait for ever. (Other hosts would hear too late that it goes
        // on.)
        const bool tells = !ranks_.has_refused() && ranks_.far() == nullptr;
        try {
            if (tells) ranks_.set_refusal("it waits until all ranks end a shared buffer");
            agree();  // no kernels of the others read this rank's memory any more
            if (tells) ranks_.set_refusal("");
            agree();
            if (!is_told)
                throw error(errc::peer_failed, "its device was not told of the end of a shared buffer", rank_);
        } catch (const std::exception& e) {
            ranks_.order(failure::aborted, rank_, e.what());
        }
    }

private:
    /// False where the device fails: its kernels take the buffer for shared.
    bool forget(std::uint32_t number) noexcept {
        try {
            ranks_.set_shared(number, nullptr, 0, {});
            return true;
        } catch (const std::exception&) {
            return false;
        }
    }
    /// Throws if a step has failed, or if the ranks do not share, or end, the same buffer.
    void agree() {
        tell();
        for (int r = 0; r < n_ && !disagrees_; ++r)
            if (of(r).ends != own_.ends || of(r).number != own_.number) {
                disagrees_ = true;
                throw error(errc::mismatch,
                    (error_text() << "colls: cuda: rank " << rank_ << (own_.ends ? " ends" : " shares")
                                  << " buffer number " << static_cast<int>(own_.number) << ", and rank " << r
                                  << (of(r).ends ? " ends" : " shares") << " number " << static_cast<int>(of(r).number)
                                  << ": all ranks share and end buffers in the same order")
                        .text(),
                    rank_, r);
            }
        throw_if_failed();
    }
    void take(const described_buffer& own, std::vector<std::vector<shared_piece>>& pieces) {
        constexpr std::uint32_t each = std::extent_v<decltype(share_info::some)>;
        std::uint32_t most = 0;
        for (int r = 0; r < n_; ++r) most = std::max(most, of(r).pieces);
        for (std::uint32_t first = 0; first < most; first += each) {
            for (std::uint32_t i = 0; i < each && first + i < own.pieces.size(); ++i)
                own_.some[i] = own.pieces[first + i];
            agree();
            for (int r = 0; r < n_; ++r) {
                std::vector<shared_piece>& to = pieces[static_cast<std::size_t>(r)];
                for (std::uint32_t i = 0; i < each && first + i < to.size(); ++i) to[first + i] = of(r).some[i];
            }
        }
    }
    std::uint64_t mapped_of(int r, const std::vector<shared_piece>& pieces,
        const std::vector<v1::detail::descriptor>& files, buffer_mappings& mapped) {
        mapped.push_back(std::make_unique<mapped_buffer>());
        try {
            return mapped.back()->map(ranks_.device(), pieces, files) + of(r).offset;
        } catch (const error& e) {
            throw error(errc::unsupported,
                (error_text() << "it cannot map the buffer of rank " << r << ": " << v1::detail::quoted(e.what()))
                    .text(),
                rank_, r);
        }
    }
    void share_steps(const void* at, std::size_t bytes, std::unique_ptr<shared_range>& made);

    local_ranks& ranks_;
    const bool by_fabric_;
    bool in_use_[shared_address::most_shared] = {};
    bool disagrees_ = false;  ///< ranks have called for different buffers: their calls no longer meet
};

/// A buffer of this rank, and those of the others, until they end it together.
class shared_range {
public:
    shared_range(buffer_sharing& group, std::uint32_t number) : group_(group), number_(number) {}
    shared_range(const shared_range&) = delete;
    ~shared_range() {
        if (group_.is_foreign())
            new buffer_mappings(std::move(mapped));  // not to be unmapped
        else if (is_shared)
            group_.end(number_, mapped);
    }
    buffer_mappings mapped;
    bool is_shared = false;

private:
    buffer_sharing& group_;
    const std::uint32_t number_;
};

inline void buffer_sharing::share_steps(const void* at, std::size_t bytes, std::unique_ptr<shared_range>& made) {
    described_buffer own;
    std::vector<std::vector<shared_piece>> pieces;
    std::vector<std::uint64_t> begins;
    std::vector<int> files;
    int near = 0;
    attempt([&] {
        ranks_.throw_if_failed();
        if (own_.number == shared_address::most_shared)
            throw error(errc::unsupported,
                (error_text() << std::size(in_use_) << " buffers are shared already: end one first").text(), rank_);
        made = std::make_unique<shared_range>(*this, own_.number);
        pieces.resize(all_.size());
        begins.resize(all_.size());
        own = describe_buffer(rank_, ranks_.device(), at, bytes);
        for (const shared_piece& p : own.pieces)
            if (by_fabric_ && p.by != shared_piece::fabric)
                throw error(errc::unsupported,
                    "ranks on other hosts of its fabric cannot map it: take memory of cuMemCreate with "
                    "requestedHandleTypes CU_MEM_HANDLE_TYPE_FABRIC",
                    rank_);
        for (const v1::detail::descriptor& f : own.files) files.push_back(f.get());
        own_.pieces = static_cast<std::uint32_t>(own.pieces.size());
        own_.files = static_cast<std::uint32_t>(files.size());
        own_.offset = own.offset;
        own_.socket = v1::detail::random_id();
    });
    agree();
    attempt([&] {
        for (int r = 0; r < n_; ++r) {
            near += !ranks_.is_far(r);
            if (r != rank_ && !ranks_.is_far(r)) pieces[static_cast<std::size_t>(r)].resize(of(r).pieces);
        }
    });
    agree();
    take(own, pieces);
    const double timeout = v1::detail::environment::read().timeout;
    const auto check = [&] { ranks_.throw_if_failed(); };
    const auto map_of = [&](int r, const std::vector<v1::detail::descriptor>& fetched) {
        const auto i = static_cast<std::size_t>(r);
        if (!pieces[i].empty()) begins[i] = mapped_of(r, pieces[i], fetched, made->mapped);
    };
    for (int r = 0; r < n_; ++r) {
        if (of(r).files == 0) continue;
        attempt([&] {
            if (r == rank_)
                v1::detail::hand_out(own_.socket, files, near - 1, timeout, rank_, check);
            else if (!ranks_.is_far(r))
                map_of(r, v1::detail::fetch(of(r).socket, of(r).files, timeout, rank_, r, check));
        });
        agree();
    }
    attempt([&] {
        for (int r = 0; r < n_; ++r)
            if (of(r).files == 0) map_of(r, {});
        begins[static_cast<std::size_t>(rank_)] = reinterpret_cast<std::uint64_t>(at);
        ranks_.set_shared(own_.number, at, bytes, begins);
    });
    agree();  // all ranks have mapped it before any rank's kernel reads it
}

inline std::unique_ptr<shared_range> buffer_sharing::share(const void* at, std::size_t bytes) {
    if (disagrees_)
        throw error(errc::mismatch,
            (error_text() << "colls: cuda: share on rank " << rank_ << ": an earlier share, or end, was not one of all "
                          << "ranks: make a new group")
                .text(),
            rank_);
    own_ = {};
    own_.number = static_cast<std::uint32_t>(std::find(std::begin(in_use_), std::end(in_use_), false) - in_use_);
    std::unique_ptr<shared_range> made;
    try {
        synchronise(ranks_.device());  // so that no kernel reads the table of regions
        share_steps(at, bytes, made);
    } catch (const error& e) {
        if (own_.number < shared_address::most_shared && !forget(own_.number))
            ranks_.order(failure::aborted, rank_, "its device was not told that a buffer is not shared");
        made.reset();
        // The owner may free its memory when no process has it mapped any more.
        if (!disagrees_) try {
                tell();
            } catch (const error&) {}
        throw;
    }
    in_use_[own_.number] = made->is_shared = true;
    return made;
}

}  // namespace colls::inline v1::cuda::detail
