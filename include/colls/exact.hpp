// Sums whose bits depend on nothing but the multiset of the addends: not on their order, the number of ranks, which
// rank holds which, the schedule, the transport, or the processor's vectors.
//
//     colls::exact_sum<float> total;                              // exact_sum.hpp: without any rounding
//     total.add(my_values);
//     colls::all_reduce(comm, std::span(&total, 1), colls::exact);
//
//     colls::all_reduce(comm, gradients, colls::exact);           // exact_all_reduce.hpp: buffers of numbers
//
// Numbers are float, double, colls::bfloat16 and colls::half. One answer each:
//   a NaN, or +inf and -inf   the quiet NaN without sign or payload
//   infinities of one sign    that infinity
//   zero                      +0, also of addends that are all -0
//   beyond T's range          infinity; partial sums may be beyond it
//   subnormals                as any number, also where the processor flushes them
//
// Rounding: an exact_sum rounds once, in value(): to nearest, ties to even. A call on a buffer of numbers adds k
// numbers other than zero, the greatest below 2^(e+1) in magnitude, with an error below
//   float, bfloat16   k * 2^-44 * 2^(e+1)
//   double            k * 2^-87 * 2^(e+1)
//   half              none
// and rounds the result once. Addends within 19 binades of the greatest (bfloat16 35, double 33) have no error.
//
// Costs. On up to 32 ranks (reduce: 4), without a schedule, and where they are started or prepared, calls are as plain
// ones with colls::reproducible. With a schedule, and on more ranks, all_reduce moves 1.75 of the bytes, in three
// calls; reduce and reduce_scatter an all_reduce of 1 byte a number (double 2) and their integers of 8 (16). Each of
// these allocates memory of 9 bytes a number (double 18), which exact_all_reduce keeps. An exact_sum is 56 bytes
// (double 280).
#pragma once

#include <colls/exact/exact_all_reduce.hpp>
#include <colls/exact/exact_sum.hpp>
