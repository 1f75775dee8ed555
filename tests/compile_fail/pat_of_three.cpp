// expect: colls: pat<A>: the aggregation A is a power of two
#include <colls/schedules/pat.hpp>

#ifdef RIGHT
template struct colls::pat<4>;
#else
template struct colls::pat<3>;
#endif
