// The vocabulary: which collectives there are, what a schedule is, and how the library reads one.
//
// A schedule says, for each rank of a group of n ranks, which blocks it sends to and receives from which peers in each
// round. It is a pure function of (rank, n, round, port): constexpr, no allocation, no virtual call. The proof, the
// cost, the executors and the CUDA kernels all interpret that one function.
#pragma once

#include <colls/detail/schedule/schedule_members.hpp>
#include <colls/step.hpp>

#include <concepts>
#include <type_traits>

namespace colls::inline v1 {

/// The collectives that schedules implement.
enum class collective : unsigned char {
    broadcast,
    scatter,
    gather,
    all_gather,
    reduce,
    reduce_scatter,
    all_reduce,
    all_to_all,
    barrier,
    inclusive_scan,
    exclusive_scan,
    redistribute
};
/// The collectives that a family may provide: those before `redistribute`, whose result depends on two layouts.
inline constexpr int collective_count = 11;

/// What a rank's input, or output, has of a call's data.
enum class content : unsigned char {
    nothing,
    whole,       ///< one vector, as long on every rank
    own_block,   ///< this rank's block of it
    all_blocks,  ///< a block for each rank, or of each
    layout       ///< what a layout says that this rank has
};
/// Whose contributions a result holds.
enum class contributors : unsigned char {
    root,   ///< the root's data, copied
    owner,  ///< of each block, those of the rank whose block it is, copied
    each,   ///< a block from each rank, copied
    all,    ///< those of all ranks, reduced
    up_to,  ///< those of ranks 0 to this one, reduced
    before  ///< those of the ranks before this one, reduced
};

/// What a collective is, for all that reads schedules and calls: the proof, the planner, checks, executors, kits.
struct collective_traits {
    const char* name;     ///< such as "all_reduce"
    collective dual;      ///< see v1::dual
    content in;           ///< of a rank that has an input
    content out;          ///< of a rank that has an output
    bool in_at_root;      ///< the root alone has that input
    bool out_at_root;     ///< the root alone has that output
    contributors result;  ///< whose contributions the output holds

    /// It has a root.
    constexpr bool rooted() const { return in_at_root || out_at_root; }
    /// It combines contributions with an operator.
    constexpr bool reduces() const { return result >= contributors::all && out != content::nothing; }
    /// It is a scan.
    constexpr bool is_scan() const { return result == contributors::up_to || result == contributors::before; }
    /// The result of a rank of n combines the contributions of ranks 0 to this one less one. 0: the rank has no result.
    constexpr int contributors_at(int rank, int n) const {
        return result == contributors::before ? rank : result == contributors::up_to ? rank + 1 : n;
    }
    /// Every rank waits for every other.
    constexpr bool synchronises() const { return !rooted() && result < contributors::up_to && in != content::layout; }
    /// Each user block belongs to one rank.
    constexpr bool owned() const { return in == content::own_block || out == content::own_block; }
};
/// In the order of `collective`. A new collective is a row here, and a call in collectives.hpp.
inline constexpr collective_traits all_collective_traits[] = {
    {"broadcast", collective::reduce, content::whole, content::whole, true, false, contributors::root},
    {"scatter", collective::gather, content::all_blocks, content::own_block, true, false, contributors::root},
    {"gather", collective::scatter, content::own_block, content::all_blocks, false, true, contributors::owner},
    {"all_gather", collective::reduce_scatter, content::own_block, content::all_blocks, false, false,
        contributors::owner},
    {"reduce", collective::broadcast, content::whole, content::whole, false, true, contributors::all},
    {"reduce_scatter", collective::all_gather, content::all_blocks, content::own_block, false, false,
        contributors::all},
    {"all_reduce", collective::all_reduce, content::whole, content::whole, false, false, contributors::all},
    {"all_to_all", collective::all_to_all, content::all_blocks, content::all_blocks, false, false, contributors::each},
    {"barrier", collective::barrier, content::nothing, content::nothing, false, false, contributors::all},
    {"inclusive_scan", collective::inclusive_scan, content::whole, content::whole, false, false, contributors::up_to},
    {"exclusive_scan", collective::exclusive_scan, content::whole, content::whole, false, false, contributors::before},
    {"redistribute", collective::redistribute, content::layout, content::layout, false, false, contributors::owner},
};
/// That row.
constexpr const collective_traits& traits_of(collective c) { return all_collective_traits[static_cast<int>(c)]; }

/// The name of a collective, such as "all_reduce".
constexpr const char* name_of(collective c) { return traits_of(c).name; }
/// True for the collectives that combine contributions with an operator.
constexpr bool reduces(collective c) { return traits_of(c).reduces(); }
/// True for the collectives with a root. Their schedules are written for root 0 (or `root(n)`); a call with another
/// root rotates the ranks.
constexpr bool rooted(collective c) { return traits_of(c).rooted(); }
/// True for the scans.
constexpr bool is_scan(collective c) { return traits_of(c).is_scan(); }
/// True for the collectives in which each user block belongs to one rank, the `home` of the slots that hold it.
constexpr bool owned(collective c) { return traits_of(c).owned(); }
/// The collective that a schedule for c implements when it runs backwards in time: broadcast <-> reduce, scatter <->
/// gather, all_gather <-> reduce_scatter; c itself for all others.
constexpr collective dual(collective c) { return traits_of(c).dual; }

/// A schedule: `implements`, `rounds(n)` and `at(rank, n, round)` or `at(rank, n, round, port)`, which returns a step.
/// Members may be static or const. Optional members, with their defaults:
///   blocks(n)        slots that a rank works on    n; 1 for broadcast, reduce, barrier and scans
///   ports(n)         sends and receives a round    1
///   scratch(n)       further slots, blocks(n)...   0
///   supports(n)      legal group sizes             true
///   root(n)          of a rooted schedule          0
///   home(n, slot)    user block of a slot, or none slot / (blocks / n)
///   owner(rank, n)   inverse of home, one slot     rank
///   input, output(rank, n, slot)   all_to_all: destination (source) of what a slot holds before (after)    slot
///                                  redistribute: the block that a slot holds before (must hold after), or none    slot
template <class S>
concept schedule =
    requires {
        { std::remove_cvref_t<S>::implements } -> std::convertible_to<collective>;
    } && detail::counts_rounds<S> && (detail::steps_without_port<S> || detail::steps_with_port<S>) &&
    std::is_trivially_copyable_v<std::remove_cvref_t<S>>;

// How the library reads a schedule: each member, or its default.

/// The collective that S implements.
template <class S>
inline constexpr collective implemented_by = std::remove_cvref_t<S>::implements;

/// The same as a run-time value, also for a type-erased schedule.
template <class S>
constexpr collective collective_of(const S& s) {
    return s.implements;
}

/// Whether s is legal in a group of n.
template <class S>
constexpr bool supports(const S& s, int n) {
    if constexpr (requires { s.supports(n); })
        return n >= 1 && s.supports(n);
    else
        return n >= 1;
}
/// Sends, and receives, of a rank in one round at most.
template <class S>
constexpr int ports_of(const S& s, int n) {
    if constexpr (requires { s.ports(n); })
        return s.ports(n);
    else
        return 1;
}
/// Slots 0 ... blocks_of - 1 of a rank make up the user's buffer.
template <class S>
constexpr int blocks_of(const S& s, int n) {
    if constexpr (requires { s.blocks(n); })
        return s.blocks(n);
    else
        return owned(implemented_by<S>) || implemented_by<S> == collective::all_reduce ||
                       implemented_by<S> == collective::all_to_all
                   ? n
                   : 1;
}
/// Slots after the blocks that hold intermediate values.
template <class S>
constexpr int scratch_of(const S& s, int n) {
    if constexpr (requires { s.scratch(n); })
        return s.scratch(n);
    else
        return 0;
}
/// The rank that is the root of a rooted schedule, before a call rotates it.
template <class S>
constexpr int root_of(const S& s, int n) {
    if constexpr (requires { s.root(n); })
        return s.root(n);
    else
        return 0;
}
/// What `rank` does on `port` in `round`.
template <class S>
constexpr step step_of(const S& s, int rank, int n, int round, int port) {
    if constexpr (detail::steps_with_port<S>)
        return s.at(rank, n, round, port);
    else
        return s.at(rank, n, round);
}
/// The user block (the rank) that a slot of an owned collective stands for, or none.
template <class S>
constexpr int home_of(const S& s, int n, int slot) {
    if constexpr (requires { s.home(n, slot); }) {
        return s.home(n, slot);
    } else if constexpr (requires { s.owner(n, n); }) {
        for (int r = 0; r < n; ++r)
            if (s.owner(r, n) == slot) return r;
        return none;
    } else {
        const int b = blocks_of(s, n);
        return b % n == 0 ? detail::rank_of_slot(slot, b, n) : none;
    }
}
/// all_to_all: the destination rank of what `slot` of `rank` holds before the first round. redistribute: the block that
/// the slot holds, or none.
template <class S>
constexpr int input_of(const S& s, int rank, int n, int slot) {
    if constexpr (requires { s.input(rank, n, slot); })
        return s.input(rank, n, slot);
    else
        return detail::rank_of_slot(slot, blocks_of(s, n), n);
}
/// all_to_all: the source rank of what `slot` of `rank` holds after the last round. redistribute: the block that the
/// slot must hold, or none.
template <class S>
constexpr int output_of(const S& s, int rank, int n, int slot) {
    if constexpr (requires { s.output(rank, n, slot); })
        return s.output(rank, n, slot);
    else
        return detail::rank_of_slot(slot, blocks_of(s, n), n);
}

}  // namespace colls::inline v1
