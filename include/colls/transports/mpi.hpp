// Ranks as the processes of an MPI program: CMake links colls::mpi.
#pragma once

#include <colls/communicator.hpp>
#include <colls/mpi/detail/mpi_header.hpp>

namespace colls::inline v1 {
struct bootstrap_options;
class member_exchange;
}  // namespace colls::inline v1

namespace colls::inline v1::mpi {

/// How the ranks of an MPI communicator are connected.
struct options {
    /// Shared memory where all ranks are on one host. False, or COLLS_TRANSPORT=tcp: MPI's messages there, too. The
    /// same on all ranks.
    bool shared_memory = true;
    /// Waits in other groups of this thread do not advance the group, nor its waits them. So each such group may be
    /// used by another thread (MPI_THREAD_MULTIPLE), and a wait hook may test the operations of one while the rank
    /// waits in another one.
    bool alone = false;
    /// By what a group over messages goes on after a failure: colls::bootstrap (<colls/bootstrap.hpp>), or a function
    /// like it. Null: shrink throws unsupported. The same on all ranks. The group is then made a second time without
    /// MPI: a socket for each rank, and connections where one waits for another for longer than 10 ms. By these it
    /// hears of deaths; shrink makes the new group of them, whose messages are the library's own (TCP, RDMA, or shared
    /// memory where all of it are on one host). Groups that are split off have one, too. The launcher must let the
    /// others live: see docs/error_handling.md.
    communicator (*spare)(int rank, int size, member_exchange& exchange, const bootstrap_options& how) = nullptr;
};

/// A group of the ranks of `users`, an intracommunicator. Collective over `users`, which stays the program's: it may
/// free it before the group.
///
/// Where all ranks are on one host and can share memory, they do, and MPI is needed for forming the group alone: such
/// groups take no communicator of MPI, and share the memory that a group of these processes, or of more, has made
/// before. Else the group passes messages of MPI, on a communicator of its own. Messages of the library and of the
/// program never meet. The library calls MPI by its profiling interface (PMPI_...), and does not duplicate `users`, so
/// that no attribute callback runs.
///
/// Call it after MPI_Init, or MPI_Init_thread of any level. All calls on the group come from the one thread that may
/// call MPI; a progress_thread needs MPI_THREAD_MULTIPLE, with which several threads may each have groups of their own.
/// A wait in one of a thread's groups made by this function advances all of them, and makes progress for MPI. Destroy
/// the communicator, and those split from it, on all ranks before MPI_Finalize. Over messages a destructor waits for
/// those of the other ranks, for a second at most; where one comes later, the communicator stays allocated until
/// MPI_Finalize.
///
/// Throws colls::error: invalid_argument where MPI is not initialised or `users` is an intercommunicator; peer_failed,
/// with the text of MPI, where `users` returns errors (MPI_ERRORS_RETURN). Later errors of MPI are reported the same
/// way, unless MPI ends the program: MPICH asks the handler of MPI_COMM_WORLD first, and launchers end all ranks when
/// one dies. Over messages shrink throws unsupported where there is no options::spare. Cost: two to four MPI_Allgathers
/// of 64 bytes at most; over messages one, two splits and one broadcast; a spare group five more.
communicator communicator_of(MPI_Comm users, const options& how = {});

/// Makes progress for MPI: a hook for set_wait_hook, for groups that communicator_of has not made. Does nothing before
/// MPI_Init and after MPI_Finalize.
void make_progress(void* = nullptr);

}  // namespace colls::inline v1::mpi

#ifndef COLLS_SEPARATE
#include <colls/mpi/detail/run.hpp>
#endif
