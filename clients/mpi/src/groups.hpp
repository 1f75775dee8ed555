// A colls communicator for each communicator of the program, kept in an attribute of it.
#pragma once

#include <colls/communicator.hpp>
#include <colls/mpi/detail/mpi_header.hpp>

#include <atomic>
#include <memory>
#include <vector>

namespace colls_mpi {

/// The blocks that a rank sends, or receives, in the neighbourhood collectives.
struct neighbours {
    int count = 0;  ///< of blocks in the program's arrays, also for MPI_PROC_NULL
    /// The blocks that are exchanged, and the rank of each. Those of one rank are together, in the order in which they
    /// are matched.
    std::vector<int> order, ranks;
    int most = 0;  ///< blocks of one rank
};
struct neighbourhood {
    bool exists = false;  ///< the communicator has a topology
    neighbours sources, destinations;
};
/// That of a communicator; none for an intercommunicator, or where there is no such communicator.
neighbourhood neighbourhood_of(MPI_Comm comm);

struct group;
using shared_group = std::shared_ptr<group>;

/// What is kept with a communicator.
struct group {
    colls::communicator comm;  ///< of no group where the communicator's calls go to MPI
    int rank = 0, size = 0;
    bool several = false;  ///< as has_several_of_this_world
    neighbourhood around;
    /// Non-blocking calls that are not over. They keep the group where the program frees the communicator.
    std::atomic<int> outstanding = 0;
    bool held_up = false;  ///< the next of them cannot begin yet; under the lock of outstanding.cpp
    /// Groups of the same ranks that another_group has made, and lends again once all ranks have given them back.
    std::vector<shared_group> others;
    std::atomic<bool> lent = false;    ///< as one of the others
    std::atomic<bool> failed = false;  ///< a call in it has failed: it is not lent again

    bool runs_on_colls() const { return comm.size() > 0; }
};

/// The group of a communicator; null where COLLS_MPI is off, MPI is about to end, or there is no such communicator. The
/// first call on a communicator makes it, and is collective over it. It is of no colls group, on all its ranks alike,
/// for intercommunicators, those of one rank, and those with processes that MPI_Comm_spawn or MPI_Comm_join has added.
/// Throws colls::error.
const shared_group* group_of(MPI_Comm comm);
/// Likewise; null where no call of group_of has made one, which is the same on all ranks, too.
const shared_group* existing_group_of(MPI_Comm comm);
/// A barrier is the first blocking call on a communicator: no group is made for it, since programs copy communicators
/// that they never use again. False, too, where group_of would make no group of colls.
bool is_first_barrier(MPI_Comm comm);

/// Several processes are in the communicator, or in an intercommunicator, and all were started with this one, so that
/// they run this library, too.
bool has_several_of_this_world(MPI_Comm comm);

/// Another group of the ranks of `first`, the communicator's, for calls that ranks may begin in another order than
/// those of `first`. It is given back when the last copy of the pointer is gone. Collective over the communicator.
/// Throws colls::error.
shared_group another_group(MPI_Comm comm, const shared_group& first);

/// While it lives, calls of this thread on the communicator go to MPI: those of attribute callbacks, where it is freed.
/// A group that they made would outlast it, and be found under its handle, which MPI may give to another one.
class freed {
public:
    explicit freed(MPI_Comm comm);
    freed(const freed&) = delete;
    freed& operator=(const freed&) = delete;
    ~freed();

private:
    const MPI_Comm before_;
};

/// Ends all groups. Later calls go to MPI, as those of attribute callbacks in MPI_Finalize.
void end_groups();

}  // namespace colls_mpi
