// scatter and reduce: rank 0 scatters shuffled numbers; each rank finds the one of its numbers with the longest Collatz
// chain; rank 0 gets the longest of all.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/scatter.cpp -o scatter
// Run:   ./scatter [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <vector>

struct chain {
    long length = 0, start = 0;
};

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    constexpr int total = 99'999;  // not a multiple of the number of ranks: the first ranks get one more
    chain longest;

    colls::threads::run(ranks, [&](auto& comm) {
        std::vector<long> all;
        if (comm.rank() == 0) {
            all.resize(total);
            std::iota(all.begin(), all.end(), 1L);
            std::shuffle(all.begin(), all.end(), std::mt19937(1));
        }
        std::vector<long> mine(static_cast<std::size_t>(total / comm.size() + (comm.rank() < total % comm.size())));
        colls::scatter(comm, all, mine, 0);  // `all` is empty off the root

        chain best;
        for (const long start : mine) {
            long length = 1;
            for (long x = start; x != 1; x = x % 2 ? 3 * x + 1 : x / 2) ++length;
            if (length > best.length) best = {length, start};
        }
        std::printf("rank %d: of %zu numbers %ld has the longest chain, %ld terms\n", comm.rank(), mine.size(),
            best.start, best.length);

        std::vector<chain> bests(comm.rank() == 0 ? static_cast<std::size_t>(comm.size()) : 0);
        colls::gather(comm, std::span(&best, 1), bests, 0);
        for (const chain& b : bests)
            if (b.length > longest.length) longest = b;
    });
    std::printf("longest chain below 100000: %ld, %ld terms (77031, 351 expected)\n", longest.start, longest.length);
    return longest.start == 77'031 && longest.length == 351 ? 0 : 1;
}
