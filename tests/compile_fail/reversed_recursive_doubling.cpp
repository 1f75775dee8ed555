// An all_reduce that is not a composition loses information when it is reversed.
// expect: colls: reversed<S>: S implements an all_reduce that is not a composition, or a scan, or uses scratch slots
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>

#ifdef RIGHT
using forth = colls::schedule_for<colls::ring, colls::collective::all_reduce>;
#else
using forth = colls::recursive_doubling::all_reduce;
#endif
constexpr colls::reversed<forth> back{};
