// expect: so do calls by colls::exact on numbers that are started or prepared
#include <colls/colls.hpp>
#include <colls/exact.hpp>
#include <colls/transports/threads.hpp>

#include <span>

void call(colls::threads::communicator& comm, std::span<float> x) {
#ifdef RIGHT
    colls::all_reduce<colls::ring>(comm, x, colls::exact);
#else
    colls::start::all_reduce<colls::ring>(comm, x, colls::exact).wait();
#endif
}
