// all_gather and all_gather_v, for results whose number is not known before: each rank searches an interval for numbers
// that are sums of two cubes in two ways (1729 = 1 + 12^3 = 9^3 + 10^3). all_gather tells every rank the counts,
// all_gather_v the numbers.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/all_gather.cpp -o all_gather
// Run:   ./all_gather [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <vector>

std::vector<long> taxicab_numbers(long begin, long end) {
    std::vector<char> ways(static_cast<std::size_t>(end - begin), 0);
    for (long a = 1; a * a * a < end; ++a)
        for (long b = a; a * a * a + b * b * b < end; ++b)
            if (const long x = a * a * a + b * b * b; x >= begin) ++ways[static_cast<std::size_t>(x - begin)];
    std::vector<long> found;
    for (long x = begin; x < end; ++x)
        if (ways[static_cast<std::size_t>(x - begin)] >= 2) found.push_back(x);
    return found;
}

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    constexpr long limit = 1'000'000;
    const std::vector<long> expected = taxicab_numbers(1, limit);
    std::vector<char> right(static_cast<std::size_t>(ranks), 0);

    colls::threads::run(ranks, [&](auto& comm) {
        const long begin = 1 + (limit - 1) * comm.rank() / comm.size();
        const long end = 1 + (limit - 1) * (comm.rank() + 1) / comm.size();
        const std::vector<long> mine = taxicab_numbers(begin, end);

        const std::size_t own_count = mine.size();
        std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()));
        colls::all_gather(comm, std::span(&own_count, 1), counts);

        std::vector<long> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
        colls::all_gather_v(comm, mine, all, counts);

        right[static_cast<std::size_t>(comm.rank())] = all == expected;
        if (comm.rank() == 0) {
            for (int r = 0; r < comm.size(); ++r)
                std::printf("rank %d found %zu\n", r, counts[static_cast<std::size_t>(r)]);
            std::printf("%zu below %ld:", all.size(), limit);
            for (std::size_t i = 0; i < 8 && i < all.size(); ++i) std::printf(" %ld", all[i]);
            std::printf(" ... %ld\n", all.back());
        }
    });
    for (const char r : right)
        if (!r) return 1;
    return 0;
}
