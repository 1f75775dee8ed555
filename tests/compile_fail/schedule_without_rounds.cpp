// A schedule must tell its number of rounds.
// expect: colls: check_schedule<S>: S must be a schedule
#include <colls/testing/schedule.hpp>

struct to_the_right {
    static constexpr colls::collective implements = colls::collective::broadcast;
#ifdef RIGHT
    static constexpr int rounds(int n) { return n - 1; }
#endif
    static constexpr colls::step at(int rank, int n, int round) {
        if (rank == round) return {.send = {rank + 1, colls::block(0)}};
        if (rank == round + 1 && rank < n) return {.recv = {round, colls::block(0)}};
        return {};
    }
};
int main() { return colls::testing::check_schedule<to_the_right>(8).ok ? 0 : 1; }
