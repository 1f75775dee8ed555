// A schedule of the program's own: state which rank sends which block to which rank, let the compiler prove it, derive
// an all_reduce, and run that. Then a wrong schedule, and what the proof says of it.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/custom_schedule.cpp -o custom_schedule
// Run:   ./custom_schedule
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstdio>
#include <vector>

// example-begin schedule
struct pairwise_reduce_scatter {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
        return {.send = {to, colls::block(to)}, .recv = {from, colls::block(rank), colls::action::reduce}};
    }
};
static_assert(colls::prove<pairwise_reduce_scatter, 16>());  // right for every group of 1 to 16 ranks, or no program
// example-end

// example-begin derived
using my_all_reduce = colls::compose<pairwise_reduce_scatter, colls::reversed<pairwise_reduce_scatter>>;
// example-end

// example-begin broken
struct broken : pairwise_reduce_scatter {
    static constexpr colls::step at(int rank, int n, int round) {
        colls::step s = pairwise_reduce_scatter::at(rank, n, round);
        s.recv.blocks = colls::block(s.recv.peer);  // a slip: the peer's block instead of the own one
        return s;
    }
};
static_assert(!colls::proven<broken, 16>);
// example-end

int main() {
    constexpr int ranks = 6;
    float sums[ranks];
    // example-begin run
    colls::threads::run(ranks, [&](auto& comm) {
        std::vector<float> gradients(1000, static_cast<float>(comm.rank() + 1));
        colls::all_reduce<my_all_reduce>(comm, gradients, colls::sum);  // 1 + 2 + ... + 6 in each element, everywhere
        sums[comm.rank()] = gradients[999];
    });
    constexpr colls::cost cost = colls::cost_of<my_all_reduce>(ranks);
    std::printf("the sum is %g; %d rounds, %ld of %d blocks sent by each rank\n", sums[0], cost.rounds,
        cost.blocks_sent, ranks);
    std::printf("the broken one: %s\n", colls::verify<broken>(ranks).text().c_str());
    // example-end
    for (const float sum : sums)
        if (sum != 21) return 1;
    return 0;
}
