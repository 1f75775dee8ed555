// world(): the group of all ranks that were launched together, by torchrun, mpirun, mpiexec, srun, or by hand.
#pragma once

#include <colls/bootstrap/launch.hpp>
#include <colls/communicator.hpp>

namespace colls::inline v1 {

/// The group of the ranks that `l` describes. Its transport is shared memory where all ranks are on one host; else TCP
/// between hosts, and shared memory within each (COLLS_TRANSPORT chooses otherwise).
///
/// Collective: every rank calls it, within COLLS_TIMEOUT seconds of each other. One round trip to rank 0, and five
/// exchanges of at most 64 bytes for each rank. Throws colls::error: invalid_argument where this rank's launch or
/// environment is wrong; mismatch where the ranks' launches do not fit together; timeout where a rank does not come;
/// peer_failed where one has failed.
communicator world(const launch& l);

/// The same for the launch that the environment describes, by COLLS_RANK and COLLS_SIZE, or else by the variables of
/// torchrun, Open MPI, PMI or Slurm, in this order; without any of these, a group of one.
communicator world();

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/net/detail/forming/rendezvous.hpp>
#endif
