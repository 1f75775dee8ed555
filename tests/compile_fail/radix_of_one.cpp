// expect: colls: tree<K>: the radix K is at least 2
// expect: colls: bruck<K>: the radix K is at least 2
// expect: colls: recursive_multiplying<K>: the radix K is at least 2
#include <colls/schedules/bruck.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/tree.hpp>

#ifdef RIGHT
inline constexpr int radix = 2;
#else
inline constexpr int radix = 1;
#endif
template struct colls::tree<radix>;
template struct colls::bruck<radix>;
template struct colls::recursive_multiplying<radix>;
