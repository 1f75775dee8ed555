// An MPI communicator of the library's own, which the transports of a group share, or of several groups.
// IWYU pragma: private, include <colls/transports/mpi.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/support/clock.hpp>
#include <colls/mpi/detail/mpi_header.hpp>

#include <memory>

namespace colls::inline v1::detail {

/// MPI may be called: it is initialised, and not finalised.
inline bool mpi_runs() {
    int initialised = 0, finalised = 0;
    PMPI_Initialized(&initialised);
    PMPI_Finalized(&finalised);
    return initialised != 0 && finalised == 0;
}

inline int mpi_highest_tag() {
    int* highest = nullptr;
    int known = 0;
    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &known);
    return known != 0 ? *highest : 32767;  // the least that MPI promises
}

/// Freed with its last user, unless a peer may still send something over it.
class mpi_context {
public:
    /// `patience`: seconds that the ends of its transports may take.
    explicit mpi_context(MPI_Comm own, double patience = 1) : patience_(patience), comm_(own) {
        PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
        PMPI_Comm_rank(own, &rank_);
        PMPI_Comm_size(own, &size_);
    }
    /// The same communicator, for another group.
    explicit mpi_context(const std::shared_ptr<mpi_context>& other)
        : patience_(other->patience_), of_(other), comm_(other->comm_), rank_(other->rank_), size_(other->size_) {}
    mpi_context(const mpi_context&) = delete;
    mpi_context& operator=(const mpi_context&) = delete;
    ~mpi_context() {
        if (of_ == nullptr && !kept_ && mpi_runs()) PMPI_Comm_free(&comm_);
    }
    MPI_Comm get() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    /// It is not freed: it stays until MPI is finalised.
    void keep() {
        kept_ = true;
        if (of_ != nullptr) of_->keep();
    }
    /// A transport begins to end. Returns until when all transports of this communicator may take (of `seconds_now`):
    /// from when the first of them has called this. Its groups end one after the other.
    double begin_ending() {
        if (of_ != nullptr) return of_->begin_ending();
        if (deadline_ == 0) deadline_ = seconds_now() + patience_;
        return deadline_;
    }

    /// The group that mpi::options::spare has made; of no group: there is none.
    communicator spare;
    /// As the spare group knows.
    bool dead(int rank) { return spare.size() > 0 && spare.context().backend->dead(rank); }

private:
    const double patience_;
    const std::shared_ptr<mpi_context> of_;  // whose communicator it is; null: its own
    MPI_Comm comm_;
    int rank_ = 0, size_ = 1;
    bool kept_ = false;
    double deadline_ = 0;  // 0: no transport has begun to end
};

}  // namespace colls::inline v1::detail
