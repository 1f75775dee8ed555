// expect: colls: with colls::reproducible all elements must have one fold expression, and this schedule
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

// A schedule of the program's own, which folds along a ring, beginning elsewhere for each block.
struct pairwise {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
        return {.send = {to, colls::block(to)}, .recv = {from, colls::block(rank), colls::action::reduce}};
    }
};

void call(colls::threads::communicator& comm, std::span<float> x) {
#ifdef RIGHT
    colls::all_reduce<colls::reproducible>(comm, x, colls::sum);
    colls::all_reduce(comm, x, colls::sum, colls::reproducible{});
    colls::all_reduce<colls::direct>(comm, x, colls::sum, colls::reproducible{});
    colls::all_reduce(comm, x, colls::sum, colls::recursive_doubling{}, colls::reproducible{});
    colls::all_gather<colls::reversed<pairwise>>(comm, x.first(1), x, colls::reproducible{});  // nothing is reduced
#else
    colls::all_reduce<colls::compose<pairwise, colls::reversed<pairwise>>>(comm, x, colls::sum, colls::reproducible{});
#endif
}
