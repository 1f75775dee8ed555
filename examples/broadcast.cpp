// broadcast and reduce, in a count of primes: rank 0 finds the small primes and broadcasts them; every rank sieves an
// interval of its own; rank 0 gets the sum of the counts.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/broadcast.cpp -o broadcast
// Run:   ./broadcast [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    constexpr long limit = 10'000'000, small_limit = 3163;  // small_limit^2 > limit
    long total = 0;

    colls::threads::run(ranks, [&](auto& comm) {
        std::vector<int> primes;
        if (comm.rank() == 0)
            for (int p = 2; p < small_limit; ++p)
                if (std::ranges::none_of(primes, [p](int q) { return p % q == 0; })) primes.push_back(p);

        // Only the root knows the number of primes: broadcast it first, then the primes.
        int count = static_cast<int>(primes.size());
        colls::broadcast(comm, std::span(&count, 1), 0);
        primes.resize(static_cast<std::size_t>(count));
        colls::broadcast(comm, primes, 0);

        const long begin = limit * comm.rank() / comm.size(), end = limit * (comm.rank() + 1) / comm.size();
        std::vector<char> composite(static_cast<std::size_t>(end - begin), 0);
        for (const long p : primes)
            for (long m = std::max(p * p, (begin + p - 1) / p * p); m < end; m += p)
                composite[static_cast<std::size_t>(m - begin)] = 1;
        long own = std::ranges::count(composite, 0);
        if (comm.rank() == 0) own -= 2;  // 0 and 1
        std::printf("rank %d: %7ld primes in [%ld, %ld)\n", comm.rank(), own, begin, end);

        colls::reduce(
            comm, std::span(&own, 1), comm.rank() == 0 ? std::span(&total, 1) : std::span<long>(), colls::sum, 0);
    });
    std::printf("%ld primes below %ld (664579 expected)\n", total, limit);
    return total == 664'579 ? 0 : 1;
}
