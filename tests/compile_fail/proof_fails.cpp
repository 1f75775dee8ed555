// A reduce-scatter that sends block `rank` in place of `to`: rank 0 receives the wrong block in round 0.
// clang-format off
// expect: law_broken<.*law::unmixed>.*group_of<2>.*in_round<0>.*at_rank<0>.*on_port<0>.*block<0>.*peer<1>.*peer_block<1>
// clang-format on
// within: 1
// errors: 1
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
