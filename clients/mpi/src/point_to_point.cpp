// Messages between two ranks that wait for each other: where calls are outstanding, as non-blocking messages, so that
// the rank advances those calls meanwhile.
#include "buffers.hpp"
#include "failure.hpp"
#include "outstanding.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <new>

namespace {

using namespace colls_mpi;

/// `start` is MPI_Isend, or one of its kin.
template <class Count>
int send_by(int (*start)(const void*, Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request*), const void* data,
    Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = start(data, count, type, to, tag, comm, &request);
    return code == MPI_SUCCESS ? complete(request, MPI_STATUS_IGNORE) : code;
}

/// A receive and a send at once, each of which starts a request.
template <class Receive, class Send>
int exchange(const Receive& receive, const Send& send, MPI_Status* status) {
    MPI_Request incoming = MPI_REQUEST_NULL, outgoing = MPI_REQUEST_NULL;
    int code = receive(&incoming);
    if (code != MPI_SUCCESS) return code;
    code = send(&outgoing);
    if (code != MPI_SUCCESS) {
        PMPI_Cancel(&incoming);
        PMPI_Wait(&incoming, MPI_STATUS_IGNORE);
        return code;
    }
    code = complete(incoming, status);
    const int code_of_send = complete(outgoing, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? code : code_of_send;
}

}  // namespace

extern "C" {

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status* status) {
    int code = MPI_SUCCESS, there = 0;
    advance_until([&] {
        code = must_advance() ? PMPI_Iprobe(from, tag, comm, &there, status)
                              : (there = 1, PMPI_Probe(from, tag, comm, status));
        return there != 0 || code != MPI_SUCCESS;
    });
    return code;
}

int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
    int code = MPI_SUCCESS, there = 0;
    advance_until([&] {
        code = must_advance() ? PMPI_Improbe(from, tag, comm, &there, message, status)
                              : (there = 1, PMPI_Mprobe(from, tag, comm, message, status));
        return there != 0 || code != MPI_SUCCESS;
    });
    return code;
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* there, MPI_Status* status) {
    advance();
    return PMPI_Iprobe(from, tag, comm, there, status);
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int* there, MPI_Message* message, MPI_Status* status) {
    advance();
    return PMPI_Improbe(from, tag, comm, there, message, status);
}

}  // extern "C"

#define COLLS_MPI_FUNCTIONS "point_to_point_functions.hpp"
#include "both_counts.hpp"
