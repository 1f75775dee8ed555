// expect: colls: (the output buffer is const|input and output must be of one element type)
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

#ifdef RIGHT
using element = int;
#else
using element = const int;
#endif
void call(colls::threads::communicator& comm, std::span<const int> in, std::span<element> out) {
    colls::all_gather(comm, in, out);
}
