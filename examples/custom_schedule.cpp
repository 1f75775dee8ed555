// A schedule of your own: state who sends what to whom, let the compiler prove it, derive an all_reduce, run it.
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
static_assert(colls::proven<pairwise_reduce_scatter, 16>);  // right for every group of 1 to 16 ranks, or no program

using my_all_reduce = colls::compose<pairwise_reduce_scatter, colls::reversed<pairwise_reduce_scatter>>;
static_assert(colls::proven<my_all_reduce, 16>);
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
    bool right = true;
    // example-begin run
    colls::threads::run(6, [&](auto& comm) {
        std::vector<float> gradients(1000, static_cast<float>(comm.rank() + 1));
        colls::all_reduce<my_all_reduce>(comm, gradients, colls::sum);  // 1 + 2 + ... + 6 in each element, everywhere
        if (comm.rank() == 0) std::printf("sum over %d ranks: %g\n", comm.size(), gradients[0]);
        // example-end
        for (const float g : gradients)
            if (g != 21) right = false;
    });
    // example-begin cost
    constexpr auto cost = colls::cost_of<my_all_reduce>(6);
    std::printf("%d rounds; each rank sends %d blocks of a sixth of the data\n", cost.rounds, cost.blocks_sent);
    std::printf("the broken one: %s\n", colls::verify<broken>(6).text().c_str());
    // example-end
    return right ? 0 : 1;
}
