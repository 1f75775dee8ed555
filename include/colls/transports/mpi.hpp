// Ranks as the processes of an MPI program, over its point-to-point messages: CMake links colls::mpi.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/transport/mpi/mpi_header.hpp>

namespace colls::inline v1::mpi {

/// A group of the ranks of `users`, an intracommunicator, over a duplicate of it. Collective over `users`. Messages of
/// the library and of the program never meet. `users` stays the program's, which may free it before the group.
///
/// Call it after MPI_Init, or MPI_Init_thread of any level. All calls on the group come from the one thread that may
/// call MPI; a progress_thread needs MPI_THREAD_MULTIPLE. Destroy the communicator, and those split from it, on all
/// ranks before MPI_Finalize: a destructor waits for those of the other ranks, for a second at most. Where one comes
/// later, the duplicate stays allocated until MPI_Finalize. A wait in one of a process's groups over MPI advances all
/// of them.
///
/// Throws colls::error: invalid_argument where MPI is not initialised or `users` is no intracommunicator; peer_failed,
/// with the text of MPI, where `users` returns errors (MPI_ERRORS_RETURN). Later errors of MPI are reported the same
/// way, unless MPI ends the program: MPICH asks the handler of MPI_COMM_WORLD first, and launchers end all ranks when
/// one dies. shrink throws unsupported. Cost: MPI_Comm_dup, one split, one broadcast.
communicator communicator_of(MPI_Comm users);

}  // namespace colls::inline v1::mpi

#ifndef COLLS_SEPARATE
#include <colls/detail/transport/mpi/group.hpp>
#endif
