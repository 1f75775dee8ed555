// What backends need of the calls: communicators of a rank context, and exchanges while a group is formed.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/rank_context.hpp>

namespace colls::inline v1 {

class communicator;

namespace detail {

/// The communicator of a rank context; of no group where it is null.
communicator communicator_over(std::unique_ptr<rank_context> e);
}  // namespace detail
}  // namespace colls::inline v1
