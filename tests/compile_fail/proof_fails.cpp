// The reduce-scatter that sends block `rank` where `to` belongs: rank 0 hears of the wrong block in round 0.
// expect: colls: the schedule breaks a law
// expect: law_broken<.*law.*group_of<[0-9]+>
#include <colls/verify.hpp>

struct pairwise {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
#ifdef RIGHT
        const int sent = to;
#else
        const int sent = rank;
#endif
        return {.send = {to, colls::block(sent)}, .recv = {from, colls::block(rank), colls::action::reduce}};
    }
};
static_assert(colls::prove<pairwise, 8>());
