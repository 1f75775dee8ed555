// expect: colls: this is not a schedule: it needs
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

struct mine {
    static constexpr colls::collective implements = colls::collective::broadcast;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int, int round) {
        colls::step s;
        if (rank == round) s.send = {rank + 1, colls::block(0)};
        if (rank == round + 1) s.recv = {rank - 1, colls::block(0)};
        return s;
    }
};
struct lacking {
    static constexpr colls::collective implements = colls::collective::broadcast;
    static constexpr colls::step at(int, int, int) { return {}; }
};
void call(colls::threads::communicator& comm, std::span<int> x) {
#ifdef RIGHT
    colls::broadcast<mine>(comm, x, 0);
#else
    colls::broadcast<lacking>(comm, x, 0);
#endif
}
