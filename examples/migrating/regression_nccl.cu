// Linear regression on the GPUs of one process, on NCCL. regression.cu is the same program on colls.
//
// Build: nvcc -std=c++20 -arch=native examples/migrating/regression_nccl.cu -lnccl -o regression_nccl
// Run:   ./regression_nccl
#include "regression.cuh"

#include <nccl.h>

#include <memory>

using namespace regression;

static void check(ncclResult_t code) {
    if (code != ncclSuccess) throw std::runtime_error(ncclGetErrorString(code));
}

int main() try {
    const int n = gpus();
    if (n == 0) return std::printf("left out: there is no GPU\n"), 77;
    std::vector<std::unique_ptr<gpu>> on;
    for (int r = 0; r < n; ++r) on.push_back(std::make_unique<gpu>(r, n));
    // example-begin start
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(n));
    check(ncclCommInitAll(comms.data(), n, nullptr));
    // example-end

    // example-begin broadcast
    check(ncclGroupStart());
    for (int r = 0; r < n; ++r)
        check(ncclBroadcast(on[r]->weights, on[r]->weights, features, ncclFloat, 0, comms[r], on[r]->stream));
    check(ncclGroupEnd());
    // example-end

    for (int step = 0; step < steps; ++step) {
        for (auto& g : on) g->differentiate_here();
        // example-begin average
        check(ncclGroupStart());
        for (int r = 0; r < n; ++r)
            check(
                ncclAllReduce(on[r]->gradient, on[r]->gradient, features, ncclFloat, ncclAvg, comms[r], on[r]->stream));
        check(ncclGroupEnd());
        // example-end
        for (auto& g : on) g->descend_here();
    }
    // example-begin gather
    check(ncclGroupStart());
    for (int r = 0; r < n; ++r)
        check(ncclAllGather(on[r]->error, on[r]->errors, 1, ncclFloat, comms[r], on[r]->stream));
    check(ncclGroupEnd());
    // example-end

    bool right = true;
    for (auto& g : on) right = g->report(n) && right;
    // example-begin end
    for (ncclComm_t comm : comms) {
        ncclResult_t state;
        check(ncclCommGetAsyncError(comm, &state));
        check(state);
        check(ncclCommDestroy(comm));
    }
    // example-end
    return right ? 0 : 1;
} catch (const std::exception& e) {
    return std::printf("%s\n", e.what()), 1;
}
