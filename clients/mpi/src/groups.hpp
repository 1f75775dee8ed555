// A colls communicator for each communicator of the program, kept in an attribute of it.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/transport/mpi/mpi_header.hpp>

#include <atomic>
#include <memory>

namespace colls_mpi {

/// What is kept with a communicator.
struct group {
    colls::communicator comm;  ///< of no group where the communicator's calls go to MPI
    int rank = 0, size = 0;
    bool several = false;  ///< several processes are in the communicator
    /// Non-blocking calls that are not over. They keep the group where the program frees the communicator.
    std::atomic<int> outstanding = 0;
    bool held_up = false;  ///< the next of them cannot begin yet; under the lock of outstanding.cpp

    bool runs_on_colls() const { return comm.size() > 0; }
};
using shared_group = std::shared_ptr<group>;

/// The group of a communicator; null where COLLS_MPI is off, MPI is about to end, or there is no such communicator. The
/// first call on a communicator makes it, and is collective over it. It is of no colls group, on all its ranks alike,
/// for intercommunicators, those of one rank, and those with processes that MPI_Comm_spawn or MPI_Comm_join has added.
/// Throws colls::error.
const shared_group* group_of(MPI_Comm comm);
/// Likewise; null where no call of group_of has made one, which is the same on all ranks, too.
const shared_group* existing_group_of(MPI_Comm comm);

/// Ends all groups. Later calls go to MPI, as those of attribute callbacks in MPI_Finalize.
void end_groups();

}  // namespace colls_mpi
