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
struct engine;

/// A rank of a group, and what is behind its calls, which the group's maker has compiled.
struct rank_handle {
    rank_context* self = nullptr;  ///< null: of no group
    const engine* by = nullptr;
};
/// What is behind the calls of groups that are made where it is called.
const engine& own_engine();

/// What a communicator is made of: of no group by default.
struct joined_group {
    rank_handle handle{};
    int rank = -1, size = 0;
};
joined_group join_by_memory(extend::memory_member&& member, int rank, int size);
joined_group join_by_messages(extend::message_member&& member, int rank, int size);
/// message_formation::exchange.
void exchange_by_messages(extend::message_member&& over, int rank, int size, rank_context* from, double timeout,
    const void* own, std::size_t bytes, void* all);

}  // namespace detail
}  // namespace colls::inline v1
