// A schedule is read through a const reference, so that an `at` that is neither const nor static does not count.
// expect: colls: this is not a schedule: it needs .*const or static
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

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
void call(colls::threads::communicator& comm, std::span<int> x) { colls::broadcast<to_the_right>(comm, x, 0); }
