// expect: colls: pat<A>: the aggregation A is a power of two
// errors: 1
#include <colls/schedules/pat.hpp>

#ifdef RIGHT
constexpr int aggregation = 4;
#else
constexpr int aggregation = 3;
#endif
constexpr colls::pat<aggregation> pat{};
