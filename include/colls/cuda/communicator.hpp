// One rank a GPU: the GPUs of one process through peer access, or one process a GPU through CUDA IPC.
#pragma once

#include <colls/cuda/detail/group/join.hpp>
#include <colls/cuda/memory.hpp>
#include <colls/cuda/options.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda {

/// One rank of a group of GPUs. A call takes the buffers of this rank; every rank makes the same calls in the same
/// order.
///
/// Calls are ordered by their stream, and may be captured into graphs. A communicator is used by one host thread and on
/// one stream at a time. Several communicators may be in use at once, on streams of their own, as long as the blocks of
/// their calls (up to options.channels each) are on the device together; a call that does not fit next to those in
/// flight on other streams is refused (unsupported). Replays of graphs, kernels of the program and other processes are
/// not counted: that they fit is the program's part.
///
/// A call that failed leaves its output undefined, and the group cannot be used any more. The rank may overwrite its
/// buffers at once: a late kernel of another rank that still reads them finds that this rank has given up, and fails as
/// well. Between processes, a thread of this class watches the processes of the other ranks and the host group: when
/// one of them ends, or the host group breaks, kernels give up within a second, and do not wait for the timeout (but
/// where it is on another host of their NVLink fabric). Memory that is not from `allocate`, which GPUs of one process
/// read directly, must not be freed before the kernels of all ranks are over: call cudaDeviceSynchronize for each
/// device. They give up by their own timeout.
class communicator {
public:
    /// A call takes one buffer, not a range of buffers: see virtual_ranks.
    static constexpr bool takes_buffer_of_each_rank = false;

    /// Belongs to no group; every call on it is undefined.
    communicator() = default;

    /// Makes this process a rank of a group of GPUs, one a process, with the ranks of `host`, which may be on several
    /// hosts. Collective: every rank of `host` calls.
    ///
    /// Between hosts a thread of each process, its proxy, moves what the kernels send, on connections of its own: by
    /// RDMA or TCP, as world() would take (include <colls/world.hpp>); of several RDMA devices by the one nearest to
    /// the GPU. All calls then go by schedules, whatever options.protocol. Those that are chosen send each byte once
    /// for a host; hierarchical<Intra, Inter> takes the group's hosts where they have equally many consecutive ranks.
    /// Ranks of a host that do not reach each other's memory (no peer access, no CUDA IPC) are as on several hosts, if
    /// the program calls world() or bootstrap(): a line on stderr says so. Hosts of one NVLink fabric are as one host.
    ///
    /// `host`: any of the library's communicators (include <colls/collectives.hpp>); it must outlive this one.
    /// `device`: the number of this rank's GPU in this process. Several ranks may use one GPU if their kernels fit it
    /// together.
    ///
    /// Throws colls::error on all ranks if one fails, with the rank at fault and its reason (no such device, other
    /// options, too little memory): on that rank unsupported, invalid_argument or peer_failed, on the others
    /// peer_failed. Unsupported for more than 1024 ranks. Cost: four all_gathers on `host`, and device memory for the
    /// workspace (about channels * (scratch_bytes + packet_bytes)) and arena_bytes; on several hosts also 4 *
    /// far_channels * far_bytes of pinned host memory. Multicast memory takes five all_gathers more.
    template <class Host>
        requires requires(Host& h) {
            h.rank();
            h.size();
            h.context();
        }
    communicator(Host& host, int device, const options& o = {})
        : communicator(detail::join_processes(host, device, o)) {
        // Allocates nothing: the other ranks have their group by now, and would wait for one that had no memory.
        joined_by_ = &host;
        split_ = [](const communicator& of, int color, int key) {
            auto made = static_cast<Host*>(of.joined_by_)->split(color, key);
            if (color < 0) return communicator();
            auto part = std::make_shared<decltype(made)>(std::move(made));
            communicator c(*part, of.device(), of.ranks_->chosen_options());
            c.host_ = std::move(part);
            return c;
        };
    }

    /// Makes a group of the given devices of this process: returns one communicator each, rank r on devices[r]. Each is
    /// used by one thread at a time; one thread may use them all, if it makes a call on every rank before it waits for
    /// any. Buffers are any memory of the rank's device. The other ranks read it directly; memory of a pool
    /// (cudaMallocAsync) or of cuMemCreate (PyTorch's expandable segments), which peer access does not reach, calls
    /// copy to scratch memory first, chunk by chunk. Where a device has no peer access to another, all data of the
    /// group go through host memory, which is slow: see through_host(). The last communicator to be destroyed frees the
    /// group's memory. Throws colls::error: invalid_argument where there are not 1 to 72 devices, or one is given
    /// twice; unsupported where there is no such device.
    static std::vector<communicator> of_devices(const std::vector<int>& devices, const options& o = {}) {
        std::vector<communicator> all;
        for (detail::joined_rank& j : detail::join_devices(devices, o)) all.push_back(communicator(std::move(j)));
        return all;
    }

    communicator(communicator&&) = default;
    communicator& operator=(communicator&&) = delete;
    /// Waits until the device is idle. Between processes it is collective: it waits for the other ranks' destructors,
    /// as long as the host group waits for a peer. If one does not come, memory that its kernel may still read stays
    /// allocated until the process ends. A rank that makes one more call fails with peer_failed a second later. In a
    /// process that was forked from the rank it does nothing.
    ~communicator() {
        if (!ranks_) return;
        if (ranks_->is_foreign()) {
            new communicator(std::move(*this));  // of what the parent uses nothing may be destroyed
            return;
        }
        detail::synchronise(device());
        // Ranks that wait for this one, in a call that it has not made, need not wait for the timeout.
        ranks_->leave();
    }

    /// Divides a group of processes, as colls::communicator::split does: into rows, columns, the GPUs of one number on
    /// each host. Collective. Ranks that give the same `color` form a group of their own, with this one's device and
    /// options, in the order of `key`, then of their ranks here; a negative color joins none. Takes what a new group
    /// takes. Throws colls::error as the constructor does; unsupported in a group of of_devices.
    communicator split(int color, int key) {
        if (split_ == nullptr)
            throw error(errc::unsupported,
                "colls: cuda::communicator::split: this group's ranks are devices of one process: make one of some of "
                "them by of_devices",
                rank_);
        return split_(*this, color, key);
    }

    int rank() const { return rank_; }
    int size() const { return ranks_->size(); }
    int device() const { return ranks_->device(); }

    /// Do calls move all data through host memory? Between devices of one process without peer access to each other, or
    /// where options.through_host says so.
    bool through_host() const { return ranks_->hides_memory(); }

    /// Has the group multicast memory, for options.multicast? Where it has none, the same calls go by schedules.
    bool multicast() const { return ranks_->multicast().bytes_each != 0; }
    /// Do network cards read and write memory of the GPU, for options.gpu_direct?
    bool gpu_direct() const { return ranks_->far() && ranks_->far()->memory().in_gpu(); }
    /// Throws colls::error if a kernel of this rank has failed: timeout, mismatch, or peer_failed where a rank has
    /// aborted, has died or could not make its call, invalid_argument where a call within a kernel was made by wrong
    /// blocks; error::peer() and error::round() say where. Does not wait for kernels: synchronise the stream first to
    /// learn about all calls so far.
    void check() const { ranks_->throw_if_failed(); }

    /// Breaks the group: kernels of this rank that wait end at once, those of other ranks when they wait for this rank
    /// or for one that has ended so; check() and the next call throw peer_failed, with this rank as error::peer() and a
    /// text that quotes `why`. Not collective. Any thread may call it, also while another one waits for a kernel. Does
    /// nothing where the group is broken already. The host group goes on.
    void abort(const char* why) { ranks_->order(detail::failure::aborted, rank_, why); }

    /// `count` elements of uninitialised device memory that the other ranks reach directly: between processes, calls on
    /// other memory, unless it is shared, copy it to scratch memory first. Not collective. Throws colls::error:
    /// unsupported where options.arena_bytes are used up.
    template <class T>
    memory<T> allocate(std::size_t count) {
        const std::size_t bytes = detail::bytes_of(count, sizeof(T));
        if (!memory_->arena) return allocate_in_process<T>(count, bytes);
        std::byte* const at = memory_->arena->take(bytes);
        if (at == nullptr)
            throw error(errc::unsupported,
                (v1::detail::error_text()
                    << "colls: cuda: rank " << rank_ << ": allocate of " << bytes << " bytes: the arena of "
                    << static_cast<std::size_t>(ranks_->reachable().exported.bytes)
                    << " bytes is used up: raise options.arena_bytes")
                    .text(),
                rank_);
        return {memory_->arena, at, count};
    }

    /// Lets the other ranks reach a buffer of this rank directly: calls and messages on it, or on parts of it, then
    /// copy nothing to scratch memory first. Collective between processes: each rank
    /// gives its own buffer, of any size, or none (nullptr, 0); up to 16 buffers at once. Ranks on other hosts are not
    /// concerned; those of one NVLink fabric take memory with handles of the fabric alone. In a group of of_devices it
    /// does nothing, as peers reach memory of cudaMalloc anyway.
    ///
    /// `data`: `count` elements of this rank's device, of one allocation of cudaMalloc, or of one or several handles of
    /// cuMemCreate that were made with requestedHandleTypes CU_MEM_HANDLE_TYPE_FABRIC or _POSIX_FILE_DESCRIPTOR (as
    /// PyTorch's expandable segments). Whole allocations are mapped: cudaMalloc takes small requests from blocks of
    /// 2 MiB, and what else is in the block becomes visible to the other processes, too.
    ///
    /// Throws colls::error on all ranks if one fails, with the rank at fault and its reason: on that rank
    /// invalid_argument (host memory, more than is allocated) or unsupported (memory of a pool, of cuMemCreate without
    /// such types, in one process also with them; 16 are shared), on the others peer_failed; mismatch where a rank ends
    /// a buffer instead. Cost: waits until the device is idle; an all_gather of `host` for each four handles and for
    /// each rank that has descriptors.
    template <class T>
    shared_buffer<T> share(T* data, std::size_t count) {
        if (sharing_) return {sharing_->share(data, detail::bytes_of(count, sizeof(T))), data, count};
        if (!detail::check_pointer("share", rank_, data, detail::bytes_of(count, sizeof(T)), device(), "shared"))
            throw error(errc::unsupported,
                (v1::detail::error_text() << "colls: cuda: share on rank " << rank_
                                          << ": devices of one process do not reach each other's memory of cuMemCreate "
                                             "or of a pool here: take memory of cudaMalloc, or do not share it")
                    .text(),
                rank_);
        return {nullptr, data, count};
    }

    /// For the library.
    detail::local_ranks& context() { return *ranks_; }

private:
    explicit communicator(detail::joined_rank&& j)
        : memory_(std::move(j.memory)),
          ranks_(std::move(j.ranks)),
          sharing_(std::move(j.sharing)),
          watch_(std::move(j.watch)),
          rank_(j.rank) {}

    /// Within one process the other ranks reach all memory of the device.
    template <class T>
    memory<T> allocate_in_process(std::size_t count, std::size_t bytes) {
        auto block = std::make_shared<detail::device_memory>(device(), bytes);
        std::shared_ptr<detail::device_arena> owner(
            new detail::device_arena(block->data(), 0), [block](detail::device_arena* a) { delete a; });
        return {std::move(owner), block->data(), count};
    }

    void* joined_by_ = nullptr;  ///< the host group: see split_, which knows its type; null for of_devices
    communicator (*split_)(const communicator& of, int color, int key) = nullptr;
    std::shared_ptr<void> host_;  ///< of a part: its host group, which the other members use
    std::shared_ptr<detail::shared_allocations> memory_;
    std::unique_ptr<detail::local_ranks> ranks_;
    std::unique_ptr<detail::buffer_sharing> sharing_;  ///< null within one process
    std::unique_ptr<detail::peer_watch> watch_;
    int rank_ = none;
};

}  // namespace colls::inline v1::cuda
