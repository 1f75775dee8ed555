// Ranks as threads of one process.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/call/rank_task.hpp>

namespace colls::inline v1::threads {

using colls::communicator;
using colls::memory;

namespace detail {
using colls::detail::rank_task;
void run(int n, rank_task f);
}  // namespace detail

/// Calls f(communicator&) on n threads, one a rank, rank 0 on the caller's own. An exception that leaves f on one rank
/// makes the others' calls throw colls::error (peer_failed), and comes out here when all have ended.
template <class F>
void run(int n, F&& f) {
    detail::run(n, detail::rank_task(f));
}

}  // namespace colls::inline v1::threads

#ifndef COLLS_SEPARATE
#include <colls/detail/transport/threads/group.hpp>
#endif
