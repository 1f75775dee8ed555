// expect: colls: reversed<S>: S implements an all_reduce that is not a composition, or a scan, or uses scratch slots
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/ring.hpp>

#ifdef RIGHT
using forth = colls::ring::broadcast;
#else
using forth = colls::ring::inclusive_scan;
#endif
constexpr colls::reversed<forth> back{};
