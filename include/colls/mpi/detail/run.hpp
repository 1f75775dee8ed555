// Groups of the processes of an MPI communicator: over shared memory where they are on one host, else over messages.
// IWYU pragma: private, include <colls/transports/mpi.hpp>
#pragma once

#include <colls/bootstrap.hpp>
#include <colls/detail/group/in_call.hpp>
#include <colls/detail/support/cores.hpp>
#include <colls/mpi/detail/beside.hpp>
#include <colls/mpi/detail/mpi_group.hpp>
#include <colls/net/detail/forming/apart.hpp>
#include <colls/transports/mpi.hpp>

namespace colls::inline v1::mpi {

namespace detail {

/// The members exchange bytes by the communicator itself.
class exchange final : public member_exchange {
public:
    exchange(MPI_Comm users, int rank) : users_(users), rank_(rank) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const int n = static_cast<int>(bytes);
        check(PMPI_Allgather(own, n, MPI_BYTE, all, n, MPI_BYTE, users_), "MPI_Allgather", rank_);
    }

private:
    const MPI_Comm users_;
    const int rank_;
};

/// The cores that the ranks of one host have together.
inline colls::detail::cores_together cores_of(MPI_Comm host, int rank) {
    const colls::detail::core_share own = colls::detail::own_share();
    int here = 1;
    PMPI_Comm_size(host, &here);
    std::vector<colls::detail::core_share> all(static_cast<std::size_t>(here));
    const int bytes = sizeof own;
    check(PMPI_Allgather(&own, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, host), "MPI_Allgather", rank);
    colls::detail::cores_together together;
    for (const colls::detail::core_share& s : all) together.add(s);
    return together;
}

COLLS_INLINE communicator beside(communicator& first, int number) {
    const colls::detail::rank_context& self = first.context();
    const auto* const own = dynamic_cast<const mpi_group*>(self.backend->by_messages());
    if (own == nullptr || !own->has_tags_beside(number)) return {};
    communicator joined = extend::join(own->beside(number, self.crowded), self.rank, self.size);
    colls::detail::put_label(joined.context(), colls::detail::error_text() << self.label << "+" << number);
    return joined;
}

}  // namespace detail

COLLS_INLINE void make_progress(void*) {
    if (!colls::detail::mpi_runs()) return;
    // A probe on all ranks, since MPICH probes MPI_COMM_SELF without progress; for the highest tag, since a probe that
    // finds a message makes no progress either.
    static const int unused_tag = colls::detail::mpi_highest_tag();
    int there = 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, unused_tag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
}

COLLS_INLINE communicator communicator_of(MPI_Comm users, const options& how) {
    using namespace detail;
    if (!colls::detail::mpi_runs())
        throw error(errc::invalid_argument, "colls: mpi::communicator_of before MPI_Init, or after MPI_Finalize");
    int between = 0;
    if (users != MPI_COMM_NULL) check(PMPI_Comm_test_inter(users, &between), "MPI_Comm_test_inter", none);
    if (users == MPI_COMM_NULL || between != 0)
        throw error(errc::invalid_argument,
            between != 0 ? "colls: mpi::communicator_of an intercommunicator: merge it first (MPI_Intercomm_merge)"
                         : "colls: mpi::communicator_of MPI_COMM_NULL: this rank is in no group");
    int rank = none;
    check(PMPI_Comm_rank(users, &rank), "MPI_Comm_rank", none);
    int size = 1;
    check(PMPI_Comm_size(users, &size), "MPI_Comm_size", rank);
    exchange members(users, rank);
    if (communicator comm = colls::detail::group_of_one_host(rank, size, members, how.shared_memory); comm.size() > 0) {
        comm.context().hook = &make_progress;
        if (!how.alone) colls::detail::join_groups_of_thread(comm.context());
        return comm;
    }
    // Not by MPI_Comm_dup, which would call the program's attribute callbacks; nor by MPI_Comm_create: in MPICH 5.0 the
    // group of a grid that leaves ranks out has those, too, and then the new communicator waits for them.
    MPI_Comm own = MPI_COMM_NULL, host = MPI_COMM_NULL;
    check(PMPI_Comm_split(users, 0, rank, &own), "MPI_Comm_split", rank);
    const auto context = std::make_shared<mpi_context>(own);
    check(PMPI_Comm_split_type(own, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type", rank);
    const colls::detail::cores_together together = cores_of(host, rank);
    PMPI_Comm_free(&host);
    // What predictions are made from must be the same everywhere: the host that is the most crowded counts.
    const int cores = together.of_group(context->size());
    int fewest = cores;
    check(PMPI_Allreduce(&cores, &fewest, 1, MPI_INT, MPI_MIN, own), "MPI_Allreduce", rank);
    unsigned number = colls::detail::groups_made.fetch_add(1, std::memory_order_relaxed);
    check(PMPI_Bcast(&number, sizeof number, MPI_BYTE, 0, own), "MPI_Bcast", rank);
    if (how.spare != nullptr && size > 1) {
        context->spare = how.spare(rank, size, members, {});
        context->spare.context().hook = &make_progress;
    }
    communicator comm = extend::join(mpi_group::member_of(context, machine{2e-6, 2e-10, 1.5e-10, fewest},
                                         fewest < colls::detail::cores_together::plenty, how.alone),
        context->rank(), context->size());
    colls::detail::label_group(comm.context(), number);
    return comm;
}

}  // namespace colls::inline v1::mpi
