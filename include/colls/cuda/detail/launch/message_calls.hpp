// From the ranges and counts of a call to messages.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/launch/call.hpp>
#include <colls/cuda/detail/launch/launch_messages.hpp>

#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// The bytes of a range that is sent, or received.
template <class Comm, bool written, class R>
byte_range message_in(R& range) {
    static_assert(!Comm::takes_buffer_of_each_rank,
        "colls: messages, and calls with counts of each rank, take a cuda::communicator: virtual_ranks makes the calls "
        "of all its ranks at once");
    using T = element<R>;
    static_assert(std::is_trivially_copyable_v<T>, "colls: elements must be trivially copyable");
    static_assert(!written || !std::is_const_v<T>, "colls: the output buffer is const");
    return {range.data(), bytes_of(range.size(), sizeof(T))};
}

/// Cuts a buffer of `whole` into blocks of counts[r] elements of `size` bytes, one for each of n ranks.
template <class Counts>
std::vector<byte_range> blocks_of_counts(call_name what, int rank, int n, const byte_range& whole, std::size_t size,
    const Counts& counts, const char* which) {
    std::vector<byte_range> all;
    const std::byte* at = static_cast<const std::byte*>(whole.at);
    std::size_t left = whole.bytes / size;
    for (const auto c : counts) {
        const std::size_t count = checked_count(what, rank, which, all.size(), c, left);
        all.push_back({at, count * size});
        at += count * size;
        left -= count;
    }
    if (all.size() == static_cast<std::size_t>(n) && left == 0) return all;
    error_text why;
    why << "the counts of what is " << which;
    if (left != 0 && all.size() == static_cast<std::size_t>(n))
        why << " leave " << left << " elements of the buffer over";
    else
        why << " have " << all.size() << " entries, and should have one for each of " << n << " ranks";
    refuse(what, rank, why.text());
}

inline void refuse_overlap(call_name what, int rank, const byte_range& in, const byte_range& out) {
    if (in.overlaps(out)) refuse(what, rank, "input and output overlap: give it two buffers");
}

/// Makes messages: at most one of the two buffers in each direction is not there.
template <class Comm>
void make_message(
    Comm& comm, call_name what, const byte_range* out, int to, const byte_range* in, int from, cudaStream_t stream) {
    launch_or_tell(comm.context(), [&](local_ranks& ranks) {
        make_messages(ranks, what, stream, [&](std::vector<message>& sends, std::vector<message>& receives) {
            if (out != nullptr && in != nullptr) refuse_overlap(what, ranks.ranks().front().rank, *out, *in);
            if (out != nullptr) add_message(ranks, what, sends, true, out->at, out->bytes, to);
            if (in != nullptr) add_message(ranks, what, receives, false, in->at, in->bytes, from);
        });
    });
}

/// The size of an element of both buffers, which have one type.
template <class A, class B>
constexpr std::size_t size_of_both() {
    static_assert(std::is_same_v<std::remove_const_t<element<A>>, std::remove_const_t<element<B>>>,
        "colls: input and output differ in type");
    return sizeof(element<A>);
}

template <class Comm, class In, class Out, class Sent, class Received>
void make_all_to_all_v(
    Comm& comm, In& from_all, Out& to_all, const Sent& sent, const Received& received, cudaStream_t stream) {
    constexpr std::size_t size = size_of_both<In, Out>();
    const byte_range in = message_in<Comm, false>(from_all), out = message_in<Comm, true>(to_all);
    const call_name what = "all_to_all_v";
    launch_or_tell(comm.context(), [&](local_ranks& ranks) {
        make_messages(ranks, what, stream, [&](std::vector<message>& sends, std::vector<message>& receives) {
            const int n = ranks.size(), rank = ranks.ranks().front().rank;
            const auto from = blocks_of_counts(what, rank, n, in, size, sent, "sent"),
                       to = blocks_of_counts(what, rank, n, out, size, received, "received");
            refuse_overlap(what, rank, in, out);
            const auto me = static_cast<std::size_t>(rank);
            if (from[me].bytes != to[me].bytes) refuse(what, rank, "the block for itself has two sizes");
            for (int r = 0; r < n; ++r) {
                const auto b = static_cast<std::size_t>(r);
                add_message(ranks, what, sends, true, from[b].at, from[b].bytes, r);
                add_message(ranks, what, receives, false, to[b].at, to[b].bytes, r);
            }
        });
    });
}

/// gather_v, or scatter_v: the root has `whole`, the blocks of all ranks, and each rank `own`, its block.
template <bool gathers, class Comm, class Whole, class Own, class Counts>
void make_rooted_v(Comm& comm, Whole& all, Own& block, const Counts& counts, int root, cudaStream_t stream) {
    constexpr std::size_t size = size_of_both<Whole, Own>();
    const byte_range whole = message_in<Comm, gathers>(all), own = message_in<Comm, !gathers>(block);
    const call_name what = gathers ? "gather_v" : "scatter_v";
    launch_or_tell(comm.context(), [&](local_ranks& ranks) {
        make_messages(ranks, what, stream, [&](std::vector<message>& sends, std::vector<message>& receives) {
            const int n = ranks.size(), rank = ranks.ranks().front().rank;
            check_rank(what, rank, "root", root, n);
            std::vector<message>& of_block = gathers ? sends : receives;
            std::vector<message>& of_whole = gathers ? receives : sends;
            if (rank != root) return add_message(ranks, what, of_block, gathers, own.at, own.bytes, root);
            const auto blocks = blocks_of_counts(what, rank, n, whole, size, counts, gathers ? "received" : "sent");
            const byte_range& mine = blocks[static_cast<std::size_t>(rank)];
            if (mine.bytes != own.bytes) {
                error_text why;
                why << "the root's own block has " << own.bytes / size << " elements, and its count is "
                    << mine.bytes / size;
                refuse(what, rank, why.text());
            }
            const bool in_place = mine.at == own.at;
            if (!in_place) refuse_overlap(what, rank, own, whole);
            for (int r = 0; r < n; ++r)
                if (r != root || !in_place)
                    add_message(ranks, what, of_whole, !gathers, blocks[static_cast<std::size_t>(r)].at,
                        blocks[static_cast<std::size_t>(r)].bytes, r);
            if (!in_place) add_message(ranks, what, of_block, gathers, own.at, own.bytes, root);
        });
    });
}

}  // namespace colls::inline v1::cuda::detail
