// A colls communicator for each communicator of the program, kept in an attribute of it.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/transport/mpi/mpi_header.hpp>

namespace colls_mpi {

/// What is kept with a communicator.
struct group {
    colls::communicator comm;  ///< of no group where the communicator's calls go to MPI
    int rank = 0, size = 0;
};

/// The group of a communicator; null where its calls go to MPI, on all its ranks alike: intercommunicators, those of
/// one rank, those with processes that MPI_Comm_spawn or MPI_Comm_join has added, and all where COLLS_MPI is off or MPI
/// is about to end. The first call on a communicator makes the group, and is collective over it. Throws colls::error.
group* group_of(MPI_Comm comm);

/// Ends all groups. Later calls go to MPI, as those of attribute callbacks in MPI_Finalize.
void end_groups();

}  // namespace colls_mpi
