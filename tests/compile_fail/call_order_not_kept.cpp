// expect: colls: this operator is not known to commute, and this schedule does not keep the order of ranks
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

void call(colls::threads::communicator& comm, std::span<int> x) {
    const auto op = [](int a, int b) { return a + b; };
#ifdef RIGHT
    colls::all_reduce<colls::ring>(comm, x, colls::commutative(op));
    colls::all_reduce<colls::direct>(comm, x, op);
#else
    colls::all_reduce<colls::ring>(comm, x, op);
#endif
}
