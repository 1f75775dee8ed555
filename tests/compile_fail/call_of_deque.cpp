// expect: colls: a buffer is a contiguous range, such as std::vector, std::array or std::span
// errors: 1
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <deque>
#include <vector>

#ifdef RIGHT
using buffer = std::vector<float>;
#else
using buffer = std::deque<float>;
#endif
void call(colls::communicator& comm, const buffer& in, std::vector<float>& out) { colls::all_gather(comm, in, out); }
