// Groups of ranks that are the processes of an MPI program.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/choose/machine.hpp>
#include <colls/detail/execute/messaging_backend.hpp>
#include <colls/detail/group/progress_lock.hpp>
#include <colls/detail/regroup/groups.hpp>
#include <colls/detail/transport/mpi/mpi_transport.hpp>

namespace colls::inline v1::mpi {

namespace detail {

using colls::detail::list;
using colls::detail::machine;
using colls::detail::message;
using colls::detail::mpi_context;
using colls::detail::rank_context;

[[gnu::cold]] inline void check(int code, const char* call, int rank) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw error(
        errc::peer_failed, (message() << "colls: rank " << rank << ": " << call << " failed: " << text).text(), rank);
}

class group : public colls::detail::messaging_backend {
public:
    group(std::shared_ptr<mpi_context> context, const machine& figures)
        : context_(std::move(context)), figures_(figures) {}

    static std::unique_ptr<rank_context> end_of(
        const std::shared_ptr<mpi_context>& context, const machine& figures, bool crowded) {
        const auto g = std::make_shared<group>(context, figures);
        auto e = std::make_unique<rank_context>(context->rank(), context->size(), g->own_memory(context->size()), g);
        e->by_messages = true;
        e->crowded = crowded;
        g->be(*e, std::make_unique<colls::detail::mpi_transport>(context, 0),
            std::make_unique<colls::detail::mpi_transport>(context, 1));
        return e;
    }

    /// The process's other groups over MPI: a wait for one of them makes progress for all.
    static void join_others(rank_context& e) {
        if (latest) {
            const colls::detail::progress_lock mine(*latest);
            e.join(*latest);
        }
        latest = &e;
    }
    void close() override {
        if (latest == &own()) latest = own().next == &own() ? nullptr : own().next;
        messaging_backend::close();
        context_.reset();
    }

    /// A tag by which MPI tells apart the groups that are made at once. Not one of the transports': Open MPI sends its
    /// own messages under it, on the communicator that the new one comes from.
    std::uint64_t create(int) override { return 16 + static_cast<std::uint64_t>(own().rank) % 32'000; }
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int, const list<int>& members) override {
        MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
        check(MPI_Comm_group(context_->get(), &all), "MPI_Comm_group", from.rank);
        int code = MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
        MPI_Comm part = MPI_COMM_NULL;
        if (code == MPI_SUCCESS) {
            code = MPI_Comm_create_group(context_->get(), some, static_cast<int>(place), &part);
            MPI_Group_free(&some);
        }
        MPI_Group_free(&all);
        check(code, "MPI_Comm_create_group", from.rank);
        return end_of(std::make_shared<mpi_context>(part), figures_, from.crowded);
    }
    void discard(std::uint64_t, int) override {}
    std::unique_ptr<rank_context> shrink(rank_context& from) override {
        throw error(errc::unsupported,
            (message() << "colls: rank " << from.rank
                       << " in shrink: not over MPI, which itself would have to survive the loss of a "
                          "rank; let its launcher start the program anew, or use colls::world() instead")
                .text(),
            from.rank);
    }
    const machine& figures() override { return figures_; }

private:
    std::shared_ptr<mpi_context> context_;
    const machine figures_;
    static inline thread_local rank_context* latest = nullptr;
};

}  // namespace detail

COLLS_INLINE communicator communicator_of(MPI_Comm users) {
    using namespace detail;
    if (!colls::detail::mpi_runs())
        throw error(errc::invalid_argument, "colls: mpi::communicator_of before MPI_Init, or after MPI_Finalize");
    int between = 0;
    if (users != MPI_COMM_NULL) check(MPI_Comm_test_inter(users, &between), "MPI_Comm_test_inter", none);
    if (users == MPI_COMM_NULL || between != 0)
        throw error(errc::invalid_argument,
            between != 0 ? "colls: mpi::communicator_of an intercommunicator: merge it first (MPI_Intercomm_merge)"
                         : "colls: mpi::communicator_of MPI_COMM_NULL: this rank is in no group");
    int rank = none;
    check(MPI_Comm_rank(users, &rank), "MPI_Comm_rank", none);
    MPI_Comm own = MPI_COMM_NULL, host = MPI_COMM_NULL;
    check(MPI_Comm_dup(users, &own), "MPI_Comm_dup", rank);
    const auto context = std::make_shared<mpi_context>(own);
    check(MPI_Comm_split_type(own, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type", rank);
    int here = 1;
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    // What predictions are made from must be the same everywhere: as rank 0 has it.
    const int cores = colls::detail::cores();
    struct {
        machine figures;
        unsigned number;
    } common{{2e-6, 2e-10, 1.5e-10, here == context->size() ? cores : 1 << 20},
        colls::detail::groups_made.fetch_add(1, std::memory_order_relaxed)};
    check(MPI_Bcast(&common, sizeof common, MPI_BYTE, 0, own), "MPI_Bcast", rank);
    auto e = group::end_of(context, common.figures, here > cores);
    colls::detail::label_group(*e, common.number);
    group::join_others(*e);
    return colls::detail::communicator_over(std::move(e));
}

}  // namespace colls::inline v1::mpi
