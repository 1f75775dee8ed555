// What makes repeated calls cheap: memory that all ranks reach, a call that is prepared once, and a thread that moves
// it on while the rank computes. The result is compared with plain calls.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/overlap.cpp -o overlap
// Run:   ./overlap [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t count = 200'000;
constexpr int steps = 20;

/// A step's gradients, made from the step's number and the rank.
template <class Range>
void compute_gradients(Range& gradients, int rank, int step) {
    for (std::size_t i = 0; i < count; ++i)
        gradients[i] = static_cast<float>((i + static_cast<std::size_t>(rank * 7 + step)) % 13);
}

/// What a program would do with the sum. Here: compares it with that of a plain call.
template <class Range>
void update_weights(colls::communicator& comm, const Range& sum, int step) {
    std::vector<float> plain(count);
    compute_gradients(plain, comm.rank(), step);
    colls::all_reduce(comm, plain, colls::sum);
    for (std::size_t i = 0; i < count; ++i)
        if (sum[i] != plain[i]) comm.abort("the prepared call gives another sum");
}

/// Something to do meanwhile.
double compute_metrics(int step) {
    double sum = 0;
    for (int i = 1; i < 100'000; ++i) sum += std::sin(i * step);
    return sum;
}

}  // namespace

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    try {
        colls::processes::run(ranks, [](colls::communicator& comm) {
            // example-begin overlap
            auto gradients = comm.allocate<float>(count);  // reached by all ranks: no copy on the way
            auto sum = colls::prepare::all_reduce(comm, gradients, colls::sum);  // checked and chosen once
            colls::progress_thread helper(comm);                                 // moves started calls on

            double metrics = 0;
            for (int step = 0; step < steps; ++step) {
                compute_gradients(gradients, comm.rank(), step);
                colls::operation done = sum.start();
                metrics += compute_metrics(step);  // while the gradients travel
                done.wait();
                update_weights(comm, gradients, step);
            }
            // example-end
            if (comm.rank() == 0)
                std::printf("%d ranks, %d steps: as plain calls (metrics %.3f)\n", comm.size(), steps, metrics);
        });
    } catch (const colls::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    return 0;
}
