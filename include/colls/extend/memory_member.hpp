// One rank's part in groups of ranks that load from and store to each other's memory: what a transport implements.
#pragma once

#include <colls/extend/formation.hpp>
#include <colls/extend/machine.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace colls::inline v1::extend {

class memory_group;

/// What a rank brings into a group.
struct memory_member {
    std::shared_ptr<memory_group> group;  ///< this rank's part, shared with its allocated memory
    /// control_bytes(size) bytes that all ranks share, aligned to 128; zero before the first rank joins.
    std::byte* control = nullptr;
    /// Memory that all ranks share, perhaps at different addresses: `control` and what `allocate` returns are in it.
    /// Null: ranks share their whole address space, as threads do.
    std::byte* base = nullptr;
    std::size_t bytes = 0;  ///< of the memory at `base`
    /// The kernel can copy between the processes of any two ranks (process_vm_readv and process_vm_writev). The same on
    /// all ranks, as are the next three.
    bool copies_between = false;
    bool copies_always = false;  ///< it must, for what is not reduced; else the library decides by distance and size
    // What was measured when `figures` were. Near and far cores differ in both.
    bool copies_faster = false;  ///< the kernel copies faster than data pass through that memory
    bool streams = false;        ///< data that pass through that memory are best stored there past the caches
    bool crowded = false;        ///< more ranks than cores: waits yield; the same on all ranks
    std::uint64_t number = 0;    ///< equal on the group's ranks, different for each group of a process; 0: it has none
};

/// One rank's part of a group, for as long as the rank is a member or has memory from `allocate`.
class memory_group {
public:
    virtual ~memory_group() = default;

    /// Makes a place for a group of `size` of this group's ranks, and returns its number, which the library tells the
    /// others. One rank calls it.
    virtual std::uint64_t create(int size) = 0;
    /// Joins that group. Every member calls it. It may throw.
    virtual memory_member join(const formation& f) = 0;
    /// The place is not used: another rank's was chosen.
    virtual void discard(std::uint64_t place, int size) = 0;

    /// Called now and then while a rank waits: finds out which ranks have died. Not called where `base` is null.
    virtual void look() {}
    /// Is the rank known to be dead? The group breaks where it had not left. Not called where `base` is null.
    virtual bool dead(int /*rank*/) const { return false; }

    /// What predictions are made from: the same on all ranks of the group.
    virtual const machine& figures() const = 0;
    /// Memory that the group's ranks can reach, aligned to 128 bytes. Throws std::bad_alloc.
    virtual std::byte* allocate(std::size_t bytes) = 0;
    /// Takes back what `allocate` returned for as many bytes.
    virtual void deallocate(std::byte* at, std::size_t bytes) noexcept = 0;
    /// The same, but other ranks may still read it: until each of them has_completed() this many operations, or
    /// has_left(), or is dead. This rank is about to leave. By default it is never allocated again.
    virtual void deallocate_after(std::byte* /*at*/, std::size_t /*bytes*/, std::uint64_t /*operations*/) {}
    /// Memory that was allocated is about to be used as a whole: asks the system for its pages, where that is of use.
    virtual void populate(std::byte* /*at*/, std::size_t /*bytes*/) {}
    /// A rank that does not answer may yet write into this rank's memory: what is deallocated from now on must not be
    /// allocated again.
    virtual void retire_memory() {}

    // A shrink that leaves out a rank that may yet write, see docs/error_handling.md. By default nothing is done.
    /// As `allocate`, for communicator::allocate: memory that `withdraw` moves.
    virtual std::byte* allocate_for_program(std::size_t bytes) { return allocate(bytes); }
    /// Are this group's ranks among those of another group of the same memory?
    virtual bool is_within(const memory_group& /*other*/) const { return true; }
    /// Moves what allocate_for_program has returned, at the same addresses, to where only this group's ranks see it,
    /// once they `follow`. False: it is where it was.
    virtual bool withdraw() { return false; }
    /// Sees such memory of that rank of this group where the rank has moved it to. False: it cannot.
    virtual bool follow(int /*rank*/) { return true; }
    /// What memory_member::bytes is now: 0 where other ranks of this group do not see such memory of this rank.
    virtual std::size_t reach() const { return ~std::size_t{0}; }
};

}  // namespace colls::inline v1::extend
