// One rank's part in groups of ranks that pass messages: what a transport implements, with message_transport.
#pragma once

#include <colls/detail/backend/join.hpp>
#include <colls/error.hpp>
#include <colls/extend/formation.hpp>
#include <colls/extend/host_map.hpp>
#include <colls/extend/machine.hpp>
#include <colls/extend/message_transport.hpp>

#include <cstddef>
#include <memory>
#include <new>

namespace colls::inline v1::extend {

class message_group;

/// What a rank brings into a group.
struct message_member {
    std::shared_ptr<message_group> group;  ///< this rank's part, shared with its allocated memory
    /// Carries collectives. Its peers are those of `messages`; their orders are independent, so messages of one
    /// transport must not wait for messages of the other.
    std::unique_ptr<message_transport> collectives;
    std::unique_ptr<message_transport> messages;  ///< carries send and recv
    bool crowded = false;      ///< more ranks than cores on some host: waits yield; the same on all ranks
    std::uint64_t number = 0;  ///< equal on the group's ranks, different for each group of a process; 0: it has none
    bool advances_others = false;  ///< waits in this group also advance the thread's other groups that say so
    host_map hosts{};  ///< where there are several hosts, and one of them has several ranks: which ranks share one
};

/// A new group of ranks that pass messages.
class message_formation : public formation {
public:
    /// For a transport whose members must agree on something before they have transports: every member's `bytes` bytes
    /// (at most 56) go to `all`, in rank order, by a group over the transports of `over`, which it closes. Collective
    /// over the members. Throws colls::error, also where the present group breaks meanwhile.
    virtual void exchange(message_member&& over, const void* own, std::size_t bytes, void* all) const = 0;
    /// After an error of `exchange`: true in a shrink, whose members cannot do without the new group. Form it by
    /// transports that need no agreement, and that the others hear, whether their exchange has failed or not: it is
    /// broken, with that error, and its members shrink it in turn. False: let the error through.
    virtual bool forms_broken(const error& why) const = 0;

protected:
    /// For the library.
    explicit message_formation(const formation& f) : formation(f) {}
    ~message_formation() = default;
};

/// One rank's part of a group, for as long as the rank is a member or has memory from `allocate`.
class message_group {
public:
    virtual ~message_group() = default;

    /// Makes a place for a group of `size` of this group's ranks, and returns its number, which the library tells the
    /// others. One rank calls it. A number that all of them can derive the connection from will do.
    virtual std::uint64_t create(int size) = 0;
    /// Joins that group. Every member calls it, at about the same time. It may throw.
    virtual message_member join(const message_formation& f) = 0;
    /// The place is not used: another rank's was chosen.
    virtual void discard(std::uint64_t /*place*/, int /*size*/) {}
    /// Called now and then while this rank waits in the group: serves what the process has beside the group's
    /// transports, and peers may wait for. Never waits.
    virtual void look() {}
    /// This rank leaves the group: called once, after its transports have been destroyed.
    virtual void close() {}
    /// Null where ranks that remain after a failure can form a group; else what to do instead, for an error.
    virtual const char* cannot_shrink() const { return nullptr; }
    /// Another group of the same ranks, which outlives failures that this one's transports do not: what breaks it
    /// breaks this one, and it is shrunk instead. communicator::context() of it; null: there is none.
    virtual detail::rank_context* spare() const { return nullptr; }

    /// What predictions are made from: the same on all ranks of the group.
    virtual const machine& figures() const = 0;
    /// Memory from which messages go best, aligned to 128 bytes: communicator::allocate. Throws std::bad_alloc.
    virtual std::byte* allocate(std::size_t bytes) { return static_cast<std::byte*>(operator new(bytes, alignment)); }
    /// Takes back what `allocate` returned for as many bytes.
    virtual void deallocate(std::byte* at, std::size_t /*bytes*/) noexcept { operator delete(at, alignment); }

private:
    static constexpr std::align_val_t alignment{128};
};

}  // namespace colls::inline v1::extend
