// colls::pmix::world(): the group of the processes that a launcher with PMIx started.
#pragma once

#include <colls/bootstrap.hpp>

namespace colls::inline v1::pmix {

/// The group of all processes of this one's PMIx job (its namespace): those that prun, srun --mpi=pmix, or Open MPI's
/// mpirun started, whatever other variables these set. A rank is that of PMIx. Transport and memory are those of
/// bootstrap(), whose exchanges go through PMIx here; no port is agreed on, and no rank has a part of its own.
///
/// A program that includes this links colls::pmix (libpmix). The first call connects the process to its launcher, until
/// the program ends: launchers report one that ends otherwise, or end the job.
///
/// Collective: every process of the job calls it, as often. Costs four to seven fences of PMIx. Throws colls::error:
/// unsupported where no launcher with PMIx started this process; timeout, with the ranks that have not come, as far as
/// PMIx knows; peer_failed where PMIx reports an error; and what bootstrap() throws.
communicator world(const bootstrap_options& how = {});

}  // namespace colls::inline v1::pmix

#include <colls/pmix/detail/job.hpp>
