// reduce with minloc: each rank searches a part of a grid for the minimum of Himmelblau's function; rank 0 gets the
// value and its index. Of equal values the lower index wins, so that any number of ranks gives the same result.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/reduce.cpp -o reduce
// Run:   ./reduce [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>

constexpr int side = 1201;
constexpr double coordinate(int i) { return -6 + 0.01 * i; }

double height(int index) {
    const double x = coordinate(index % side), y = coordinate(index / side);
    const double a = x * x + y - 11, b = x + y * y - 7;
    return a * a + b * b;
}

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    using point = colls::value_index<double, int>;
    point lowest{};

    colls::threads::run(ranks, [&](auto& comm) {
        point own{std::numeric_limits<double>::infinity(), 0};
        for (int i = comm.rank(); i < side * side; i += comm.size())
            if (const double h = height(i); h < own.value) own = {h, i};
        std::printf("rank %d: %.6f at (%.2f, %.2f)\n", comm.rank(), own.value, coordinate(own.index % side),
            coordinate(own.index / side));
        colls::reduce(
            comm, std::span(&own, 1), comm.rank() == 0 ? std::span(&lowest, 1) : std::span<point>(), colls::minloc, 0);
    });

    point expected{std::numeric_limits<double>::infinity(), 0};
    for (int i = 0; i < side * side; ++i)
        if (height(i) < expected.value) expected = {height(i), i};
    const bool right = lowest.value == expected.value && lowest.index == expected.index;
    std::printf("lowest: %.6f at (%.2f, %.2f); %s\n", lowest.value, coordinate(lowest.index % side),
        coordinate(lowest.index / side), right ? "as the serial search finds" : "WRONG");
    return right ? 0 : 1;
}
