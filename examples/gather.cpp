// gather: each rank computes its share of the pixels of a Mandelbrot set; rank 0 gathers and prints them.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/gather.cpp -o gather
// Run:   ./gather [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <complex>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

constexpr int width = 78, height = 24, pixels = width * height;

char pixel(int i) {
    const std::complex<double> c(-2.2 + 3.1 * (i % width) / width, -1.2 + 2.4 * (i / width) / height);
    std::complex<double> z = 0;
    int steps = 0;
    while (steps < 200 && std::norm(z) < 4) z = z * z + c, ++steps;
    return steps == 200 ? '#' : " .,:;-=+*%@"[steps % 11];
}

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    std::vector<char> picture;

    colls::threads::run(ranks, [&](auto& comm) {
        // Balanced blocks: pixels / n each, and one more for the first pixels % n ranks.
        const int share = pixels / comm.size(), extra = pixels % comm.size(), rank = comm.rank();
        const int first = rank * share + (rank < extra ? rank : extra), count = share + (rank < extra);
        std::vector<char> mine(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) mine[static_cast<std::size_t>(i)] = pixel(first + i);

        if (rank == 0) picture.resize(pixels);
        colls::gather(comm, mine, rank == 0 ? std::span(picture) : std::span<char>(), 0);
    });

    bool right = true;
    for (int i = 0; i < pixels; ++i) right = right && picture[static_cast<std::size_t>(i)] == pixel(i);
    for (int y = 0; y < height; ++y) std::printf("%.*s\n", width, picture.data() + y * width);
    std::printf("%d ranks drew it; %s\n", ranks, right ? "equal to the picture drawn by one" : "WRONG");
    return right ? 0 : 1;
}
