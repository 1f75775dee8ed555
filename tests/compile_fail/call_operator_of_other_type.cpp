// expect: colls: this operator does not take this element type
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

struct point {
    int x, y;
};
void call(colls::threads::communicator& comm, std::span<point> x) {
#ifdef RIGHT
    colls::all_reduce(comm, x, [](point a, point b) { return point{a.x + b.x, a.y + b.y}; });
#else
    colls::all_reduce(comm, x, [](int a, int b) { return a + b; });
#endif
}
