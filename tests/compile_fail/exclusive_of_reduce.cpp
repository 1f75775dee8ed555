// expect: colls: exclusive<S>: S must implement inclusive_scan
#include <colls/algebra/exclusive.hpp>
#include <colls/schedules/ring.hpp>

#ifdef RIGHT
using scan = colls::exclusive<colls::ring::inclusive_scan>;
#else
using scan = colls::exclusive<colls::ring::reduce_scatter>;
#endif
static_assert(scan{}.rounds(4) == 3);
