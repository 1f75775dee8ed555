// expect: colls: a buffer is a contiguous range, .* for a pointer and a count write std::span\(p, n\)
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

void call(colls::communicator& comm, float* p, std::size_t n) {
#ifdef RIGHT
    colls::all_reduce(comm, std::span(p, n), colls::sum);
#else
    colls::all_reduce(comm, p, n, colls::sum);
#endif
}
