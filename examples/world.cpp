// Ranks as processes, on one host or several: estimates pi by counting random points in a circle. Started by mpirun,
// mpiexec, srun or torchrun, or by hand with COLLS_RANK and COLLS_SIZE set; started alone it is a group of one rank.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/world.cpp -o world
// Run:   mpirun -n 4 ./world
#include <colls/colls.hpp>
#include <colls/world.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <span>

int main() try {
    // example-begin world
    colls::communicator comm = colls::world();  // shared memory within a host, TCP between hosts
    // example-end
    std::mt19937_64 random(static_cast<std::uint64_t>(comm.rank()) + 1);
    std::uniform_real_distribution<double> coordinate(-1, 1);
    long counts[2] = {0, 1'000'000};
    for (long i = 0; i < counts[1]; ++i) counts[0] += std::hypot(coordinate(random), coordinate(random)) <= 1;
    // example-begin call
    colls::all_reduce(comm, counts, colls::sum);
    // example-end
    const double pi = 4.0 * static_cast<double>(counts[0]) / static_cast<double>(counts[1]);
    if (comm.rank() == 0) std::printf("%d ranks, %ld points: pi is about %.4f\n", comm.size(), counts[1], pi);
    return std::abs(pi - 3.14159265) < 0.01 && counts[1] == 1'000'000L * comm.size() ? 0 : 1;
} catch (const colls::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
