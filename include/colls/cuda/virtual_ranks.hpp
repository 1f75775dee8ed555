// Ranks as groups of thread blocks on one GPU.
#pragma once

#include <colls/cuda/detail/group/virtual_group.hpp>
#include <colls/cuda/options.hpp>

#include <utility>

namespace colls::inline v1::cuda {

/// n ranks on the current device, whose blocks all run in one cooperative launch: for tests and measurements, and for
/// programs that share one GPU among what would be ranks elsewhere. A call takes the buffers of all ranks, as a range
/// of ranges of device memory, in the order of ranks.
///
/// Calls are ordered by their stream, and may be captured into graphs. A group is used by one host thread and on one
/// stream at a time; several groups may be in use at once. A call that failed leaves its output undefined, and the
/// group cannot be used any more.
class virtual_ranks {
public:
    /// A call takes a range of buffers, one for each rank.
    static constexpr bool takes_buffer_of_each_rank = true;

    /// `n`: 1 to 32 ranks. Throws colls::error: invalid_argument for n < 1; unsupported where there is no device, n is
    /// too large, or options.channels blocks for each rank are not resident at once.
    explicit virtual_ranks(int n, const options& o = {}) : group_(detail::make_virtual_group(n, o)) {}
    virtual_ranks(virtual_ranks&&) = default;
    virtual_ranks& operator=(virtual_ranks&&) = delete;
    /// Waits until the device is idle: kernels may still be using the group's memory.
    ~virtual_ranks() {
        if (group_.ranks && group_.ranks->is_foreign())
            new virtual_ranks(std::move(*this));  // of what the parent uses nothing may be destroyed
        else if (group_.ranks)
            detail::synchronise(device());
    }

    int size() const { return group_.ranks->size(); }
    int device() const { return group_.ranks->device(); }

    /// Throws colls::error, timeout, mismatch or (calls within kernels) invalid_argument, if a kernel of a rank has
    /// failed. Does not wait for kernels: synchronise the stream first to learn about all calls so far.
    void check() const { group_.ranks->throw_if_failed(); }

    /// Breaks the group: its kernels that wait end, check() and the next call throw peer_failed with a text that quotes
    /// `why`. Any thread may call it, also while another one waits for a kernel.
    void abort(const char* why) { group_.ranks->order(detail::failure::aborted, 0, why); }

    /// For the library.
    detail::local_ranks& context() { return *group_.ranks; }

private:
    detail::virtual_group group_;
};

}  // namespace colls::inline v1::cuda
