// bootstrap(): a group of processes that can exchange bytes by some other means: a key/value store, another library's
// all_gather, a launcher's interface. It needs no launch, and no process but the members.
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/communicator.hpp>

#include <string_view>

namespace colls::inline v1 {

/// How the members of a group are to be connected.
struct bootstrap_options {
    /// Interface (eth0) or own address for TCP connections to other hosts. Empty: COLLS_INTERFACE says it; where that
    /// is not set either, the first interface with an address that is neither loopback nor link-local.
    std::string_view interface_name = {};
    /// Seconds for each wait while the group is formed. 0: COLLS_TIMEOUT, as in its calls.
    double timeout = 0;
    /// Shared memory that no other process maps, and that ends with the group: not that of an earlier group.
    bool own_memory = false;
};

/// Forms a group of `size` processes, of which this is rank `rank`. Nothing is needed of other processes, so it may be
/// a subset of whatever runs. The transport is that of world(): shared memory where all members are on one host; else
/// TCP between hosts, and shared memory within each (COLLS_TRANSPORT chooses otherwise). Processes of one host that
/// are together in a group already share its memory, so many groups of the same processes, or some of them, cost little
/// more than one.
///
/// Collective: every member calls it, with the same size. Costs four to seven calls of `exchange`, and on one host a
/// meeting at a socket of its own. Waits for the deadline (COLLS_TIMEOUT), plus what `exchange` waits.
///
/// Throws colls::error: invalid_argument where rank or size is out of range, or the environment is wrong; mismatch
/// where members have other transports or another version; timeout where a member does not come; peer_failed where one
/// has failed; and what `exchange` throws.
communicator bootstrap(int rank, int size, member_exchange& exchange, const bootstrap_options& how = {});

/// The same over a store. `name` is the group's: the keys begin with it ("NAME/3/1"), and no other group may ever use
/// it with this store. Each member sets a key for each of the exchanges, and gets those of all members. The keys stay.
communicator bootstrap(
    int rank, int size, key_value_store& store, std::string_view name, const bootstrap_options& how = {});

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/net/detail/forming/bootstrap.hpp>
#endif
