// What the units of a program with several kinds of ranks share.
#pragma once

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/tcp.hpp>
#include <colls/world.hpp>

/// The sum of every rank's `mine`, by a group that was split off in the reverse order.
int reversed_sum(colls::communicator& comm, int mine);
