// Groups of ranks that are the processes of an MPI program.
// IWYU pragma: private, include <colls/transports/mpi.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/backend/split.hpp>
#include <colls/detail/group/failure.hpp>
#include <colls/detail/support/machine.hpp>
#include <colls/detail/support/rank_error.hpp>
#include <colls/extend/message_group.hpp>
#include <colls/mpi/detail/mpi_transport.hpp>

namespace colls::inline v1::mpi {

namespace detail {

using colls::detail::error_text;
using colls::detail::mpi_context;
using extend::machine;

[[gnu::cold]] inline void check(int code, const char* call, int rank) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    PMPI_Error_string(code, text, &length);
    colls::detail::throw_of_rank(rank, errc::peer_failed, error_text() << call << " failed: " << text);
}

class mpi_group : public extend::message_group {
public:
    mpi_group(std::shared_ptr<mpi_context> context, const extend::machine& figures, bool alone)
        : context_(std::move(context)), figures_(figures), alone_(alone) {}

    /// `alone`: see mpi::options. `number`: of the group, among those that share the communicator of MPI.
    static extend::message_member member_of(const std::shared_ptr<mpi_context>& context, const extend::machine& figures,
        bool crowded, bool alone, int number = 0) {
        extend::message_member m;
        m.group = std::make_shared<mpi_group>(context, figures, alone);
        const int first = number == 0 ? 0 : first_beside + 2 * number;
        m.collectives = std::make_unique<colls::detail::mpi_transport>(context, first);
        m.messages = std::make_unique<colls::detail::mpi_transport>(context, first + 1);
        m.crowded = crowded;
        m.advances_others = !alone;
        return m;
    }
    /// Another group of the same ranks, alone, on the same communicator of MPI; for a number that has_tags_beside.
    extend::message_member beside(int number, bool crowded) const {
        return member_of(std::make_shared<mpi_context>(context_), figures_, crowded, true, number);
    }
    bool has_tags_beside(int number) const {
        return colls::detail::mpi_transport::has_tags(first_beside + 2 * number + 1);
    }

    /// The place of the new spare group.
    std::uint64_t create(int n) override { return spare() ? spare()->backend->create(n) : 0; }
    void discard(std::uint64_t place, int n) override {
        if (spare()) spare()->backend->discard(place, n);
    }
    extend::message_member join(const extend::message_formation& f) override {
        const int own = context_->rank();
        communicator its_spare;
        if (colls::detail::rank_context* const from = spare()) {
            colls::detail::list<int> members;
            for (const int m : f.members) members.push_back(m);
            its_spare = communicator(colls::detail::joined(from->backend->attach(*from, f.place, f.rank, members)));
        }
        MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
        check(PMPI_Comm_group(context_->get(), &all), "MPI_Comm_group", own);
        int code = PMPI_Group_incl(all, f.size(), f.members.data(), &some);
        MPI_Comm part = MPI_COMM_NULL;
        if (code == MPI_SUCCESS) {
            // By the tag MPI tells apart groups that are made at the same time. Not a tag of the transports: Open MPI
            // sends its own messages under it, on the communicator that the new one is made from.
            code = PMPI_Comm_create_group(context_->get(), some, 16 + f.members[0] % 32'000, &part);
            PMPI_Group_free(&some);
        }
        PMPI_Group_free(&all);
        check(code, "MPI_Comm_create_group", own);
        const auto made = std::make_shared<mpi_context>(part);
        made->spare = std::move(its_spare);
        return member_of(made,
            colls::detail::with_cores_of(
                figures_, static_cast<std::size_t>(f.size()), static_cast<std::size_t>(context_->size())),
            f.crowded, alone_);
    }
    const char* cannot_shrink() const override {
        return spare() ? nullptr : "not over MPI without a spare group: see mpi::options::spare";
    }
    colls::detail::rank_context* spare() const override {
        return context_->spare.size() > 0 ? &context_->spare.context() : nullptr;
    }
    void close() override { context_.reset(); }
    const extend::machine& figures() const override { return figures_; }

private:
    static constexpr int first_beside = 11'000;  // their tags are above those of `join`

    std::shared_ptr<mpi_context> context_;
    const extend::machine figures_;
    const bool alone_;
};

}  // namespace detail

}  // namespace colls::inline v1::mpi
