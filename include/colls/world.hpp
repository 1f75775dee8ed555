// The group of all ranks that were launched together: by torchrun, mpirun, mpiexec, srun, or by hand.
#pragma once

#include <colls/communicator.hpp>
#include <colls/launch.hpp>

namespace colls::inline v1 {

/// The ranks that `l` describes, as a group: over shared memory where all are on one host, else over TCP, and through
/// shared memory between those of one host. Collective: every rank calls it, within COLLS_TIMEOUT of each other. Two
/// round trips to rank 0. Throws colls::error: see detail::meet.
communicator world(const launch& l);

/// The same, as the environment says: COLLS_RANK and COLLS_SIZE, torchrun's, Open MPI's, PMI's or Slurm's variables, in
/// this order; with none, a group of one.
communicator world();

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/run/world.hpp>
#endif
