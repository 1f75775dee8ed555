// expect: colls: a buffer is a contiguous range, such as std::vector, std::array or std::span
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

void call(colls::communicator& comm, float x) {
#ifdef RIGHT
    colls::all_reduce(comm, std::span(&x, 1), colls::sum);
#else
    colls::all_reduce(comm, x, colls::sum);
#endif
}
