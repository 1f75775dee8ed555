// What differs between the transports behind a rank context.
//
// A transport does not implement this itself: it implements extend::memory_group or extend::message_group, and
// shared_memory_backend and messaging_backend adapt those.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/wait_site.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/extend/machine.hpp>

#include <memory>

namespace colls::inline v1::extend {
class memory_group;
class message_group;
struct message_member;
}  // namespace colls::inline v1::extend

namespace colls::inline v1::detail {

using extend::machine;

struct rank_context;

class group_backend {
public:
    virtual ~group_backend() = default;

    // What a rank does about peers that fail, and tells them about itself.

    /// Called now and then while a rank waits (`at`, for `seconds` so far; null outside of waits): finds ranks that
    /// have died, and passes on what other ranks should know.
    virtual void look(rank_context&, const wait_site* /*at*/, double /*seconds*/) {}
    /// Is the rank known to be dead? False for a rank that is only slow.
    virtual bool dead(int /*rank*/) const { return false; }
    /// This rank has just broken the group: tells the others.
    virtual void broke(rank_context&) {}
    /// This rank leaves a call by an error: its buffers are not touched afterwards.
    virtual void abandon(rank_context&) {}
    /// This rank has refused a call, or has made it by now, as its refusal_state says. Ranks that share memory read it
    /// there; others are told.
    virtual void refused(rank_context&) {}
    /// This rank shrinks the group of that number and makes no call of this group meanwhile; 0: it is back. Ranks that
    /// share memory read rank_state::away; others are told.
    virtual void absent(rank_context&, std::uint64_t /*group*/) {}
    /// Asks the others where they wait, for a dump: they answer in rank_state::waits, within the seconds that this
    /// returns. Ranks that share memory say so there unasked.
    virtual double ask_for_waits(rank_context&) { return 0; }
    /// This rank leaves the group. Memory that was allocated may stay in use.
    virtual void close() {}

    // Memory that the group's ranks can reach, as extend::memory_group says: allocate, deallocate, populate,
    // retire_memory.

    virtual std::byte* take(std::size_t bytes) = 0;  ///< throws std::bad_alloc
    virtual std::byte* take_for_program(std::size_t bytes) { return take(bytes); }
    virtual void give(std::byte* at, std::size_t bytes) noexcept = 0;
    virtual void give_after(std::byte* at, std::size_t bytes, std::uint64_t /*operations*/) { give(at, bytes); }
    virtual void populate(std::byte* /*at*/, std::size_t /*bytes*/) {}
    virtual void pin() {}

    // How new groups are made of this one.

    /// A place for a group of n ranks: one rank makes it, and tells the others its number.
    virtual std::uint64_t create(int n) = 0;
    /// The context of rank `rank` of that group; members[i] is the rank in this group of the new group's rank i.
    virtual std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const list<int>& members) = 0;
    /// The place is not used.
    virtual void discard(std::uint64_t place, int n) = 0;
    /// The ranks that still call, as a group of their own.
    virtual std::unique_ptr<rank_context> shrink(rank_context& from) = 0;

    // What runs the group's operations, and what waits and searches for senders need where ranks pass messages.

    /// The executor of collectives (execute/executor.hpp), and that of messages (execute/operation_state.hpp).
    virtual std::unique_ptr<pending> make_collective(rank_context&) = 0;
    virtual std::unique_ptr<pending> make_message(rank_context&) = 0;
    /// Would the next collective begin without waiting for other ranks?
    virtual bool has_room(rank_context&) { return true; }
    /// Sleeps until a message may have come, for a short while at most.
    virtual void sleep(rank_context&) {}
    /// From now on ranks announce each message to this rank, also those already begun.
    virtual void ask_for_messages(rank_context&) {}
    /// Has the rank announced its next message to this rank?
    virtual bool announced(rank_context&, int rank) = 0;

    /// What predictions are made from: the same for all ranks of the group.
    virtual const machine& figures() = 0;
    /// This rank's part of a group that passes messages; null where ranks share memory.
    virtual extend::message_group* by_messages() { return nullptr; }
    /// Where there is one: transports of this rank at a place for a group of the same ranks.
    virtual void join_transports(rank_context&, std::uint64_t /*place*/, extend::message_member&) {}
    /// This rank's part of a group that shares memory; null where ranks pass messages.
    virtual extend::memory_group* by_memory() { return nullptr; }
};

/// Memory of a group outlives it where it is still in use, and with it the backend.
using shared_backend = std::shared_ptr<group_backend>;

}  // namespace colls::inline v1::detail
