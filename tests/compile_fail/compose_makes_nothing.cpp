// A gather leaves all blocks at the root, where an all_gather cannot continue.
// expect: colls: compose<A, B>: no collective is made of what A implements followed by what B implements
// errors: 1
#include <colls/algebra.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/tree.hpp>

using gather = colls::reversed<colls::tree<>::scatter>;
using all_gather = colls::reversed<colls::ring::reduce_scatter>;
#ifdef RIGHT
using second = colls::tree<>::broadcast;
#else
using second = all_gather;
#endif
constexpr colls::compose<gather, second> both{};
