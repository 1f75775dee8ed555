// Ranks as processes of one host, over shared memory.
//
// Buffers from communicator::allocate lie in the memory that they share (arena.hpp), and peers read and write them
// directly; others are copied through it.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/call/rank_task.hpp>

namespace colls::inline v1::processes {

using colls::communicator;
using colls::memory;

namespace detail {
using colls::detail::rank_task;
void run(int n, rank_task f);
}  // namespace detail

/// Calls f(communicator&) in n processes of this host, forked from this one, and waits for them. What f changes is
/// changed in its own process only. An exception that leaves f on one rank, or the death of its process, makes the
/// others' calls throw colls::error (peer_failed), and is thrown here as colls::error when all have ended; a rank's
/// process that dies does not take the others along. Call it from a process of one thread.
template <class F>
void run(int n, F&& f) {
    detail::run(n, detail::rank_task(f));
}

}  // namespace colls::inline v1::processes

#include <colls/world.hpp>
#ifndef COLLS_SEPARATE
#include <colls/detail/transport/shm/processes.hpp>
#endif
