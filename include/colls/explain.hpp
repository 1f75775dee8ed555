// What `automatic` would choose in a group, and why.
#pragma once

#include <colls/automatic.hpp>
#include <colls/cost.hpp>
#include <colls/detail/perform/interface.hpp>

#include <string>
#include <type_traits>

namespace colls::inline v1 {

/// The figures of the machine from which `automatic` predicts in comm's group, for use as cost_of<S>(n).seconds(model,
/// bytes): seconds a round, seconds a byte sent and seconds a byte reduced. Where ranks outnumber cores, each figure
/// grows with the ranks per core. They are measured at most once in a process, in a few milliseconds. Not collective.
template <class Comm>
model model_of(Comm& comm) {
    return comm.handle().by->model_of(comm.context());
}

/// The name of the schedule that `automatic` takes for a collective of `bytes` bytes in comm's group, with an operator
/// that commutes: a family's name, or "eager" for the eager path of small messages. `bytes` are those of the larger of
/// the two buffers, over all blocks. Not collective, and the same on all ranks. Throws errc::invalid_argument where
/// COLLS_SCHEDULE names no schedule. `Constraint`: colls::reproducible, as that of the call; or automatic. On
/// hosts of different sizes the choice depends on the root: this is the one for root 0. Of eager calls that post 1 KB
/// or more, one in 128 goes by a schedule, to tell the distance of the cores. A short gather or scatter is eager, too.
template <class Constraint = automatic, class Comm>
std::string chosen(Comm& comm, collective what, std::size_t bytes) {
    return comm.handle().by->chosen(comm.context(), what, bytes, std::is_same_v<Constraint, reproducible>);
}

/// A table of the schedules that `automatic` weighs for such a call, one a line, with rounds, bytes sent by the busiest
/// rank, bytes of a block in a chunk, and predicted microseconds, and in a group on several hosts the rounds in which
/// messages go between them; the one that `chosen` names is marked "<- chosen",
/// those that `Constraint` excludes "not reproducible", and those that have too many rounds or peers for the group to
/// be counted or planned "not weighed". Not collective. Throws as `chosen` does.
template <class Constraint = automatic, class Comm>
std::string explain(Comm& comm, collective what, std::size_t bytes) {
    return comm.handle().by->explain(comm.context(), what, bytes, std::is_same_v<Constraint, reproducible>);
}

}  // namespace colls::inline v1
