// Checks of a call's arguments on the host, before anything is launched. All errors are invalid_argument.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/driver.hpp>
#include <colls/cuda/detail/kernel/partition.hpp>
#include <colls/cuda/detail/runtime.hpp>
#include <colls/schedule.hpp>

#include <type_traits>
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

/// The bytes of `count` elements; more than any memory has where they are not to be counted.
inline constexpr std::size_t most_bytes = std::size_t{1} << 53;
constexpr std::size_t bytes_of(std::size_t count, std::size_t size) {
    return count > most_bytes / size ? most_bytes : count * size;
}

/// Accepts memory that `device` reaches, and any pointer where `bytes` is 0. True: the other devices of the process
/// reach it, too, once they have peer access. They do not reach memory of a pool (cudaMallocAsync) nor of cuMemCreate.
/// That a buffer ends in its allocation is looked at for memory of cudaMalloc.
inline bool check_pointer(call_name what, int rank, const void* at, std::size_t bytes, int device, const char* which) {
    if (bytes == 0) return true;
    cudaPointerAttributes a{};
    std::size_t left = most_bytes - 1;
    if (at != nullptr && bytes <= left) {
        check(cudaPointerGetAttributes(&a, at), "cudaPointerGetAttributes", rank);
        if (a.type == cudaMemoryTypeManaged) return true;
        if (a.type == cudaMemoryTypeDevice && a.device == device) {
            allocation_range range;
            const bool reached = is_of_cuda_malloc(at, &range);
            if (reached && range.bytes != 0) left = range.begin + range.bytes - reinterpret_cast<std::uint64_t>(at);
            if (bytes <= left) return reached;
        }
    }
    error_text why;
    why << "the " << which << " buffer ";
    if (at == nullptr)
        why << "is a null pointer, and has " << bytes << " bytes";
    else if (bytes >= most_bytes)
        why << "has more bytes than any memory";
    else if (bytes > left)
        why << "has " << bytes << " bytes, and " << left << " are left of the memory that is allocated there";
    else if (a.type == cudaMemoryTypeDevice)
        why << "is memory of another device";
    else
        why << "is host memory: copy it to the device, or use colls:: in place of colls::cuda::";
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

/// Not while it is captured: it cannot be asked then, and a launch on another device's stream fails.
inline void check_stream(call_name what, int rank, cudaStream_t stream, int device) {
#if CUDART_VERSION >= 12080
    int on = device;
    check(cudaStreamGetDevice(stream, &on), "cudaStreamGetDevice", rank);
    if (on != device) refuse(what, rank, "the stream belongs to a different device than the group");
#else
    (void)what, (void)rank, (void)stream, (void)device;
#endif
}

/// The count c of rank `of`, of the counts of what is `which`. Refuses one that is negative, or more than the `left`
/// elements that those before it leave of the buffer.
template <class Count>
std::size_t checked_count(call_name what, int rank, const char* which, std::size_t of, Count c, std::size_t left) {
    bool is_negative = false;
    if constexpr (std::is_signed_v<Count>) is_negative = c < 0;
    if (!is_negative && static_cast<std::uint64_t>(c) <= left) return static_cast<std::size_t>(c);
    error_text why;
    why << "the counts of what is " << which << ": that of rank " << of << " is ";
    if (is_negative)
        why << static_cast<long long>(c) << ", and a count is not negative";
    else if (static_cast<std::uint64_t>(c) >> 63 != 0)
        why << "2^63 or more";
    else
        why << static_cast<std::size_t>(c) << ", and " << left << " elements of the buffer are left for it";
    refuse(what, rank, why.text());
}
/// Where blocks of the given sizes begin, and where the last one ends. Refuses those that a buffer of `whole` elements
/// does not hold.
template <class Counts>
std::vector<std::uint64_t> offsets_of(call_name what, int rank, const Counts& counts, std::size_t whole) {
    std::vector<std::uint64_t> all = {0};
    for (const auto c : counts)
        all.push_back(
            all.back() + checked_count(what, rank, "reduced or gathered", all.size() - 1, c, whole - all.back()));
    return all;
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
