// expect: colls: this schedule implements another collective
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

void call(colls::threads::communicator& comm, std::span<int> x) {
#ifdef RIGHT
    colls::all_reduce<colls::ring>(comm, x, colls::sum);
#else
    colls::all_reduce<colls::direct::all_to_all>(comm, x, colls::sum);
#endif
}
