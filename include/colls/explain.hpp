// What `automatic` would do, and why.
#pragma once

#include <colls/cost.hpp>
#include <colls/perform.hpp>

#include <string>

namespace colls::inline v1 {
namespace detail {

// Templates, so that they, and with them every family, are compiled only where they are called.
template <int>
std::string explanation(const endpoint& e, collective what, std::size_t bytes);
template <int>
std::string_view choice(const endpoint& e, collective what, std::size_t bytes);
model felt_model(const endpoint& e);

}  // namespace detail

/// The machine as this group's ranks feel it, measured once in the process: for cost_of<S>(n).seconds(model, bytes).
template <class Comm>
model model_of(Comm& comm) {
    return detail::felt_model(comm.endpoint());
}

/// The name of the schedule that `automatic` takes for a collective of `bytes` bytes in comm's group; or "mailbox".
template <class Comm>
std::string chosen(Comm& comm, collective what, std::size_t bytes) {
    return std::string(detail::choice<0>(comm.endpoint(), what, bytes));
}

/// A table of the schedules that `automatic` weighs for a collective of `bytes` bytes (of the larger buffer) in comm's
/// group, with rounds, bytes sent by the busiest rank, chunk and predicted time. Not collective.
template <class Comm>
std::string explain(Comm& comm, collective what, std::size_t bytes) {
    return detail::explanation<0>(comm.endpoint(), what, bytes);
}

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/engine/explain.hpp>
#endif
