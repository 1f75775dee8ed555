// The operations of a rank, in flight and idle, and the memory that they stage in.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/group_backend.hpp>
#include <colls/detail/group/group_memory.hpp>
#include <colls/detail/group/thread_gate.hpp>
#include <colls/detail/group/wait_site.hpp>
#include <colls/detail/support/list.hpp>

#include <memory>
#include <vector>

namespace colls::inline v1::detail {

struct rank_operations {
    list<pending*> in_flight;
    std::shared_ptr<group_cycle> cycle = std::make_shared<group_cycle>();
    const pending* current = nullptr;                                       ///< what is waited for
    std::vector<std::unique_ptr<pending>> idle_collectives, idle_messages;  ///< to be used again

    bool only_these() const { return cycle->in_flight == in_flight.size(); }
    void start(pending& o) {
        in_flight.push_back(&o);
        ++cycle->in_flight;
    }
    /// The i-th in flight is over, or its caller takes it back.
    void drop(std::size_t i) {
        in_flight.drop(i);
        --cycle->in_flight;
    }
};

struct memory_piece {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    bool populated = false;  ///< the system has been asked for its pages
};

/// Where a rank stages. What an operation has staged stays there for peers that have yet to read it, while the rank
/// goes on: memory is written again when all ranks have completed the operation that wrote it last. Positions only
/// grow; that of a byte is its offset in the memory plus a multiple of the memory's size.
struct staging_ring {
    struct use {
        std::uint64_t operation, begin;  ///< 1 + its sequence, its first position
    };
    memory_piece memory;
    std::uint64_t next = 0;     ///< the position where the next operation begins
    std::uint64_t free_to = 0;  ///< up to this position no operation has to be waited for: a lower bound
    use uses[window] = {};      ///< by sequence modulo `window`: the operation `window` before it has been completed
};

/// Memory that other ranks can reach and that no operation uses at present.
struct scratch_pool {
    list<memory_piece> pieces;
    staging_ring ring;

    /// One of `bytes` bytes or more. Throws std::bad_alloc.
    memory_piece take(group_backend& backend, std::size_t bytes) {
        for (std::size_t i = 0; i < pieces.size() && bytes > 0; ++i)
            if (pieces[i].bytes >= bytes) {
                const memory_piece piece = pieces[i];
                pieces.drop(i);
                return piece;
            }
        return bytes > 0 ? memory_piece{backend.take(bytes), bytes} : memory_piece{};
    }
};

}  // namespace colls::inline v1::detail
