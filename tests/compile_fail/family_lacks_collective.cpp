// bruck has no scan, and none can be derived.
// expect: colls: schedule_of<C>\(f\): f names no schedule for this collective, and none can be derived
// errors: 1
#include <colls/family.hpp>
#include <colls/schedules/bruck.hpp>
#include <colls/schedules/direct.hpp>

#ifdef RIGHT
using asked = colls::direct;
#else
using asked = colls::bruck<>;
#endif
constexpr auto scan = colls::schedule_of<colls::collective::inclusive_scan>(asked{});
