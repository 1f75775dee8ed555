// expect: colls: a buffer is a contiguous range, such as std::vector, std::array or std::span
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <array>

void call(colls::communicator& comm) {
    std::array all{1.0f, 2.0f};
#ifdef RIGHT
    colls::all_reduce(comm, all, colls::sum);
#else
    colls::all_reduce(comm, {1.0f, 2.0f}, colls::sum);
#endif
}
