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

/// The name of a call in errors.
struct call_name {
    const char* text;
    call_name(const char* name) : text(name) {}
    call_name(collective c) : text(name_of(c)) {}
};

[[noreturn]] inline void refuse(call_name what, int rank, const char* why) {
    throw error(errc::invalid_argument,
        (error_text() << "colls: cuda: " << what.text << " on rank " << rank << ": " << why).text(), rank);
}

/// Refuses a rank that the group does not have. `which`: "root", or "rank".
inline void check_rank(call_name what, int rank, const char* which, int named, int n) {
    if (named >= 0 && named < n) return;
    error_text why;
    why << which << " " << named << " is out of range: this group has ranks 0 to " << n - 1;
    refuse(what, rank, why.text());
}

/// The bytes of a buffer.
struct byte_range {
    const void* at = nullptr;
    std::size_t bytes = 0;
    std::uint64_t begin() const { return reinterpret_cast<std::uint64_t>(at); }
    std::uint64_t end() const { return begin() + bytes; }
    bool overlaps(const byte_range& b) const {
        return bytes != 0 && b.bytes != 0 && begin() < b.end() && b.begin() < end();
    }
};

/// Accepts memory that `device` reaches, and any pointer where count is 0. True: the other devices of the process reach
/// it, too, once they have peer access. They do not reach memory of a pool (cudaMallocAsync) nor of cuMemCreate.
inline bool check_pointer(call_name what, int rank, const void* at, std::size_t count, int device, const char* which) {
    if (count == 0) return true;
    cudaPointerAttributes a{};
    check(cudaPointerGetAttributes(&a, at), "cudaPointerGetAttributes", rank);
    if (a.type == cudaMemoryTypeManaged) return true;
    if (a.type == cudaMemoryTypeDevice && a.device == device) return is_of_cuda_malloc(at);
    error_text why;
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
    const bool gathers = traits_of(what).in == content::own_block;
    if (what == collective::all_to_all) refuse(what, rank, "it does not work in place: give it two buffers");
    if (size_in != size_out) refuse(what, rank, "in place, input and output need elements of one size");
    if (in + (owned(what) && !gathers ? first * size_in : 0) != out + (gathers ? first * size_out : 0))
        refuse(what, rank,
            owned(what) ? "input and output overlap without being in place: in place, the one is this rank's own block "
                          "of the other"
                        : "input and output overlap without being in place: in place, they are the same buffer");
}

inline void check_stream(call_name what, int rank, cudaStream_t stream, int device) {
#if CUDART_VERSION >= 12080
    if (is_captured(stream)) return;  // it cannot be asked, and a launch on another device's stream fails
    int on = device;
    check(cudaStreamGetDevice(stream, &on), "cudaStreamGetDevice", rank);
    if (on != device) refuse(what, rank, "the stream belongs to a different device than the group");
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
        error_text why;
        why << "the counts have " << offsets.size() - 1 << " entries, and should have one for each of " << n
            << " ranks";
        refuse(what, rank, why.text());
    }
    // Off the root of a scatter or gather a rank knows its own block only: `all` is then a whole of such blocks.
    const collective_traits& is = traits_of(what);
    if (is.in == content::nothing) return 0;
    const bool gathers = is.in == content::own_block, scatters = is.out == content::own_block;
    const std::uint64_t own_block = gathers ? b.in_count : b.out_count;
    std::uint64_t all = gathers || is.in_at_root ? b.out_count : b.in_count;
    if (is.owned() && is.rooted()) all = own_block * size;
    const std::uint64_t block = !is.owned()       ? all
                                : is.rooted()     ? own_block
                                : offsets.empty() ? balanced(all, size, r).count
                                                  : offsets[r + 1] - offsets[r];
    std::uint64_t own_in = gathers ? block : all, own_out = scatters ? block : all;
    if (is.in_at_root && rank != root) own_in = b.in_count;
    if (is.out_at_root && rank != root) own_out = b.out_count;
    if (what == collective::broadcast) return all;  // it has one buffer
    if (!offsets.empty() && all != offsets.back()) refuse(what, rank, "the counts do not add up to the buffer's size");
    if (what == collective::all_to_all && all % size != 0)
        refuse(what, rank, "the size of the buffer is not a multiple of the number of ranks");
    if (b.in_count != own_in || b.out_count != own_out) {
        error_text why;
        why << "input and output have " << b.in_count << " and " << b.out_count << " elements, and should have "
            << static_cast<std::size_t>(own_in) << " and " << static_cast<std::size_t>(own_out);
        refuse(what, rank, why.text());
    }
    return all;
}

}  // namespace colls::inline v1::cuda::detail
