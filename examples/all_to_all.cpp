// all_to_all and all_to_all_v, in a sample sort: the ranks agree on splitters, send every number to the rank of its
// range, and sort what they have received.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/all_to_all.cpp -o all_to_all
// Run:   ./all_to_all [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <vector>

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    constexpr std::size_t each = 200'000, samples_each = 64;
    std::vector<std::vector<std::uint32_t>> sorted(static_cast<std::size_t>(ranks));
    std::vector<std::uint32_t> expected(each * static_cast<std::size_t>(ranks));

    colls::threads::run(ranks, [&](auto& comm) {
        const auto rank = static_cast<std::size_t>(comm.rank()), n = static_cast<std::size_t>(comm.size());
        std::vector<std::uint32_t> data(each);
        std::mt19937 random(static_cast<unsigned>(rank));
        for (auto& x : data) x = static_cast<std::uint32_t>(random() >> (random() % 8));  // far from uniform
        std::ranges::copy(data, expected.begin() + static_cast<std::ptrdiff_t>(rank * each));

        std::vector<std::uint32_t> sample(samples_each), samples(samples_each * n);
        for (auto& s : sample) s = data[random() % each];
        colls::all_gather(comm, sample, samples);
        std::ranges::sort(samples);

        std::ranges::sort(data);
        std::vector<std::size_t> send_counts(n), receive_counts(n);
        auto begin = data.begin();
        for (std::size_t r = 0; r < n; ++r) {
            auto end = data.end();
            if (r + 1 < n) end = std::lower_bound(begin, end, samples[(r + 1) * samples_each]);
            send_counts[r] = static_cast<std::size_t>(end - begin);
            begin = end;
        }
        colls::all_to_all(comm, send_counts, receive_counts);  // counts from each rank

        std::vector<std::uint32_t>& own = sorted[rank];
        own.resize(std::accumulate(receive_counts.begin(), receive_counts.end(), std::size_t{0}));
        colls::all_to_all_v(comm, data, own, send_counts, receive_counts);
        std::ranges::sort(own);
    });

    std::vector<std::uint32_t> joined;
    for (std::size_t r = 0; r < sorted.size(); ++r) {
        std::printf("rank %zu: %7zu numbers", r, sorted[r].size());
        if (!sorted[r].empty()) std::printf(", %10u to %10u", sorted[r].front(), sorted[r].back());
        std::printf("\n");
        joined.insert(joined.end(), sorted[r].begin(), sorted[r].end());
    }
    std::ranges::sort(expected);
    std::printf("%s\n", joined == expected ? "sorted, nothing lost" : "WRONG");
    return joined == expected ? 0 : 1;
}
