// Persistent collectives: arguments that are kept, and a request that starts the non-blocking call with them each time.
//
// The program gets a persistent request of MPI that does nothing, so that all functions of MPI take it. While a start
// is under way, the functions that wait are given the request of the call beneath instead of it (`inner_requests`).
#pragma once

#include "groups.hpp"
#include "report.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#if defined(OPEN_MPI) && MPI_VERSION < 4
#include <mpi-ext.h>
#endif

#include <memory>
#include <utility>
#include <vector>

// How MPI names the function that makes a persistent call: COLLS_MPI_PERSISTENT(Bcast) and what it is for MPI itself.
// Open MPI 4 has them as an extension.
#if MPI_VERSION >= 4
#define COLLS_MPI_HAS_PERSISTENT 1
#define COLLS_MPI_PERSISTENT(name) MPI_##name##_init
#define COLLS_MPI_PERSISTENT_OF_MPI(name) PMPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && OMPI_HAVE_MPI_EXT_PCOLLREQ
#define COLLS_MPI_HAS_PERSISTENT 1
#define COLLS_MPI_PERSISTENT(name) MPIX_##name##_init
#define COLLS_MPI_PERSISTENT_OF_MPI(name) PMPIX_##name##_init
#else
#define COLLS_MPI_HAS_PERSISTENT 0
#endif

namespace colls_mpi {

/// A persistent call, with the request of its start that is under way.
class persistent_call {
public:
    persistent_call() = default;
    persistent_call(const persistent_call&) = delete;
    persistent_call& operator=(const persistent_call&) = delete;
    virtual ~persistent_call() = default;

    bool is_active() const { return request_ != MPI_REQUEST_NULL; }
    MPI_Request& request() { return request_; }
    /// It is not active. Returns what MPI_Start does.
    virtual int start() = 0;

private:
    MPI_Request request_ = MPI_REQUEST_NULL;
};

/// Keeps a call, and returns the request by which the program knows it. Throws mpi_failure.
MPI_Request add_persistent(std::unique_ptr<persistent_call> call);

/// The requests that a function is given, as MPI knows them: in place of each persistent call that is active, that of
/// its start. What the function has made of them is taken over when this ends.
class inner_requests {
public:
    inner_requests(int count, MPI_Request* requests);
    explicit inner_requests(MPI_Request* request) : inner_requests(1, request) {}
    inner_requests(const inner_requests&) = delete;
    inner_requests& operator=(const inner_requests&) = delete;
    ~inner_requests();
    MPI_Request* data() { return copies_.empty() ? requests_ : copies_.data(); }

private:
    MPI_Request* const requests_;
    std::vector<MPI_Request> copies_;
    std::vector<std::shared_ptr<persistent_call>> active_;  // null for other requests
};

}  // namespace colls_mpi
