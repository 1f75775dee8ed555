// Ranks as threads of one process.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/call/run.hpp>

namespace colls::inline v1::threads {

using colls::communicator;
using colls::memory;

/// Calls f(communicator&) on n threads, one for each rank; rank 0 runs on the caller's thread. Returns when all have
/// ended. The communicator is valid until f returns.
///
/// Throws invalid_argument where n < 1 or the environment holds an invalid value. An exception that leaves f on one
/// rank makes the calls of the other ranks throw colls::error (peer_failed), and is thrown here when all have ended;
/// where several ranks throw, the first exception that no other rank caused. Cost: n - 1 threads.
template <class F>
void run(int n, F&& f) {
    detail::run(n, colls::detail::rank_task(f));
}

}  // namespace colls::inline v1::threads

#ifndef COLLS_SEPARATE
#include <colls/detail/run/threads.hpp>
#endif
