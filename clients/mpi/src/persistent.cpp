#include "persistent.hpp"

#include "failure.hpp"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace colls_mpi {

namespace {

// By the request that the program has. Never destroyed, since MPI_Finalize may come late.
auto& requests_to_calls = *new std::unordered_map<MPI_Request, std::shared_ptr<persistent_call>>;
auto& calls_mutex = *new std::mutex;
std::atomic<bool> any = false;
// Requests that the program has freed. They serve later calls: MPICH 4.0 waits for ever in a persistent collective of
// its own that gets the memory of a freed persistent message.
auto& spare_requests = *new std::vector<MPI_Request>;

std::shared_ptr<persistent_call> call_of(MPI_Request request) {
    if (!any) return nullptr;
    const std::lock_guard lock(calls_mutex);
    const auto found = requests_to_calls.find(request);
    return found == requests_to_calls.end() ? nullptr : found->second;
}
std::shared_ptr<persistent_call> take(MPI_Request request) {
    if (!any) return nullptr;
    const std::lock_guard lock(calls_mutex);
    const auto found = requests_to_calls.find(request);
    if (found == requests_to_calls.end()) return nullptr;
    std::shared_ptr<persistent_call> taken = std::move(found->second);
    requests_to_calls.erase(found);
    any = !requests_to_calls.empty();
    return taken;
}

}  // namespace

MPI_Request add_persistent(std::unique_ptr<persistent_call> call) {
    MPI_Request request = MPI_REQUEST_NULL;
    const std::lock_guard lock(calls_mutex);
    if (spare_requests.empty()) {
        check(PMPI_Send_init(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, &request), "MPI_Send_init");
    } else {
        request = spare_requests.back();
        spare_requests.pop_back();
    }
    requests_to_calls[request] = std::move(call);
    any = true;
    return request;
}

inner_requests::inner_requests(int count, MPI_Request* requests) : requests_(requests) {
    if (!any || requests == nullptr) return;
    for (int i = 0; i < count; ++i) {
        std::shared_ptr<persistent_call> call = call_of(requests[i]);
        if (call == nullptr || !call->is_active()) continue;
        if (copies_.empty()) {
            copies_.assign(requests, requests + count);
            active_.resize(copies_.size());
        }
        const auto at = static_cast<std::size_t>(i);
        copies_[at] = call->request();
        active_[at] = std::move(call);
    }
}
inner_requests::~inner_requests() {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
        if (active_[i] == nullptr)
            requests_[i] = copies_[i];
        else
            active_[i]->request() = copies_[i];  // null when the call is over: the program's request is inactive again
    }
}

}  // namespace colls_mpi

extern "C" {

int MPI_Start(MPI_Request* request) {
    const auto call = request == nullptr ? nullptr : colls_mpi::call_of(*request);
    if (call == nullptr) return PMPI_Start(request);
    if (!call->is_active()) return call->start();
    PMPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_REQUEST);
    return MPI_ERR_REQUEST;
}
int MPI_Startall(int count, MPI_Request requests[]) {
    if (!colls_mpi::any || requests == nullptr) return PMPI_Startall(count, requests);
    for (int i = 0; i < count; ++i) {
        const int code = MPI_Start(&requests[i]);
        if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}
// A call that is under way goes on.
int MPI_Request_free(MPI_Request* request) {
    const auto call = request == nullptr ? nullptr : colls_mpi::take(*request);
    if (call == nullptr) return PMPI_Request_free(request);
    if (call->is_active()) PMPI_Request_free(&call->request());
    const std::lock_guard lock(colls_mpi::calls_mutex);
    colls_mpi::spare_requests.push_back(*request);
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}
int MPI_Cancel(MPI_Request* request) {
    const auto call = request == nullptr ? nullptr : colls_mpi::call_of(*request);
    return PMPI_Cancel(call != nullptr && call->is_active() ? &call->request() : request);
}

}  // extern "C"
