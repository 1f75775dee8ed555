// What a call may say in the place of a schedule: automatic, the default, and reproducible.
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1 {

/// As the schedule of a call: the library chooses among its families, from the predicted time at this group size, this
/// number of bytes and this machine (see explain.hpp for what it chooses, and why). All ranks of a group choose alike.
/// COLLS_SCHEDULE=name forces the choice where that family has the collective at this group size. COLLS_REPRODUCIBLE=1
/// restricts it to schedules of a single fold (reproducible).
struct automatic {};

/// A constraint on calls that reduce: the bits of each element of a result depend on the ranks' contributions to that
/// element, their number, the operator and the schedule, and on nothing else. They do not depend on the count, the
/// place of the element in the buffer, the number of calls (buckets) that data are cut into, the transport, the hosts,
/// whether memory is from allocate(), or whether the call is in place, blocking, started or prepared.
///
///     colls::all_reduce<colls::reproducible>(comm, x, colls::sum);
///         The library chooses, but only among schedules that fold the contributions of all ranks at once, in rank
///         order (fold_properties::single_fold). So all such calls with one operator give the bits of one serial loop
///         over the ranks, whatever is chosen; they are the same for all_reduce, reduce to any root, reduce_scatter and
///         reduce_scatter_v, and those of rank n - 1 in a scan. COLLS_REPRODUCIBLE=1 makes every call so that names no
///         schedule. Ranks that differ in this make different calls: errc::mismatch.
///
///     colls::all_reduce<colls::tree<2>>(comm, x, colls::sum, colls::reproducible{});
///     colls::all_reduce(comm, x, colls::sum, my_schedule, colls::reproducible{});
///         A call that names a schedule has that schedule's fold expression, with the constraint or without. The
///         constraint checks that this is one expression for all elements and ranks (fold_properties::one_expression),
///         which is found by the proof. If not, it is a compile error where the type of the schedule says so at 2 to 8
///         ranks, and else, at the number of ranks of the call, errc::unsupported. The bits are not those of another
///         schedule, and reduce to another root may fold in another order (that of the ranks relative to the root).
///
/// Types that accumulate in a wider one, such as bfloat16, are rounded once a fold. Not promised: the sign and payload
/// of a NaN, and anything in programs compiled with -ffast-math. Operators must be functions of their operands. It
/// costs what the chosen schedule costs (see explain<colls::reproducible>); where nothing is reduced it changes
/// nothing.
struct reproducible {};

}  // namespace colls::inline v1
