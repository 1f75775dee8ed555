// The functions that wait for requests, and those that look at them: they advance what is outstanding.
#include "outstanding.hpp"
#include "persistent.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <vector>

namespace {

using namespace colls_mpi;

/// `test()` looks once and returns whether the wait is over, `wait()` waits without calls that are outstanding. Both
/// set `code`, with which an error ends the wait.
template <class Test, class Wait>
int wait_for(int& code, const Test& test, const Wait& wait) {
    advance_until([&] {
        if (!must_advance()) {
            wait();
            return true;
        }
        return test() || code != MPI_SUCCESS;
    });
    return code;
}

}  // namespace

extern "C" {

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
    return request == nullptr ? PMPI_Wait(request, status) : complete(*inner_requests(request).data(), status);
}
int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    inner_requests inner(count, requests);
    int code = MPI_SUCCESS, over = 0;
    return wait_for(
        code, [&] { return (code = PMPI_Testall(count, inner.data(), &over, statuses)) == MPI_SUCCESS && over != 0; },
        [&] { code = PMPI_Waitall(count, inner.data(), statuses); });
}
int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
    inner_requests inner(count, requests);
    int code = MPI_SUCCESS, over = 0;
    return wait_for(
        code,
        [&] { return (code = PMPI_Testany(count, inner.data(), index, &over, status)) == MPI_SUCCESS && over != 0; },
        [&] { code = PMPI_Waitany(count, inner.data(), index, status); });
}
int MPI_Waitsome(int count, MPI_Request requests[], int* completed, int indices[], MPI_Status statuses[]) {
    inner_requests inner(count, requests);
    int code = MPI_SUCCESS;
    return wait_for(
        code,
        [&] {
            code = PMPI_Testsome(count, inner.data(), completed, indices, statuses);
            return code == MPI_SUCCESS && *completed != 0;  // MPI_UNDEFINED: there are no requests
        },
        [&] { code = PMPI_Waitsome(count, inner.data(), completed, indices, statuses); });
}

int MPI_Test(MPI_Request* request, int* over, MPI_Status* status) {
    advance();
    return PMPI_Test(inner_requests(request).data(), over, status);
}
int MPI_Testall(int count, MPI_Request requests[], int* over, MPI_Status statuses[]) {
    advance();
    return PMPI_Testall(count, inner_requests(count, requests).data(), over, statuses);
}
int MPI_Testany(int count, MPI_Request requests[], int* index, int* over, MPI_Status* status) {
    advance();
    return PMPI_Testany(count, inner_requests(count, requests).data(), index, over, status);
}
int MPI_Testsome(int count, MPI_Request requests[], int* completed, int indices[], MPI_Status statuses[]) {
    advance();
    return PMPI_Testsome(count, inner_requests(count, requests).data(), completed, indices, statuses);
}
int MPI_Request_get_status(MPI_Request request, int* over, MPI_Status* status) {
    advance();
    return PMPI_Request_get_status(*inner_requests(&request).data(), over, status);
}
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
int MPI_Request_get_status_all(int count, const MPI_Request requests[], int* over, MPI_Status statuses[]) {
    advance();
    std::vector<MPI_Request> copies(requests, requests + count);
    return PMPI_Request_get_status_all(count, inner_requests(count, copies.data()).data(), over, statuses);
}
int MPI_Request_get_status_any(int count, const MPI_Request requests[], int* index, int* over, MPI_Status* status) {
    advance();
    std::vector<MPI_Request> copies(requests, requests + count);
    return PMPI_Request_get_status_any(count, inner_requests(count, copies.data()).data(), index, over, status);
}
int MPI_Request_get_status_some(
    int count, const MPI_Request requests[], int* completed, int indices[], MPI_Status statuses[]) {
    advance();
    std::vector<MPI_Request> copies(requests, requests + count);
    return PMPI_Request_get_status_some(
        count, inner_requests(count, copies.data()).data(), completed, indices, statuses);
}
#endif

}  // extern "C"
