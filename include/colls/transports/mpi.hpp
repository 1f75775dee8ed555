// Ranks as the processes of an MPI program, over its point-to-point messages: CMake links colls::mpi.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/transport/mpi/mpi_header.hpp>

namespace colls::inline v1::mpi {

/// Collective over `users`, an intracommunicator: a group of the same ranks, over a duplicate of it. The library's
/// messages and the user's never meet; `users` stays the user's, and may be freed before the group. After MPI_Init, or
/// MPI_Init_thread of any level: all calls come from one thread, the one that may call MPI (with a progress_thread
/// there are two: MPI_THREAD_MULTIPLE). Destroy the communicator, and those split off from it, before MPI_Finalize, on
/// all ranks: a destructor waits for the others', a second at most. Where one comes later, the duplicate stays
/// allocated until MPI_Finalize. A wait for one of a process's groups over MPI makes progress for all of them.
///
/// Throws colls::error: invalid_argument (MPI is not there, `users` is no such communicator); peer_failed, with MPI's
/// own words, where `users` returns errors (MPI_ERRORS_RETURN). Errors of MPI's later are reported the same way, unless
/// MPI ends the program: MPICH asks MPI_COMM_WORLD's handler first, and launchers end all ranks when one dies. shrink
/// is unsupported. Cost: MPI_Comm_dup, one split, one broadcast.
communicator communicator_of(MPI_Comm users);

}  // namespace colls::inline v1::mpi

#ifndef COLLS_SEPARATE
#include <colls/detail/transport/mpi/group.hpp>
#endif
