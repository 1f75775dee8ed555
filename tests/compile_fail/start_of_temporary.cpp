// expect: colls: this buffer is a temporary, and a started or prepared call uses its buffers after the statement
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>
#include <vector>

void call(colls::communicator& comm, std::vector<float>& x) {
#ifdef RIGHT
    auto started = colls::start::all_reduce(comm, std::span(x), colls::sum);
#else
    auto started = colls::start::all_reduce(comm, std::vector<float>(x), colls::sum);
#endif
    started.wait();
}
