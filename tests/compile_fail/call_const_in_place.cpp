// expect: colls: the output buffer is const
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <vector>

#ifdef RIGHT
using buffer = std::vector<float>;
#else
using buffer = const std::vector<float>;
#endif
void call(colls::communicator& comm, buffer& x) { colls::all_reduce(comm, x, colls::sum); }
