// Checks of a call's arguments on the host, before anything is launched. All errors are invalid_argument.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/driver.hpp>
#include <colls/cuda/detail/partition.hpp>
#include <colls/cuda/detail/runtime.hpp>
#include <colls/schedule.hpp>

#include <vector>

namespace colls::inline v1::cuda::detail {

/// A rank's buffers as the caller gives them; counts in elements.
struct rank_buffers {
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t in_count = 0, out_count = 0;
};

[[noreturn]] inline void refuse(collective what, int rank, const char* why) {
    throw error(errc::invalid_argument,
        (message() << "colls: cuda: " << name_of(what) << " on rank " << rank << ": " << why).text(), rank);
}

/// Accepts memory that `device` reaches, and any pointer where count is 0. True: the other devices of the process reach
/// it, too, once they have peer access. They do not reach memory of a pool (cudaMallocAsync) nor of cuMemCreate.
inline bool check_pointer(collective what, int rank, const void* at, std::size_t count, int device, const char* which) {
    if (count == 0) return true;
    cudaPointerAttributes a{};
    check(cudaPointerGetAttributes(&a, at), "cudaPointerGetAttributes", rank);
    if (a.type == cudaMemoryTypeManaged) return true;
    if (a.type == cudaMemoryTypeDevice && a.device == device) return is_of_cuda_malloc(at);
    message why;
    why << "the " << which << " buffer is "
        << (a.type == cudaMemoryTypeDevice
                   ? "memory of another device"
                   : "host memory: copy it to the device, or use colls:: in place of colls::cuda::");
    refuse(what, rank, why.text());
}

/// Accepts buffers apart from each other, and buffers in place: the same buffer twice, or one that is the rank's own
/// block, which begins at element `first`, of the other. size_in, size_out: bytes of an element.
inline void check_overlap(
    collective what, int rank, const rank_buffers& b, std::size_t size_in, std::size_t size_out, std::uint64_t first) {
    if (b.in_count == 0 || b.out_count == 0) return;
    const auto in = reinterpret_cast<std::uint64_t>(b.in), out = reinterpret_cast<std::uint64_t>(b.out);
    if (in >= out + b.out_count * size_out || out >= in + b.in_count * size_in) return;
    const bool gathers = what == collective::gather || what == collective::all_gather;
    if (what == collective::all_to_all) refuse(what, rank, "it does not work in place: give it two buffers");
    if (size_in != size_out) refuse(what, rank, "in place, input and output need elements of one size");
    if (in + (owned(what) && !gathers ? first * size_in : 0) != out + (gathers ? first * size_out : 0))
        refuse(what, rank,
            owned(what) ? "input and output overlap without being in place: in place, the one is this rank's own block "
                          "of the other"
                        : "input and output overlap without being in place: in place, they are the same buffer");
}

inline void check_stream(collective what, int rank, cudaStream_t stream, int device) {
#if CUDART_VERSION >= 12080
    if (is_captured(stream)) return;  // it cannot be asked, and a launch on another device's stream fails
    int on = device;
    check(cudaStreamGetDevice(stream, &on), "cudaStreamGetDevice", rank);
    if (on != device) refuse(what, rank, "the stream belongs to another device than the group");
#else
    (void)what, (void)rank, (void)stream, (void)device;
#endif
}

/// The elements of all user blocks together, from what one rank knows: the sizes of its own buffers. Checks that these
/// fit each other, n, and `offsets` where they are given.
inline std::uint64_t whole_count(
    collective what, const rank_buffers& b, int rank, int n, int root, const std::vector<std::uint64_t>& offsets) {
    const auto size = static_cast<std::uint64_t>(n), r = static_cast<std::uint64_t>(rank);
    if (!offsets.empty() && offsets.size() != size + 1) {
        message why;
        why << "the counts have " << offsets.size() - 1 << " entries, and should have one for each of " << n
            << " ranks";
        refuse(what, rank, why.text());
    }
    std::uint64_t all = 0, own_in = 0, own_out = 0;
    switch (what) {
        case collective::barrier:
            return 0;
        case collective::broadcast:
            return b.out_count;
        case collective::scatter:
            all = b.out_count * size, own_in = rank == root ? all : b.in_count, own_out = b.out_count;
            break;
        case collective::gather:
            all = b.in_count * size, own_in = b.in_count, own_out = rank == root ? all : b.out_count;
            break;
        case collective::reduce:
            all = own_in = b.in_count, own_out = rank == root ? all : b.out_count;
            break;
        case collective::all_gather:
            all = own_out = b.out_count;
            break;
        case collective::reduce_scatter:
            all = own_in = b.in_count;
            break;
        default:
            all = own_in = own_out = b.in_count;
            break;
    }
    const std::uint64_t block = offsets.empty() ? balanced(all, size, r).count : offsets[r + 1] - offsets[r];
    if (what == collective::all_gather) own_in = block;
    if (what == collective::reduce_scatter) own_out = block;
    if (!offsets.empty() && all != offsets.back()) refuse(what, rank, "the counts do not add up to the buffer's size");
    if (what == collective::all_to_all && all % size != 0)
        refuse(what, rank, "the size of the buffer is not a multiple of the number of ranks");
    if (b.in_count != own_in || b.out_count != own_out) {
        message why;
        why << "input and output have " << b.in_count << " and " << b.out_count << " elements, and should have "
            << static_cast<std::size_t>(own_in) << " and " << static_cast<std::size_t>(own_out);
        refuse(what, rank, why.text());
    }
    return all;
}

}  // namespace colls::inline v1::cuda::detail
