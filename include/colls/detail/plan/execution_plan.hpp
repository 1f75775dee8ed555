// An execution plan: what the ranks of a group do for one schedule, as one program per rank: a list of instructions
// without branches, and the memory that they name.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Executors run the programs and do not look at the schedule.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/support/list.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace colls::inline v1::detail {

/// The kinds of memory of a rank. `input` and `output` are the user's buffers, indexed by unit (a part of a user block:
/// unit_map.hpp); `scratch` memory belongs to the operation and is indexed by scratch slot.
enum class buffer_kind : std::uint8_t { input, output, scratch };

struct location {
    int rank = 0;
    int index = 0;
    buffer_kind where = buffer_kind::input;
};

enum class opcode : std::uint8_t {
    wait,     ///< until `peer` has published `value`
    publish,  ///< this rank's progress: `value`
    copy,     ///< the one operand to `to`
    fold,     ///< the operands, in their order, into `to`
    send,     ///< post a message to `peer`: the operands are what it carries
    receive,  ///< post a receive from `peer`: the operands are where the message goes
    arrived,  ///< wait until receive number `value` of this program is complete
    left      ///< wait until send number `value` of this program no longer needs its operands
};

struct instruction {
    opcode op;
    bool finish = false;  ///< fold: the result is complete
    bool keep = false;    ///< copy, fold: the rank's own data, from its input to its output, after the last round
    int peer = 0;         ///< wait, send, receive, arrived, left: the other rank; copy, fold: the owner of `to`
    /// wait, publish: a progress value (dependencies.hpp); send, receive, arrived, left: the number of the message in
    /// this program, sends and receives apart
    int value = 0;
    int unit = 0;   ///< copy, fold: the unit that gives the length; send, receive: the port
    int round = 0;  ///< of the schedule; behind its last round: the number of rounds
    int first = 0;  ///< the operands are [first, first + count) of the program's
    int count = 0;
    int pushes = 0;   ///< fold, copy: this many instructions that follow copy its result, or its source, too
    int channel = 0;  ///< send, receive: which of the program's peers `peer` is
    location to{};    ///< copy, fold
};

struct rank_program {
    /// Staged: waits before a chunk whose scratch slots an earlier chunk used.
    list<instruction> reuse_waits;
    list<instruction> body;  ///< once per chunk
    list<instruction> exit;  ///< waits after the last chunk
    list<location> operands;
    int scratch = 0;  ///< scratch slots of this rank

    // Where messages pass:

    /// For each operand of a send or receive, the unit that gives its length.
    list<int> units;
    /// Where the segments of the body end, but for the last one. Segment k waits for the messages of round k - 1, folds
    /// them, and posts those of round k; segment 0 also posts those sent ahead.
    list<int> segments;
    int sends = 0, receives = 0;  ///< messages per chunk
    list<int> peers;              ///< the ranks that it sends to or receives from, each once
};

/// What of a rank's memory its peers can load from and store to.
enum class reach : std::uint8_t {
    buffers,  ///< the callers' buffers, and scratch memory
    scratch,  ///< scratch memory alone: what peers read is copied there first (staged)
    /// Scratch memory; and the callers' buffers by copies that the kernel makes between processes (single copy). For
    /// collectives that do not reduce: there is no fold of what other processes hold.
    processes,
    nothing  ///< no memory: messages pass
};

/// Where peers can load and store: a copied block is stored by its sender, or loaded by its receiver.
enum class copying : std::uint8_t { pushed, pulled };

/// Which of them a plan has where nothing is known of the machine: the receivers of a broadcast or scatter pull their
/// blocks in parallel, while a pushing root would do all copies in turn.
constexpr copying usual_copying(collective c) { return traits_of(c).in_at_root ? copying::pulled : copying::pushed; }

/// Within reach::scratch and reach::processes reductions and copies are pulled, whatever the plan's `copies`. The
/// exceptions are pushed by single copies, so that ranks copy in parallel that would wait for one another: the blocks
/// of a gather, whose root would pull all of them; and one block in n of a broadcast in a single round, whose root
/// would be idle.
constexpr bool pulls_all(reach within) { return within == reach::scratch || within == reach::processes; }

/// An array with one element for each of the `count` ranks from `first` on, for elements that cannot be copied (list).
template <class T>
class per_rank {
public:
    explicit per_rank(int count, int first = 0) : all_(new T[static_cast<unsigned>(count)]()), first_(first) {}

    T& operator[](int rank) { return all_[static_cast<std::size_t>(rank - first_)]; }
    const T& operator[](int rank) const { return all_[static_cast<std::size_t>(rank - first_)]; }

private:
    std::unique_ptr<T[]> all_;
    int first_;
};

/// Made once per (schedule, size, reach, copying), and kept until the process ends (plan_cache.hpp). Where ranks reach
/// memory it has the programs of all ranks. Where messages pass, a rank needs its own program alone, so each is made
/// when it is first asked for: plans for 100,000 ranks have room for that.
///
/// Plans of rooted collectives are written for the root `root`: executors rotate the ranks.
class execution_plan {
public:
    execution_plan(const any_schedule& s, int n, reach r, copying c)
        : schedule(s), size(n), within(r), copies(c), programs_(n) {}
    ~execution_plan() {
        for (int r = 0; r < size; ++r) delete programs_[r].load(std::memory_order_relaxed);
    }

    any_schedule schedule;
    int size;
    reach within;
    copying copies;
    /// The plans of the same schedule within reach::scratch and reach::processes, once they have been asked for.
    mutable std::atomic<const execution_plan*> staged = nullptr, single_copy = nullptr;
    /// The plan of the same schedule with the other copying, once copied_otherwise() has been asked for it.
    mutable std::atomic<const execution_plan*> otherwise = nullptr;
    int rounds = 0;
    /// User blocks: one for each rank, or the equal parts into which the schedule cuts the whole buffer.
    int blocks = 1;
    int parts = 1;         ///< units per user block, at most
    int fewest_parts = 1;  ///< units per user block, at least
    list<int> parts_of;    ///< units of each user block, where they differ; else empty
    /// Messages of a gather or scatter: ranks other than the root send and receive parts of their own block alone.
    bool own_blocks_only = true;
    int root = 0;
    std::uint64_t fingerprint = 0;  ///< of the schedule's type and steps
    // Known where the schedule was proven at run time:
    bool order_preserving = false;
    bool one_expression = false;    ///< fold_properties.hpp
    bool expressions_known = true;  ///< false: the proof has not looked for these two

    /// Threads may call it at once.
    const rank_program& program_of(int rank) const {
        const rank_program* const p = programs_[rank].load(std::memory_order_acquire);
        return p ? *p : make_program(rank);
    }
    /// Gives the rank its program, unless another thread has done so; returns the one that it has.
    const rank_program& add_program(int rank, rank_program&& made) const {
        auto* const mine = new rank_program(std::move(made));
        const rank_program* first = nullptr;
        if (programs_[rank].compare_exchange_strong(first, mine, std::memory_order_acq_rel, std::memory_order_acquire))
            return *mine;
        delete mine;
        return *first;
    }
    int values() const { return 2 * rounds; }  ///< progress values per chunk, besides 0

private:
    const rank_program& make_program(int rank) const;  // make_execution_plan.hpp

    mutable per_rank<std::atomic<const rank_program*>> programs_;  // null: not made yet
};

}  // namespace colls::inline v1::detail
