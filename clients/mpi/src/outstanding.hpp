// Non-blocking calls that are not over, and how they make progress.
//
// MPI promises that a call goes on while its rank is in any function of MPI. colls has no thread of its own, so the
// functions in which a rank may wait for others are defined here, too: they advance what is outstanding between two
// looks at what they wait for (completion.cpp, point_to_point.cpp, communicators.cpp). The request that the program
// gets is a generalised request of MPI, which is completed when the call is over. So MPI's own functions wait for it,
// together with requests of any other kind.
#pragma once

#include "groups.hpp"
#include "report.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <sched.h>
#include <memory>

namespace colls_mpi {

/// A non-blocking call of colls, with the request by which the program waits for it.
class outstanding_call {
public:
    outstanding_call(function which, shared_group g);
    outstanding_call(const outstanding_call&) = delete;
    outstanding_call& operator=(const outstanding_call&) = delete;
    virtual ~outstanding_call() = default;

    MPI_Request request() const { return request_; }
    group& of() const { return *group_; }

    // These run one at a time, in any thread that is in a function of MPI.

    /// Makes the call; it does not wait.
    virtual void begin() = 0;
    /// Advances it; true where it is over.
    virtual bool test() = 0;
    /// The call is over: delivers the result.
    virtual void finish() = 0;

private:
    friend class outstanding_calls;
    struct result;
    static int query(void* state, MPI_Status* status);
    static int forget(void* state);
    static int cancel(void* state, int complete);
    /// In a handler.
    void note_failure() noexcept;
    void complete_request() { PMPI_Grequest_complete(request_); }

    const function which_;
    const shared_group group_;
    bool begun_ = false;
    result* result_;
    MPI_Request request_ = MPI_REQUEST_NULL;
};

/// Adds a call, behind those of its group.
void submit(std::unique_ptr<outstanding_call> call);

/// Threads may be in MPI at the same time: one that waits must look for calls that another one has just started.
bool several_threads_may_call();
/// Calls are outstanding, or may soon be: a function that waits must advance them.
bool must_advance();
/// Advances all outstanding calls without waiting. Does nothing where another thread does just that.
void advance();

/// Advances until `over()`, which makes progress for MPI. Behind so many looks it yields.
template <class Over>
void advance_until(const Over& over, int looks_without_yield = 64) {
    for (int looks = 0; !over(); ++looks) {
        advance();
        if (looks >= looks_without_yield) sched_yield();
    }
}
/// As MPI_Wait, of a request of the program's.
int complete(MPI_Request& request, MPI_Status* status);
/// Waits for a request that this library has started by `call`. After some 100 us it yields, as MPICH's MPI_Wait does
/// not where ranks share cores. Throws mpi_failure.
void finish(MPI_Request& request, const char* call);
/// A barrier of the processes of a communicator, in front of a function of MPI that waits for all of them and cannot be
/// interrupted: behind the barrier no rank waits in that function for one that waits for an outstanding call.
void meet(MPI_Comm comm);
/// Waits until no call of the group is outstanding.
void finish_outstanding_of(const group& g);
/// Waits until no call is outstanding.
void finish_outstanding();

}  // namespace colls_mpi
