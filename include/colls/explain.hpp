// What `automatic` would do, and why.
#pragma once

#include <colls/cost.hpp>
#include <colls/operation.hpp>

#include <string>

namespace colls::inline v1 {
namespace detail {

// Templates, so that they, and with them every family, are compiled only where they are called.
template <int>
std::string explanation(const rank_context& e, collective what, std::size_t bytes);
template <int>
std::string_view choice(const rank_context& e, collective what, std::size_t bytes);
model felt_model(const rank_context& e);

}  // namespace detail

/// The machine as this group's ranks feel it, measured once in the process: for cost_of<S>(n).seconds(model, bytes).
template <class Comm>
model model_of(Comm& comm) {
    return detail::felt_model(comm.context());
}

/// The name of the schedule that `automatic` takes for a collective of `bytes` bytes in comm's group; or "eager path".
template <class Comm>
std::string chosen(Comm& comm, collective what, std::size_t bytes) {
    return std::string(detail::choice<0>(comm.context(), what, bytes));
}

/// A table of the schedules that `automatic` weighs for a collective of `bytes` bytes (of the larger buffer) in comm's
/// group, with rounds, bytes sent by the busiest rank, chunk and predicted time. Not collective.
template <class Comm>
std::string explain(Comm& comm, collective what, std::size_t bytes) {
    return detail::explanation<0>(comm.context(), what, bytes);
}

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/choose/explanation.hpp>
#endif
