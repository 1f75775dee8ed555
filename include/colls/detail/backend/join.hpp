// How a rank joins a group: declarations, for communicators.
// IWYU pragma: private
#pragma once

#include <cstddef>

namespace colls::inline v1 {

namespace extend {
struct memory_member;
struct message_member;
}  // namespace extend

namespace detail {

struct rank_context;

/// What a communicator is made of: of no group by default.
struct joined_group {
    rank_context* self = nullptr;
    int rank = -1, size = 0;
};
joined_group join_by_memory(extend::memory_member&& member, int rank, int size);
joined_group join_by_messages(extend::message_member&& member, int rank, int size);
/// message_formation::exchange.
void exchange_by_messages(extend::message_member&& over, int rank, int size, rank_context* from, const void* own,
    std::size_t bytes, void* all);

}  // namespace detail
}  // namespace colls::inline v1
