// An execution plan: what every rank of a group does for one schedule, as one program per rank.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Executors run the programs and do not look at the schedule.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/plan/rank_program.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace colls::inline v1::detail {

/// What of a rank's memory its peers can load from and store to.
enum class reach : std::uint8_t {
    buffers,  ///< the callers' buffers, and scratch memory
    scratch,  ///< scratch memory alone: what peers read is copied there first (staged)
    /// Scratch memory; and the callers' buffers by copies that the kernel makes between processes (single copy). For
    /// collectives that do not reduce: there is no fold of what other processes hold.
    processes,
    nothing  ///< no memory: messages pass
};

/// Where peers can load and store, a copied block is pushed (stored by its sender) unless this holds: the receivers of
/// a broadcast or scatter pull (load) their blocks in parallel, while a pushing root would do all copies in turn.
constexpr bool pulls_copies(collective c) { return c == collective::broadcast || c == collective::scatter; }

/// Within reach::scratch and reach::processes reductions and copies are pulled. The exceptions are pushed by single
/// copies, so that ranks copy in parallel that would wait for one another: the blocks of a gather, whose root would
/// pull all of them; and one block in n of a broadcast in a single round, whose root would be idle.
constexpr bool pulls_all(reach within) { return within == reach::scratch || within == reach::processes; }

/// Made once per (schedule, size, reach), then constant, and kept until the process ends (plan_cache.hpp).
///
/// Plans of rooted collectives are written for the root `root`: executors rotate the ranks.
struct execution_plan {
    execution_plan(const any_schedule& s, int n, reach r)
        : schedule(s), size(n), within(r), ranks(new rank_program[static_cast<std::size_t>(n)]) {}

    any_schedule schedule;
    int size;
    reach within;
    /// The plans of the same schedule within reach::scratch and reach::processes, once they have been asked for.
    mutable std::atomic<const execution_plan*> staged = nullptr, single_copy = nullptr;
    int rounds = 0;
    /// User blocks: one for each rank, or the equal parts into which the schedule cuts the whole buffer.
    int blocks = 1;
    int parts = 1;         ///< units per user block, at most
    int fewest_parts = 1;  ///< units per user block, at least
    list<int> parts_of;    ///< units of each user block, where they differ; else empty
    /// Messages: ranks other than the root send and receive parts of their own block alone.
    bool own_blocks_only = true;
    int root = 0;
    std::uint64_t fingerprint = 0;  ///< of the schedule's type and every step
    // Known where the schedule was proven at run time:
    bool order_preserving = false;
    bool one_expression = false;  ///< fold_properties.hpp
    std::unique_ptr<rank_program[]> ranks;

    rank_program& program_of(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
    int values() const { return 2 * rounds; }  ///< progress values per chunk, besides 0
};

}  // namespace colls::inline v1::detail
