// Collective calls on GPUs: a kernel for each type and operator. For units that nvcc compiles; CMake: link colls::cuda.
//
//     colls::cuda::all_reduce<colls::ring>(comm, gradients, colls::sum, stream);
//
// What is common to all calls:
//
// comm      cuda::communicator or cuda::virtual_ranks. All ranks make the same calls in the same order.
// buffers   `in`, `out`, `inout`: a contiguous range of device or managed memory (cuda::std::span, std::span, ... with
//           data() and size()) of any type that is trivially copyable and default constructible; for virtual_ranks a
//           range of such buffers, one for each rank. n is the number of ranks, rank r's block of a buffer of `size`
//           elements is its r-th part: blocks are balanced, the first size % n of them are longer by one.
//           In place means that `in` and `out` are the same buffer or, where one of them has a block only, that this is
//           the rank's own block of the other. Buffers that overlap otherwise are refused.
// S         the schedule, or family of schedules, by type. Without one `automatic`: that of least predicted time for
//           the group's hosts, the links within and between them, and the size (docs/automatic_on_gpus.md); explain
//           (cuda/explain.hpp) says which and why, COLLS_SCHEDULE and COLLS_TUNE force it. Ranks on one device, and
//           operators that do not commute, take `direct`. hierarchical and host_hierarchy without hosts of their own
//           take the group's. A schedule that is given is proven at the group's size before its first launch. Small
//           messages (options.small_bytes) take the eager path, whatever S is: one hop, in which each rank writes to
//           every other rank what that one needs, or two. options.protocol forces a protocol; options.multicast lets
//           the switch fold an all_reduce, in any order, in place of S.
// op        as for the host's calls. Small floats (half, bfloat16 and fp8, of CUDA and of colls) are folded in float,
//           and rounded to the nearest once a fold: once for a result by `direct`, by `ring` once on each rank that a
//           sum passes. fp8 saturates there: beyond its largest number is its largest number. An operator that does not
//           commute needs `direct` or `one_shot`, which fold in rank order.
// stream    cudaStream_t, or an object with get(). The call returns when its kernel is launched; the kernel is ordered
//           like any other on the stream. The stream may be capturing: graphs replay. The first call of a kind copies
//           tables to the device and loads its kernel; make it once before kernels of the group may be waiting for each
//           other (for the ranks of one process: before any of them is running).
// epilogue  is applied to each element of a rank's result as it is written: see epilogue.hpp.
//
// Errors: a call throws colls::error before anything is launched: invalid_argument (sizes, root, overlap, memory that
// the device does not reach, stream of another device), unsupported (too many ranks, ports or blocks, too little
// scratch memory), wrong_schedule. What goes wrong in the kernel is thrown by the next call on this rank, or by
// comm.check(): timeout (a peer did not come within options.timeout; the error says which, and in which round),
// mismatch (a peer made another call), peer_failed (a peer has aborted, died, run out of memory in its part of the
// call, or refused it and not made it within a second; the error says which, and quotes why; a rank that has captured
// calls, or makes them within kernels, does not tell of refusals). Too little memory for a call throws std::bad_alloc
// or peer_failed, and breaks the group.
//
// Costs are those of the eager path, 1 round, or of the schedule (colls::cost_of); given below are rounds and the bytes
// that the busiest rank reads from others, by `direct`, for S bytes in the whole buffer. A kernel reads
// the steps of its schedule from a table, which options.table_bytes must have room for.
#pragma once

#include <colls/cuda/detail/launch/message_calls.hpp>
#include <colls/cuda/epilogue.hpp>

namespace colls::inline v1::cuda {

/// out[i] = op over all ranks' in[i], on every rank. `in`, `out`: of one size, equal on all ranks. May be in place.
/// direct: 2 rounds, 2 (n - 1) / n S bytes.
template <class S = automatic, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
    requires(detail::buffers_like<Out>)
void all_reduce(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::all_reduce, S>(comm, in, out, op, 0, epilogue, stream);
}
/// all_reduce in place.
template <class S = automatic, class Comm, class X, class Op, class Stream, class Epilogue = no_epilogue>
    requires(!detail::buffers_like<const Op>)
void all_reduce(Comm& comm, X&& inout, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::all_reduce, S>(comm, inout, inout, op, 0, epilogue, stream);
}

/// Rank r's `out` = block r of (op over all ranks' `in`). `in`: of one size on all ranks; `out`: of the size of the
/// rank's block. May be in place: `out` is the rank's block of `in`. direct: 1 round, (n - 1) / n S bytes.
template <class S = automatic, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void reduce_scatter(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::reduce_scatter, S>(comm, in, out, op, 0, epilogue, stream);
}
/// reduce_scatter with blocks of any sizes. `counts`: a range of n integers, the elements of each rank's block, the
/// same on all ranks; they add up to the size of `in`.
template <class S = automatic, class Comm, class In, class Out, class Counts, class Op, class Stream,
    class Epilogue = no_epilogue>
void reduce_scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const Op& op, const Stream& stream,
    const Epilogue& epilogue = {}) {
    detail::make_call<collective::reduce_scatter, S>(comm, in, out, op, 0, epilogue, stream, counts);
}

/// At the root out[i] = op over all ranks' in[i]. `in`: of one size on all ranks; `out`: of that size at the root, not
/// used elsewhere (it may be empty). May be in place at the root. direct: 2 rounds, 2 (n - 1) / n S bytes at the root.
template <class S = automatic, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void reduce(
    Comm& comm, In&& in, Out&& out, const Op& op, int root, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::reduce, S>(comm, in, out, op, root, epilogue, stream);
}

/// Every rank's `out` = the `in` of rank 0, of rank 1, ... one after the other. `out`: of one size on all ranks; `in`:
/// of the size of the rank's block of it. May be in place: `in` is the rank's block of `out`.
/// direct: 1 round, (n - 1) / n S bytes.
template <class S = automatic, class Comm, class In, class Out, class Stream, class Epilogue = no_epilogue>
void all_gather(Comm& comm, In&& in, Out&& out, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::all_gather, S>(comm, in, out, detail::no_operator{}, 0, epilogue, stream);
}
/// all_gather with blocks of any sizes. `counts`: a range of n integers, the elements of each rank's block, the same on
/// all ranks; they add up to the size of `out`.
template <class S = automatic, class Comm, class In, class Out, class Counts, class Stream,
    class Epilogue = no_epilogue>
void all_gather_v(
    Comm& comm, In&& in, Out&& out, const Counts& counts, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::all_gather, S>(comm, in, out, detail::no_operator{}, 0, epilogue, stream, counts);
}

/// Every rank's `inout` = that of the root. Of one size on all ranks. direct: 1 round, S bytes on each rank.
template <class S = automatic, class Comm, class X, class Stream>
void broadcast(Comm& comm, X&& inout, int root, const Stream& stream) {
    detail::make_call<collective::broadcast, S>(comm, inout, inout, detail::no_operator{}, root, no_epilogue{}, stream);
}

/// The root's `out` = the `in` of rank 0, of rank 1, ... one after the other. `in`: of one size on all ranks; `out`: n
/// times that at the root, not used elsewhere (it may be empty). May be in place at the root: `in` is its block of
/// `out`. direct: 1 round, (n - 1) / n S bytes at the root.
template <class S = automatic, class Comm, class In, class Out, class Stream>
void gather(Comm& comm, In&& in, Out&& out, int root, const Stream& stream) {
    detail::make_call<collective::gather, S>(comm, in, out, detail::no_operator{}, root, no_epilogue{}, stream);
}

/// Rank r's `out` = block r of the root's `in`. `out`: of one size on all ranks; `in`: n times that at the root, not
/// used elsewhere (it may be empty). May be in place at the root: `out` is its block of `in`.
/// direct: 1 round, S / n bytes on each rank.
template <class S = automatic, class Comm, class In, class Out, class Stream>
void scatter(Comm& comm, In&& in, Out&& out, int root, const Stream& stream) {
    detail::make_call<collective::scatter, S>(comm, in, out, detail::no_operator{}, root, no_epilogue{}, stream);
}

/// Block s of rank r's `in` becomes block r of rank s's `out`. Both of one size on all ranks, a multiple of n. Not in
/// place. direct: 1 round, (n - 1) / n S bytes.
template <class S = automatic, class Comm, class In, class Out, class Stream, class Epilogue = no_epilogue>
void all_to_all(Comm& comm, In&& in, Out&& out, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::all_to_all, S>(comm, in, out, detail::no_operator{}, 0, epilogue, stream);
}

/// Work that follows on a rank's stream begins when the streams of all ranks have reached the barrier. Eager path.
template <class S = automatic, class Comm, class Stream>
void barrier(Comm& comm, const Stream& stream) {
    detail::make_barrier<S>(comm, stream);
}

/// Rank r's out[i] = op over in[i] of ranks 0 ... r. `in`, `out`: of one size, equal on all ranks. May be in place.
/// direct: 1 round, up to (n - 1) S bytes.
template <class S = automatic, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void inclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::inclusive_scan, S>(comm, in, out, op, 0, epilogue, stream);
}
/// Rank r's out[i] = op over in[i] of ranks 0 ... r - 1; rank 0's `out` is left as it is. `in`, `out`: of one size,
/// equal on all ranks. May be in place. direct: 2 rounds, up to (n - 1) S bytes.
template <class S = automatic, class Comm, class In, class Out, class Op, class Stream, class Epilogue = no_epilogue>
void exclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const Stream& stream, const Epilogue& epilogue = {}) {
    detail::make_call<collective::exclusive_scan, S>(comm, in, out, op, 0, epilogue, stream);
}

// Messages between two ranks, and the calls that consist of them: by a cuda::communicator. The receiver reads what the
// sender has, so that a kernel that sends ends when its receiver has come. Kernels of calls on one stream follow each
// other: ranks that send to each other do so in one exchange, or in one group of calls (group_of_calls.hpp). Not eager,
// whatever the size. One round; bytes are those of the messages.

/// Sends a message, which a recv or exchange of rank `to` receives. `data`: of any length. Messages from one rank to
/// another arrive in the order in which they were sent.
template <class Comm, class Data, class Stream>
void send(Comm& comm, Data&& data, int to, const Stream& stream) {
    const detail::byte_range out = detail::message_in<Comm, false>(data);
    detail::make_message(comm, "send", &out, to, nullptr, none, detail::stream_of(stream));
}
/// Receives the next message from rank `from`. `data`: as long as the message; another length is a mismatch.
template <class Comm, class Data, class Stream>
void recv(Comm& comm, Data&& data, int from, const Stream& stream) {
    const detail::byte_range in = detail::message_in<Comm, true>(data);
    detail::make_message(comm, "recv", nullptr, none, &in, from, detail::stream_of(stream));
}
/// Sends one message and receives another at the same time. `out` and `in`: of any lengths, must not overlap. Both
/// ranks may be this one, and both may be the same.
template <class Comm, class Out, class In, class Stream>
void exchange(Comm& comm, Out&& out, int to, In&& in, int from, const Stream& stream) {
    const detail::byte_range sent = detail::message_in<Comm, false>(out), received = detail::message_in<Comm, true>(in);
    detail::make_message(comm, "exchange", &sent, to, &received, from, detail::stream_of(stream));
}

/// Sends block b of rank r's `in` to rank b, which stores it as block r of its `out`. `sent`, `received`: ranges of n
/// integers: the elements of the block for each rank, and of that from each rank, which must be what that one sends.
/// They add up to the sizes of the buffers. Not in place.
template <class Comm, class In, class Out, class Sent, class Received, class Stream>
void all_to_all_v(Comm& comm, In&& in, Out&& out, const Sent& sent, const Received& received, const Stream& stream) {
    detail::make_all_to_all_v(comm, in, out, sent, received, detail::stream_of(stream));
}

/// Collects rank r's `in` as block r of the root's `out`. `counts`: at the root a range of n integers, the elements of
/// each block, which add up to the size of `out`; not used elsewhere, as is `out`. In place at the root: `in` is its
/// own block of `out`.
template <class Comm, class In, class Out, class Counts, class Stream>
void gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const Stream& stream) {
    detail::make_rooted_v<true>(comm, out, in, counts, root, detail::stream_of(stream));
}

/// Hands block r of the root's `in` to rank r's `out`. `counts`: at the root a range of n integers, the elements of
/// each block, which add up to the size of `in`; not used elsewhere, as is `in`. In place at the root: `out` is its own
/// block of `in`.
template <class Comm, class In, class Out, class Counts, class Stream>
void scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const Stream& stream) {
    detail::make_rooted_v<false>(comm, in, out, counts, root, detail::stream_of(stream));
}

}  // namespace colls::inline v1::cuda
