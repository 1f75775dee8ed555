// expect: colls: this operator is a function: pass its address, &f
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <vector>

float larger(float a, float b);
void call(colls::communicator& comm, std::vector<float>& x) {
#ifdef RIGHT
    colls::all_reduce(comm, x, &larger);
#else
    colls::all_reduce(comm, x, larger);
#endif
}
