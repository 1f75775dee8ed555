// Groups of processes that are perhaps all on one host.
// IWYU pragma: private, include <colls/bootstrap.hpp>
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/communicator.hpp>

namespace colls::inline v1::detail {

/// The group over shared memory where all members are on one host; of no group, on all ranks alike, where they are not,
/// or one of them cannot have the memory, or `wanted` is false, or COLLS_TRANSPORT is tcp. Errors as of bootstrap.
communicator group_of_one_host(int rank, int size, member_exchange& exchange, bool wanted);

}  // namespace colls::inline v1::detail

#ifndef COLLS_SEPARATE
#include <colls/net/detail/forming/bootstrap.hpp>
#endif
