// The calls: collectives, and messages between two ranks.
//
// Each collective comes in three forms, which take the same arguments:
//   colls::all_reduce(comm, x, colls::sum)             returns when it is over on this rank
//   colls::start::all_reduce(comm, x, colls::sum)      starts it and returns a colls::operation, to be waited for
//   colls::prepare::all_reduce(comm, x, colls::sum)    returns a colls::plan, to be run or started many times
// All ranks of a group make the same collective calls in the same order; the library checks that they do.
//
// Terms. n is comm.size(); ranks are 0 to n - 1.
//   Buffer       A contiguous range of trivially copyable elements: std::span, std::vector, std::array, an array,
//                colls::memory, ... Input and output have one element type. Lengths are in elements and may be zero.
//   Block        Where a buffer has a block for each rank, the blocks lie one after the other in rank order. They are
//                balanced: of m elements, the first m % n blocks have m / n + 1, the others m / n (block_of,
//                blocks.hpp). The v-variants take the length of every block instead.
//   In place     The same buffer as input and output. Where one of the two is a single block: the rank's own block
//                within the other. Buffers that overlap otherwise are rejected.
//   Operator     A const-callable T(T, T) that is associative: colls::sum, std::plus, a lambda, ... (operators.hpp).
//                Unless it is known to commute, the ranks' contributions are folded in rank order.
//   Schedule     How the data moves. The first template argument, a family or any schedule of the collective:
//                all_reduce<colls::ring>(comm, x, op); or a value after the other arguments: all_reduce(comm, x, op,
//                s). Without one the library chooses: see automatic.hpp and explain.hpp.
//   Constraint   colls::reproducible, in place of a schedule or after the other arguments: the bits of a result depend
//                on the contributions alone (automatic.hpp).
//
// Costs are those of the best schedules of the library, as rounds, in which each rank sends to one other at a time
// unless said otherwise, and as bytes sent by the busiest rank; L is log2(n), rounded up, and S the bytes of the larger
// buffer. A call whose data is a few KB at most goes by the eager path where ranks share memory: one round, in which
// every rank reads what the others have posted.
//
// Every call throws colls::error; code() says what is wrong:
//   invalid_argument   this rank's arguments are wrong: a root or peer out of range, a buffer or list of counts of the
//                      wrong length, a null or overlapping buffer, a communicator of no group. Nothing has moved, and
//                      the rank may make the call again with other arguments.
//   unsupported        the given schedule does not work for n ranks, does not keep the order that the operator needs,
//                      or is not reproducible where the call says colls::reproducible
//   wrong_schedule     the given schedule is not a proven one, and its proof fails for n ranks
//   mismatch           the ranks have made different calls, or given lengths, types or roots that do not fit together
//   timeout            another rank did not take part within COLLS_TIMEOUT seconds
//   peer_failed        another rank has died, left the group, or thrown one of the errors above
// After mismatch, timeout and peer_failed the group is broken on every rank, and communicator::shrink makes a new one.
// After an error the contents of the outputs are unspecified. Errors that need no run, such as a const output or a
// schedule of another collective, are compile errors in words.
#pragma once

#include <colls/automatic.hpp>
#include <colls/communicator.hpp>
#include <colls/detail/call/calls.hpp>
#include <colls/operation.hpp>

namespace colls::inline v1 {

// Collectives that move data

/// Copies the root's buffer to every rank.
///
/// @param inout  on the root the data, which stays as it is; on every other rank a buffer of the same length, which it
///               fills
/// @param root   the rank that has the data, the same on every rank
///
/// Cost: L rounds and S L bytes (tree), or L + k - 1 rounds and S (1 + (L - 1) / k) bytes in k pieces
/// (pipelined_broadcast).
template <class Schedule = automatic, class Comm, class InOut = detail::braces, class... V>
void broadcast(Comm& comm, InOut&& inout, int root, const V&... schedule) {
    blocking::broadcast<Schedule>(comm, inout, root, schedule...);
}

/// Hands block r of the root's input to rank r.
///
/// @param in    on the root the blocks of all ranks, of any length in total; elsewhere it is not read, and may be empty
/// @param out   on rank r as long as block r, which it receives
/// @param root  the rank that has the input, the same on every rank
///
/// In place: on the root, out is its own block of in. Elsewhere in is ignored.
/// Cost: L rounds and S (n - 1) / n bytes (tree), or one round of n - 1 messages from the root (direct).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void scatter(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
    blocking::scatter<Schedule>(comm, in, out, root, schedule...);
}

/// Collects the input of rank r as block r of the root's output: the reverse of scatter.
///
/// @param in    on rank r as long as block r of the output
/// @param out   on the root the blocks of all ranks, which it receives; elsewhere it is not written, and may be empty
/// @param root  the rank that has the output, the same on every rank
///
/// In place: on the root, in is its own block of out. Elsewhere out is ignored.
/// Cost: L rounds and S (n - 1) / n bytes received by the root (tree), or one round of n - 1 messages to it (direct).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void gather(Comm& comm, In&& in, Out&& out, int root, const V&... schedule) {
    blocking::gather<Schedule>(comm, in, out, root, schedule...);
}

/// Collects the input of rank r as block r of every rank's output.
///
/// @param in   on rank r as long as block r of the output
/// @param out  the blocks of all ranks, of the same length on every rank
///
/// In place: in is the rank's own block of out.
/// Cost: L rounds and S (n - 1) / n bytes (circulant), both the least possible.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void all_gather(Comm& comm, In&& in, Out&& out, const V&... schedule) {
    blocking::all_gather<Schedule>(comm, in, out, schedule...);
}

/// Sends block b of rank r's input to rank b, which stores it as block r of its output: a transposition of blocks.
///
/// @param in   the blocks for all ranks, of the same length on every rank; a multiple of n (else take all_to_all_v)
/// @param out  the blocks from all ranks, as long as in
///
/// In place: out is the same buffer as in.
/// Cost: one round of n - 1 messages and S (n - 1) / n bytes a rank (direct), or L rounds and about S L / 2 bytes
/// (bruck).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class... V>
void all_to_all(Comm& comm, In&& in, Out&& out, const V&... schedule) {
    blocking::all_to_all<Schedule>(comm, in, out, schedule...);
}

// Collectives that reduce

/// Reduces the inputs of all ranks to the root's output: element i becomes in_0[i] op in_1[i] op ... op in_(n-1)[i].
///
/// @param in    of the same length on every rank
/// @param out   on the root as long as in; elsewhere it is not written, and may be empty
/// @param op    the operator, the same on every rank
/// @param root  the rank that has the output, the same on every rank
///
/// In place: on the root, out is the same buffer as in.
/// Cost: L rounds and S L bytes received by the root (tree), or L + k - 1 rounds and S (1 + (L - 1) / k) bytes in k
/// pieces (pipelined_broadcast).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void reduce(Comm& comm, In&& in, Out&& out, const Op& op, int root, const V&... schedule) {
    blocking::reduce<Schedule>(comm, in, out, op, root, schedule...);
}

/// Reduces the inputs of all ranks, and hands block r of the result to rank r.
///
/// @param in   the blocks for all ranks, of the same length on every rank
/// @param out  on rank r as long as block r of in
/// @param op   the operator, the same on every rank
///
/// In place: out is the rank's own block of in.
/// Cost: L rounds and S (n - 1) / n bytes (circulant), both the least possible.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void reduce_scatter(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    blocking::reduce_scatter<Schedule>(comm, in, out, op, schedule...);
}

/// Reduces the inputs of all ranks to every rank's output: element i becomes in_0[i] op in_1[i] op ... op in_(n-1)[i].
///
/// @param in   of the same length on every rank
/// @param out  as long as in
/// @param op   the operator, the same on every rank
///
/// In place: out is the same buffer as in, or the overload with one buffer.
/// Cost: 2 L rounds and 2 S (n - 1) / n bytes, the least possible (circulant); or L rounds and S L bytes
/// (recursive_doubling).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
    requires(detail::buffer_like<Out>)
void all_reduce(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    blocking::all_reduce<Schedule>(comm, in, out, op, schedule...);
}

/// The same in place.
///
/// @param inout  the rank's input, of the same length on every rank; becomes the result
/// @param op     the operator, the same on every rank
template <class Schedule = automatic, class Comm, class InOut = detail::braces, class Op, class... V>
    requires(!detail::buffer_like<const Op>)
void all_reduce(Comm& comm, InOut&& inout, const Op& op, const V&... schedule) {
    blocking::all_reduce<Schedule>(comm, inout, op, schedule...);
}

/// Reduces the inputs of ranks 0 to r to the output of rank r: element i becomes in_0[i] op ... op in_r[i].
///
/// @param in   of the same length on every rank
/// @param out  as long as in
/// @param op   the operator, the same on every rank; not one with a last step, such as avg
///
/// In place: out is the same buffer as in.
/// Cost: L rounds and S L bytes (recursive_doubling).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void inclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    blocking::inclusive_scan<Schedule>(comm, in, out, op, schedule...);
}

/// Reduces the inputs of ranks 0 to r - 1 to the output of rank r. Rank 0's output stays as it is.
///
/// @param in   of the same length on every rank
/// @param out  as long as in
/// @param op   the operator, the same on every rank; not one with a last step, such as avg
///
/// In place: out is the same buffer as in; rank 0's then still holds its input.
/// Cost: L + 1 rounds and S (L + 1) bytes (recursive_doubling).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Op,
    class... V>
void exclusive_scan(Comm& comm, In&& in, Out&& out, const Op& op, const V&... schedule) {
    blocking::exclusive_scan<Schedule>(comm, in, out, op, schedule...);
}

// Synchronisation

/// Returns when every rank has called it.
///
/// Cost: L rounds of empty messages.
template <class Schedule = automatic, class Comm, class... V>
void barrier(Comm& comm, const V&... schedule) {
    blocking::barrier<Schedule>(comm, schedule...);
}

// Collectives with a count for each block. Counts are a contiguous range of n integers, none of them negative.

/// Hands block r of the root's input, of counts[r] elements, to rank r.
///
/// @param in      on the root the blocks of all ranks; elsewhere it is not read, and may be empty
/// @param out     on rank r of counts[r] elements
/// @param counts  on the root the length of each block; elsewhere it may be empty, or is checked against out
/// @param root    the rank that has the input, the same on every rank
///
/// In place: on the root, out is its own block of in.
/// Cost: one round of n - 1 messages from the root. By direct alone: no other rank knows the counts.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class... V>
void scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
    blocking::scatter_v<Schedule>(comm, in, out, counts, root, schedule...);
}

/// Collects the input of rank r, of counts[r] elements, as block r of the root's output: the reverse of scatter_v.
///
/// @param in      on rank r of counts[r] elements
/// @param out     on the root the blocks of all ranks; elsewhere it is not written, and may be empty
/// @param counts  on the root the length of each block; elsewhere it may be empty, or is checked against in
/// @param root    the rank that has the output, the same on every rank
///
/// In place: on the root, in is its own block of out.
/// Cost: one round of n - 1 messages to the root. By direct alone: no other rank knows the counts.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class... V>
void gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, int root, const V&... schedule) {
    blocking::gather_v<Schedule>(comm, in, out, counts, root, schedule...);
}

/// Collects the input of rank r, of counts[r] elements, as block r of every rank's output.
///
/// @param in      on rank r of counts[r] elements
/// @param out     the blocks of all ranks
/// @param counts  the length of each block, the same on every rank
///
/// In place: in is the rank's own block of out.
/// Cost: L rounds, and all blocks but one received by each rank (circulant).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class... V>
void all_gather_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const V&... schedule) {
    blocking::all_gather_v<Schedule>(comm, in, out, counts, schedule...);
}

/// Reduces the inputs of all ranks, and hands block r of the result, of counts[r] elements, to rank r.
///
/// @param in      the blocks for all ranks
/// @param out     on rank r of counts[r] elements
/// @param counts  the length of each block, the same on every rank
/// @param op      the operator, the same on every rank
///
/// In place: out is the rank's own block of in.
/// Cost: L rounds, and all blocks but one sent by each rank (circulant).
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Counts,
    class Op, class... V>
void reduce_scatter_v(Comm& comm, In&& in, Out&& out, const Counts& counts, const Op& op, const V&... schedule) {
    blocking::reduce_scatter_v<Schedule>(comm, in, out, counts, op, schedule...);
}

/// Sends block b of rank r's input to rank b, which stores it as block r of its output.
///
/// @param in        the blocks for all ranks, one after the other
/// @param out       the blocks from all ranks, one after the other
/// @param sent      sent[b]: the length of the block for rank b
/// @param received  received[a]: the length of the block from rank a, which must be what rank a sends to this one
///
/// In place: out is the same buffer as in; then sent and received must be equal.
/// Cost: one round of n - 1 messages. By direct alone: no other rank knows the counts.
template <class Schedule = automatic, class Comm, class In = detail::braces, class Out = detail::braces, class Sent,
    class Received, class... V>
void all_to_all_v(Comm& comm, In&& in, Out&& out, const Sent& sent, const Received& received, const V&... schedule) {
    blocking::all_to_all_v<Schedule>(comm, in, out, sent, received, schedule...);
}

// Messages between two ranks

/// Sends a message, which a recv, recv_any or exchange of the peer receives. Messages from one rank to another arrive
/// in the order in which they were sent.
///
/// @param data  the message, of any length
/// @param peer  the rank that receives it; this rank itself only where it has started the receive (start::recv)
///
/// Returns when the receiver has copied the data. Cost: one message.
template <class Comm, class Data = detail::braces>
void send(Comm& comm, Data&& data, int peer) {
    blocking::send(comm, data, peer);
}
/// Receives the next message from a rank.
///
/// @param data  as long as the message, which it holds afterwards; another length is an error (mismatch) on both ranks
/// @param peer  the rank that sends it; this rank itself only where it has started the send (start::send)
template <class Comm, class Data = detail::braces>
void recv(Comm& comm, Data&& data, int peer) {
    blocking::recv(comm, data, peer);
}
/// Receives the next message from any rank, each in turn where several send. Messages from a rank that a started recv
/// of this rank waits for are left to that recv.
///
/// @param data  as long as the message, which it holds afterwards; another length is an error (mismatch) on both ranks
/// @return      the rank that has sent it
template <class Comm, class Data = detail::braces>
int recv_any(Comm& comm, Data&& data) {
    return comm.handle().by->perform_recv_any(comm.context(), detail::received_message<false, Data>(data));
}
/// The rank whose message recv_any would receive now, each in turn where several send, or `none`. It does not wait, and
/// advances the started operations of the thread, as a test does. For a program that waits for messages of any rank and
/// for something else. Throws colls::error as a wait would, where the group is broken.
template <class Comm>
int probe_any(Comm& comm) {
    return comm.handle().by->probe_any(comm.context());
}
/// Sends one message and receives another at the same time, so that it may be called by all ranks of a ring at once.
///
/// @param out   the message to send, of any length
/// @param to    the rank that receives it
/// @param in    as long as the message from the other rank, which it holds afterwards; must not overlap out
/// @param from  the rank that sends it. Both ranks may be this one, and both may be the same.
template <class Comm, class Out = detail::braces, class In = detail::braces>
void exchange(Comm& comm, Out&& out, int to, In&& in, int from) {
    comm.handle().by->perform_exchange(
        comm.context(), detail::sent_message<false, Out>(out), to, detail::received_message<false, In>(in), from);
}

/// The calls without waiting: each checks its arguments as the blocking call of its name does, starts it, and returns
/// an operation, which test() and wait() bring to its end:
///
///     auto done = colls::start::all_reduce(comm, gradients, colls::sum);
///     compute();
///     done.wait();
///
/// The buffers must outlive the operation (a temporary is a compile error); operator and counts are copied. Outputs
/// hold their result, and inputs may be written again, when the operation is over. Operations of a group may be waited
/// for in any order; a progress_thread advances them meanwhile.
using start = calls<detail::start_mode>;

/// The calls as persistent ones: each checks its arguments as the blocking call of its name does, chooses the schedule,
/// and returns a plan, which moves nothing until it is run or started:
///
///     auto plan = colls::prepare::all_reduce(comm, gradients, colls::sum);
///     for (...) plan.run();
///
/// The buffers must outlive the plan (a temporary is a compile error); operator and counts are copied. Making a plan
/// does not communicate.
using prepare = calls<detail::prepare_mode>;

}  // namespace colls::inline v1
