// More groups of the same ranks on one communicator of MPI, for clients/mpi.
// IWYU pragma: private, include <colls/transports/mpi.hpp>
#pragma once

#include <colls/communicator.hpp>

namespace colls::inline v1::mpi::detail {

/// Another group of the ranks of `first`, which communicator_of has made, over messages on the same communicator of
/// MPI. `number`, from 1 on, differs for each of them. Not collective: each rank calls it with the same number. Of no
/// group, on all ranks alike, where `first` does not pass messages, or MPI has too few tags.
communicator beside(communicator& first, int number);

}  // namespace colls::inline v1::mpi::detail
