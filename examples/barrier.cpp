// barrier, in a heat equation on memory that the threads share: each rank computes its own cells, and a barrier
// separates the steps. Then it times barriers by several schedules.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/barrier.cpp -o barrier
// Run:   ./barrier [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

constexpr std::size_t cells = 2000;
constexpr int steps = 2000;

void step(const std::vector<double>& old, std::vector<double>& now, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) now[i] = old[i] + 0.25 * (old[i - 1] - 2 * old[i] + old[i + 1]);
}

template <class Schedule>
void time_barrier(const char* name, auto& comm) {
    constexpr int times = 2000;
    colls::barrier<Schedule>(comm);  // so that all ranks start together
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) colls::barrier<Schedule>(comm);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (comm.rank() == 0) std::printf("%-20s %7.2f us a barrier\n", name, took.count() / times);
}

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    std::vector<double> a(cells + 2, 0.0), b, serial, other;
    a[0] = 100;  // one end is held at 100 degrees, the other at 0
    b = serial = other = a;
    for (int s = 0; s < steps; ++s, std::swap(serial, other)) step(serial, other, 1, cells + 1);

    colls::threads::run(ranks, [&](auto& comm) {
        const auto rank = static_cast<std::size_t>(comm.rank()), n = static_cast<std::size_t>(comm.size());
        const std::size_t begin = 1 + cells * rank / n, end = 1 + cells * (rank + 1) / n;
        std::vector<double>*old = &a, *now = &b;
        for (int s = 0; s < steps; ++s, std::swap(old, now)) {
            step(*old, *now, begin, end);
            colls::barrier(comm);  // no rank starts step s + 1 before the neighbours have finished step s
        }
        time_barrier<colls::automatic>("automatic", comm);
        time_barrier<colls::circulant<>>("circulant", comm);
        time_barrier<colls::direct>("direct", comm);
        time_barrier<colls::tree<2>>("tree<2>", comm);
    });
    const std::vector<double>& result = steps % 2 ? b : a;
    const bool right = result == serial;
    std::printf("temperature at cells 1, 10, 100: %.3f %.3f %.3f; %s\n", result[1], result[10], result[100],
        right ? "equal to the serial run" : "WRONG");
    return right ? 0 : 1;
}
