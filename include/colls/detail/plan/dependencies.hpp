// The waits of an execution plan, derived from the accesses of all ranks in the order of planning.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Each location has a history: its last writer, and its readers since. An access needs the earlier accesses with which
// it conflicts to be done, and a wait is emitted only where the vector clock of the accessing rank does not imply it.
//
// Where ranks share memory, the accesses of a rank are done when it has published a progress value:
//     0          the rank has entered the operation (its buffers are exposed)
//     2k + 1     it has done the stores of round k into its peers
//     2k + 2     it has done its folds of round k
// A wait in the send phase of round k names values up to 2k, in the fold phase up to 2k + 1: strictly earlier in the
// order (round, phase), so by induction on the smallest unfinished phase no rank waits for ever (law: live).
//
// Where messages pass, a rank accesses its own memory alone, in the order of its program. Only a message that it has
// posted may read from there later: that access is done when the message has left.
#pragma once

#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/per_rank.hpp>
#include <colls/detail/plan/rank_program.hpp>
#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>
#include <colls/detail/support/merge_sort.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

/// What both kinds of transport share: histories, vector clocks, and the needs of one rank at a time, the actor.
class dependencies {
public:
    /// Can `writer` overwrite the location without a further wait?
    bool is_free(int writer, const location& l) const;
    /// The actor needs `value` of another rank.
    void need(int actor, int rank, int value) {
        if (rank == actor || value <= needed_[rank]) return;
        if (needed_[rank] < 0) pending_.push_back(rank);
        needed_[rank] = value;
    }
    /// Emits the waits that meet the actor's needs. All needs since the last flush must be the same actor's.
    void flush(int actor, list<instruction>& into, int round);

protected:
    struct history {
        int writer = none, written = 0;  // the last writer, and the value with which its write is done
        int readers = none;              // since then: a chain through readers_
    };
    struct reading {
        int rank, done, next;
    };

    dependencies(const step_table& steps, const unit_map& units, opcode wait);

    history& history_of(const location& l) {
        list<history>& h = histories_[l.rank];
        const std::size_t i = index_of(l);
        if (h.size() <= i) h.resize(i + 1);
        return h[i];
    }
    void add_reader(history& h, int rank, int done) {
        readers_.push_back({rank, done, h.readers});
        h.readers = static_cast<int>(readers_.size()) - 1;
    }
    void need_readers(int actor, const history& h) {
        for (int i = h.readers; i != none; i = readers_[i].next) need(actor, readers_[i].rank, readers_[i].done);
    }
    // Rank a knows that x has reached this value less one; 0: a does not know that x has entered.
    int& clock(int a, int x) { return clocks_[long{a - first_} * size_ + x]; }
    bool knows(int a, int x, int value) const { return x == a || clocks_[long{a - first_} * size_ + x] > value; }

    const int size_, first_, count_;     // ranks of the group; those that are planned
    per_rank<list<history>> histories_;  // of each rank's memory
    list<int> clocks_;
    // All clocks at each progress value: a rank that has seen x reach the value knows what x knew then. Empty where
    // clocks are not inherited: for messages, and where the snapshots would take too much memory.
    list<std::uint16_t> snapshots_;

private:
    std::size_t index_of(const location& l) const {
        return static_cast<std::size_t>(l.index) + (l.where == place::scratch     ? 2 * indices_
                                                       : l.where == place::output ? output_at_
                                                                                  : 0);
    }

    const opcode wait_;
    const std::size_t indices_;    // of a rank's input, and output, locations
    const std::size_t output_at_;  // index of the first output location
    list<reading> readers_;
    list<int> needed_;            // by rank: the value that the actor needs, or -1
    list<int> pending_, sorted_;  // the ranks of which it needs one
};

inline dependencies::dependencies(const step_table& steps, const unit_map& units, opcode wait)
    : size_(steps.size),
      first_(steps.first),
      count_(steps.count),
      histories_(steps.count, steps.first),
      wait_(wait),
      indices_(static_cast<std::size_t>(units.indices())),
      // Input and output of a unit may be one memory (in place), except for all_to_all, whose in-place calls copy, and
      // for redistribute, which is never in place.
      output_at_(names_contents(steps.what) ? indices_ : 0) {
    const auto n = static_cast<std::size_t>(size_);
    clocks_.resize(n * static_cast<std::size_t>(count_));
    needed_.resize(n, -1);
}

inline bool dependencies::is_free(int writer, const location& l) const {
    const list<history>& all = histories_[l.rank];
    const std::size_t i = index_of(l);
    if (all.size() <= i) return true;
    const history& h = all[i];
    if (h.writer != none && !knows(writer, h.writer, h.written)) return false;
    for (int r = h.readers; r != none; r = readers_[r].next)
        if (!knows(writer, readers_[r].rank, readers_[r].done)) return false;
    return true;
}

// The latest value comes first: what its rank knew then may make other waits needless.
inline void dependencies::flush(int actor, list<instruction>& into, int round) {
    // Messages: there may be one for each rank, and no wait implies another.
    const bool sorted = wait_ == opcode::left;
    if (sorted) merge_sort(pending_, sorted_, [this](int a, int b) { return needed_[a] < needed_[b]; });
    while (!pending_.empty()) {
        std::size_t latest = sorted ? pending_.size() - 1 : 0;
        for (std::size_t i = latest + 1; i < pending_.size(); ++i)
            if (needed_[pending_[i]] > needed_[pending_[latest]]) latest = i;
        const int x = pending_[latest], value = needed_[x];
        pending_.drop(latest);
        needed_[x] = -1;
        if (knows(actor, x, value)) continue;
        into.push_back({.op = wait_, .peer = x, .value = value, .round = round});
        clock(actor, x) = value + 1;
        if (snapshots_.empty()) continue;
        const std::uint16_t* const known = snapshots_.data() + static_cast<std::size_t>(value) * clocks_.size() +
                                           static_cast<std::size_t>(x) * static_cast<std::size_t>(size_);
        for (int y = 0; y < size_; ++y)
            if (known[y] > clock(actor, y)) clock(actor, y) = known[y];
    }
}

/// Where ranks load from and store to their peers' memory.
class memory_dependencies : public dependencies {
public:
    memory_dependencies(const step_table& steps, const unit_map& units);

    /// The actor's copy or fold, done when it publishes `done`: it reads its operands, then writes its target.
    void access(int actor, const instruction& i, const list<location>& operands, int done);
    /// All ranks publish `value` after their accesses so far.
    void publish_all(int value);

    /// Waits after the last chunk: a rank leaves when its own results are there and no peer will touch its memory.
    void flush_exit(int actor, list<instruction>& into, int round);
    /// Waits before a chunk whose scratch slots an earlier chunk used: the readers of that one must be done.
    void flush_reuse(int actor, list<instruction>& into, int round);

private:
    static constexpr std::size_t most_snapshot_bytes = std::size_t{256} << 20;
};

inline memory_dependencies::memory_dependencies(const step_table& steps, const unit_map& units)
    : dependencies(steps, units, opcode::wait) {
    const std::size_t all = (2 * static_cast<std::size_t>(steps.rounds) + 1) * clocks_.size();
    if (all * sizeof(std::uint16_t) <= most_snapshot_bytes) snapshots_.resize(all);
    publish_all(0);
}

inline void memory_dependencies::access(int actor, const instruction& i, const list<location>& operands, int done) {
    const auto touch = [&](const location& l) -> history& {
        history& h = history_of(l);
        if (h.writer != none) need(actor, h.writer, h.written);
        if (l.rank != actor) need(actor, l.rank, 0);
        return h;
    };
    for (int k = i.first; k < i.first + i.count; ++k) add_reader(touch(operands[k]), actor, done);
    history& to = touch(i.to);
    need_readers(actor, to);
    to = {actor, done, none};
}

inline void memory_dependencies::publish_all(int value) {
    for (int r = 0; r < size_; ++r) clock(r, r) = value + 1;
    if (snapshots_.empty()) return;
    std::uint16_t* const now = snapshots_.data() + static_cast<std::size_t>(value) * clocks_.size();
    for (std::size_t i = 0; i < clocks_.size(); ++i) now[i] = static_cast<std::uint16_t>(clocks_[i]);
}

inline void memory_dependencies::flush_exit(int actor, list<instruction>& into, int round) {
    for (const history& h : histories_[actor]) {
        if (h.writer != none) need(actor, h.writer, h.written);
        need_readers(actor, h);
    }
    flush(actor, into, round);
}

inline void memory_dependencies::flush_reuse(int actor, list<instruction>& into, int round) {
    list<int> known;
    for (int x = 0; x < size_; ++x) known.push_back(clock(actor, x));
    for (const history& h : histories_[actor]) need_readers(actor, h);
    // The chunk that used the slots is at least two chunks earlier. A rank that has reached any value of a chunk in
    // between has done all of the earlier one.
    constexpr int everything = 0xffff;
    for (int x = 0; x < size_; ++x)
        if (clock(actor, x) > 1) clock(actor, x) = everything;
    flush(actor, into, round);
    // The exit waits are for the last chunk, of which these waits say nothing.
    for (int x = 0; x < size_; ++x) clock(actor, x) = known[x];
}

/// Where messages pass. A need names the peer to which a message goes, and the number of the message.
class message_dependencies : public dependencies {
public:
    message_dependencies(const step_table& steps, const unit_map& units) : dependencies(steps, units, opcode::left) {}

    /// The rank that owns the location sends from there, with its message of that number.
    void send_from(const location& l, int peer, int number) { add_reader(history_of(l), peer, number); }
    /// The rank that owns the location writes there: messages that are sent from there must have left.
    void overwrite(const location& l) {
        history& h = history_of(l);
        need_readers(l.rank, h);
        h.readers = none;
    }
};

/// Drops the publications of values for which no rank waits.
inline void drop_unneeded_publications(const execution_plan& plan, per_rank<rank_program>& programs) {
    const std::size_t values = static_cast<std::size_t>(plan.values()) + 1;
    list<bool> awaited;
    awaited.resize(values * static_cast<std::size_t>(plan.size));
    const auto value_at = [&](int rank, int value) {
        return static_cast<std::size_t>(rank) * values + static_cast<std::size_t>(value);
    };
    for (int r = 0; r < plan.size; ++r) {
        const rank_program& program = programs[r];
        for (const list<instruction>* part : {&program.reuse_waits, &program.body, &program.exit})
            for (const instruction& i : *part)
                if (i.op == opcode::wait) awaited[value_at(i.peer, i.value)] = true;
    }
    for (int r = 0; r < plan.size; ++r) {
        list<instruction>& body = programs[r].body;
        std::size_t kept = 0;
        for (const instruction& i : body)
            if (i.op != opcode::publish || awaited[value_at(r, i.value)]) body[kept++] = i;
        body.resize(kept);
    }
}

}  // namespace colls::inline v1::detail
