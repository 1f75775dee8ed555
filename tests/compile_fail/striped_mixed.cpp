// Lanes of different collectives.
// expect: colls: striped<S...>: all lanes must implement one collective
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/ring.hpp>

#ifdef RIGHT
using lane = colls::ring::broadcast;
#else
using lane = colls::ring::reduce_scatter;
#endif
constexpr colls::striped<colls::ring::broadcast, lane> lanes{};
