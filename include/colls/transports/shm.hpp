// Ranks as processes of one host, over shared memory.
//
// Buffers from communicator::allocate lie in the memory that the ranks share: peers read and write them directly. Other
// buffers are copied through that memory.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/call/run.hpp>

namespace colls::inline v1::processes {

using colls::communicator;
using colls::memory;

/// Calls f(communicator&) in n processes, one for each rank, which are forked from this one, and waits for them. What f
/// changes, it changes in its own process. COLLS_TRANSPORT=tcp makes the ranks pass messages instead of sharing memory.
/// Call it from a process that has one thread.
///
/// Throws invalid_argument where n < 1 or the environment holds an invalid value, and unsupported where the system
/// gives no process or no shared memory. Where an exception leaves f on one rank, or its process dies, the calls of the
/// other ranks throw colls::error (peer_failed), and colls::error is thrown here when all have ended, with the code,
/// rank, peer, round and text of the first cause. Cost: n forks; shared memory that the ranks use.
template <class F>
void run(int n, F&& f) {
    detail::run(n, colls::detail::rank_task(f));
}

}  // namespace colls::inline v1::processes

#include <colls/world.hpp>
#ifndef COLLS_SEPARATE
#include <colls/net/detail/forming/processes.hpp>
#endif
