// A scan depends on the order of ranks.
// expect: colls: permuted<S, Mapping>: a scan goes in the order of ranks and cannot be permuted
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/ring.hpp>

#ifdef RIGHT
using inner = colls::ring::broadcast;
#else
using inner = colls::ring::inclusive_scan;
#endif
constexpr colls::permuted<inner, colls::mirror> turned{};
