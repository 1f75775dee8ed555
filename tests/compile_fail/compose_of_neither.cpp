// A number is not a schedule.
// expect: colls: compose<A, B>: A and B must be schedules or families
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/ring.hpp>

#ifdef RIGHT
using second = colls::ring;
#else
using second = int;
#endif
constexpr colls::compose<colls::ring, second> both{};
