// expect: colls: with colls::reproducible all elements must have one fold expression, and this schedule
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>
#include <vector>

void call(colls::threads::communicator& comm, const std::vector<float>& in, std::vector<float>& out) {
#ifdef RIGHT
    colls::start::reduce_scatter<colls::direct>(comm, in, out, colls::sum, colls::reproducible{}).wait();
#else
    colls::start::reduce_scatter(comm, in, out, colls::sum, colls::circulant<>{}, colls::reproducible{}).wait();
#endif
}
