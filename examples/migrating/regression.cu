// Linear regression on the GPUs of one process, on colls. regression_nccl.cu is the same program on NCCL.
//
// Build: nvcc -std=c++20 --expt-relaxed-constexpr -arch=native -Iinclude examples/migrating/regression.cu -o regression
// Run:   ./regression
#include "regression.cuh"

#include <colls/transports/cuda.hpp>

#include <memory>
#include <numeric>
#include <span>

using namespace regression;

int main() try {
    const int n = gpus();
    if (n == 0) return std::printf("left out: there is no GPU\n"), 77;
    std::vector<std::unique_ptr<gpu>> on;
    for (int r = 0; r < n; ++r) on.push_back(std::make_unique<gpu>(r, n));
    // example-begin start
    std::vector<int> devices(static_cast<std::size_t>(n));
    std::iota(devices.begin(), devices.end(), 0);
    std::vector<colls::cuda::communicator> comms = colls::cuda::communicator::of_devices(devices);
    // example-end

    // example-begin broadcast
    for (int r = 0; r < n; ++r) colls::cuda::broadcast(comms[r], std::span(on[r]->weights, features), 0, on[r]->stream);
    // example-end

    for (int step = 0; step < steps; ++step) {
        for (auto& g : on) g->differentiate_here();
        // example-begin average
        for (int r = 0; r < n; ++r)
            colls::cuda::all_reduce(comms[r], std::span(on[r]->gradient, features), colls::avg, on[r]->stream);
        // example-end
        for (auto& g : on) g->descend_here();
    }
    // example-begin gather
    for (int r = 0; r < n; ++r)
        colls::cuda::all_gather(
            comms[r], std::span(on[r]->error, 1), std::span(on[r]->errors, static_cast<std::size_t>(n)), on[r]->stream);
    // example-end

    bool right = true;
    for (auto& g : on) right = g->report(n) && right;
    // example-begin end
    for (const auto& comm : comms) comm.check();
    // example-end
    return right ? 0 : 1;
} catch (const std::exception& e) {
    return std::printf("%s\n", e.what()), 1;
}
