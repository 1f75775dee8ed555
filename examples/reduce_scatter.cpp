// reduce_scatter, in y = A x with the columns of A distributed over the ranks: each rank multiplies its columns by its
// part of x, which gives a summand of all of y; reduce_scatter adds the summands and leaves each rank its block of y.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/reduce_scatter.cpp -o reduce_scatter
// Run:   ./reduce_scatter [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

constexpr int size = 1001;  // not a multiple of the number of ranks

// Small whole numbers, so that every order of summation gives the same result.
double matrix(int row, int column) { return (row * 7 + column * 3) % 11 - 5; }
double vector(int column) { return column % 4 - 1; }

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    std::vector<double> result(size), expected(size, 0.0);
    for (int row = 0; row < size; ++row)
        for (int column = 0; column < size; ++column)
            expected[static_cast<std::size_t>(row)] += matrix(row, column) * vector(column);

    colls::threads::run(ranks, [&](auto& comm) {
        const int rank = comm.rank(), n = comm.size();
        std::vector<double> summand(size, 0.0);
        for (int row = 0; row < size; ++row)
            for (int column = rank; column < size; column += n)
                summand[static_cast<std::size_t>(row)] += matrix(row, column) * vector(column);

        const int share = size / n, extra = size % n;
        std::vector<double> own(static_cast<std::size_t>(share + (rank < extra)));
        colls::reduce_scatter(comm, summand, own, colls::sum);

        double squares = 0;
        for (const double y : own) squares += y * y;
        colls::all_reduce(comm, std::span(&squares, 1), colls::sum);
        if (rank == 0) std::printf("|A x| = %.6f, from %d blocks of y\n", std::sqrt(squares), n);
        colls::gather(comm, own, rank == 0 ? std::span(result) : std::span<double>(), 0);
    });
    const bool right = result == expected;
    std::printf("%s\n", right ? "equal to the serial product" : "WRONG");
    return right ? 0 : 1;
}
