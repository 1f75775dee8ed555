// verify() and cost_of() report it in words, too.
// expect: colls: this is not a schedule: it needs .*const or static
// errors: 1
#include <colls/cost.hpp>
#include <colls/verify.hpp>

struct to_the_right {
    static constexpr colls::collective implements = colls::collective::broadcast;
    static constexpr int rounds(int n) { return n - 1; }
#ifdef RIGHT
    static
#endif
        constexpr colls::step
        at(int rank, int, int round) {
        colls::step s;
        if (rank == round) s.send = {rank + 1, colls::block(0)};
        if (rank == round + 1) s.recv = {rank - 1, colls::block(0)};
        return s;
    }
};
static_assert(colls::verify<to_the_right>(8).n >= 0 && colls::cost_of<to_the_right>(8).rounds >= 0);
