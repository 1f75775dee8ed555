// The program of docs/first_steps.md: ranks fit a line to points that are spread over them, on threads, as processes,
// or as what a launcher started. Its CMakeLists.txt makes it a project of its own.
//
// Run: first_steps [threads | processes | world]

// example-begin includes
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
#include <colls/world.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>
// example-end

// example-begin work
/// Fits y = a x + b to points of which each rank has some, by gradient descent. Every rank ends with the same line.
void fit_line(colls::communicator& comm) {
    // This rank's points: rank 0 of 4 has numbers 0 to 249, rank 1 has 250 to 499, ...
    const colls::buffer_block mine = colls::block_of(1000, comm.size(), comm.rank());
    std::vector<double> x(mine.size), y(mine.size);
    for (std::size_t i = 0; i < mine.size; ++i) {
        x[i] = static_cast<double>(mine.offset + i) / 1000;
        y[i] = 3 * x[i] + 1;
    }
    double a = 0, b = 0;
    for (int step = 0; step < 500; ++step) {
        double gradient[] = {0, 0};
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double error = a * x[i] + b - y[i];
            gradient[0] += error * x[i];
            gradient[1] += error;
        }
        colls::all_reduce(comm, gradient, colls::sum);  // the sum over all points, on every rank
        a -= gradient[0] / 1000;
        b -= gradient[1] / 1000;
    }
    if (comm.rank() == 0) std::printf("%d ranks: y = %.3f x + %.3f\n", comm.size(), a, b);
    if (std::abs(a - 3) > 0.001 || std::abs(b - 1) > 0.001) comm.abort("the line is wrong");
}
// example-end

// example-begin main
int main(int argc, char** argv) {
    const std::string ranks_are = argc > 1 ? argv[1] : "threads";
    try {
        if (ranks_are == "threads") colls::threads::run(4, fit_line);
        if (ranks_are == "processes") colls::processes::run(4, fit_line);
        if (ranks_are == "world") {
            colls::communicator comm = colls::world();
            fit_line(comm);
        }
    } catch (const colls::error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
// example-end
