// expect: colls: this buffer is a temporary, and a started or prepared call uses its buffers after the statement
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>
#include <vector>

void call(colls::communicator& comm, std::vector<float>& x) {
#ifdef RIGHT
    const std::vector<float> in(4);
    auto plan = colls::prepare::all_gather(comm, in, x);
#else
    auto plan = colls::prepare::all_gather(comm, std::vector<float>(4), x);
#endif
    plan.run();
}
