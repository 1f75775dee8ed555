// What backends need of the calls: communicators of a rank context, and exchanges while a group is formed.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/rank_context.hpp>

namespace colls::inline v1 {

class communicator;

namespace detail {

/// The communicator of a rank context; of no group where it is null.
communicator communicator_over(std::unique_ptr<rank_context> e);
/// Every rank's `bytes` bytes, at most 56, to `all` on every rank, in rank order. Collective.
void exchange(rank_context& e, const void* own, std::size_t bytes, void* all);
/// A group of the ranks that still call, where ranks share memory. Collective over those ranks.
std::unique_ptr<rank_context> shrink_shared(rank_context& e);

}  // namespace detail
}  // namespace colls::inline v1
