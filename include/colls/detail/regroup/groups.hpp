// What the transports' engines need of the calls' one: communicators over an end, and how groups come out of groups.
#pragma once

#include <colls/detail/group/backoff.hpp>

namespace colls::inline v1 {

class communicator;

namespace detail {

/// The communicator of an end; of no group where there is none.
communicator communicator_over(std::unique_ptr<rank_context> e);
/// Every rank's `bytes` bytes, at most 56, in rank order.
void exchange(rank_context& e, const void* own, std::size_t bytes, void* all);
/// A group of the ranks that still call, where ranks share memory.
std::unique_ptr<rank_context> shrink_shared(rank_context& e);

}  // namespace detail
}  // namespace colls::inline v1
