// exclusive_scan and inclusive_scan, in a stream compaction: each rank keeps some of its numbers; the exclusive scan of
// the counts gives the place of its first one in the common result, the inclusive scan the place behind its last one.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/scan.cpp -o scan
// Run:   ./scan [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    constexpr std::size_t each = 100'000;
    std::vector<std::vector<unsigned>> inputs(static_cast<std::size_t>(ranks));
    std::vector<unsigned> kept(each * static_cast<std::size_t>(ranks));
    std::size_t total = 0;

    colls::threads::run(ranks, [&](auto& comm) {
        std::vector<unsigned>& data = inputs[static_cast<std::size_t>(comm.rank())];
        std::mt19937 random(static_cast<unsigned>(comm.rank()));
        data.resize(each);
        for (auto& x : data) x = static_cast<unsigned>(random());

        std::vector<unsigned> mine;
        for (const unsigned x : data)
            if (x % 3 == 0) mine.push_back(x);

        const std::size_t count = mine.size();
        std::size_t offset = 0, end = 0;  // exclusive_scan leaves rank 0's offset as it is
        colls::exclusive_scan(comm, std::span(&count, 1), std::span(&offset, 1), colls::sum);
        colls::inclusive_scan(comm, std::span(&count, 1), std::span(&end, 1), colls::sum);
        for (std::size_t i = 0; i < count; ++i) kept[offset + i] = mine[i];  // ranks write disjoint ranges
        std::printf("rank %d keeps %zu of %zu, at [%zu, %zu)\n", comm.rank(), count, each, offset, end);
        if (comm.rank() == comm.size() - 1) total = end;
    });

    std::vector<unsigned> expected;
    for (const auto& input : inputs)
        for (const unsigned x : input)
            if (x % 3 == 0) expected.push_back(x);
    kept.resize(total);
    std::printf("%zu kept; %s\n", total, kept == expected ? "equal to the serial result" : "WRONG");
    return kept == expected ? 0 : 1;
}
