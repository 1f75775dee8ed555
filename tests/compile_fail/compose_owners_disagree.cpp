// The first half leaves block b at rank b + 1, the second expects it at rank b.
// expect: colls: compose<A, B>: A and B disagree on the owners
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/ring.hpp>

struct shifted_reduce_scatter : colls::ring::reduce_scatter {
    static constexpr int home(int n, int slot) { return colls::mod(slot + 1, n); }
};
#ifdef RIGHT
using first = colls::ring::reduce_scatter;
#else
using first = shifted_reduce_scatter;
#endif
using both = colls::compose<first, colls::reversed<colls::ring::reduce_scatter>>;
static_assert(both::implements == colls::collective::all_reduce);
