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
#include <colls/detail/plan/unit_map.hpp>
#include <colls/detail/support/list.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

/// Histories of locations, vector clocks, and the needs of one rank at a time, the actor.
class dependencies {
public:
    /// `wait`: opcode::wait where ranks share memory, opcode::left where messages pass.
    [[gnu::cold]] dependencies(const step_table& steps, const unit_map& units, opcode wait)
        : size_(steps.size),
          first_(steps.first),
          histories_(steps.count, steps.first),
          wait_(wait),
          indices_(static_cast<std::size_t>(units.indices())),
          // Input and output of a unit may be one memory (in place), except for all_to_all, whose in-place calls copy,
          // and for redistribute, which is never in place.
          output_at_(names_contents(steps.what) ? indices_ : 0) {
        const auto n = static_cast<std::size_t>(size_);
        clocks_.resize(n * static_cast<std::size_t>(steps.count));
        needed_.resize(n, -1);
        if (wait != opcode::wait) return;
        const std::size_t values = 2 * static_cast<std::size_t>(steps.rounds) + 1;
        awaited_.resize(values * n);
        if (values * clocks_.size() * sizeof(std::uint16_t) <= most_snapshot_bytes) {
            snapshots_.resize(values * n, none);
            latest_.resize(n, none);
            has_learnt_.resize(n);
        }
        for (int r = 0; r < size_; ++r) publish(r, 0);
    }

    /// Can `writer` overwrite the location without a further wait?
    bool is_free(int writer, const location& l) const {
        const list<history>& all = histories_[l.rank];
        const std::size_t i = index_of(l);
        if (all.size() <= i) return true;
        const history& h = all[i];
        if (h.writer != none && !knows(writer, h.writer, h.written)) return false;
        for (int r = h.readers; r != none; r = readers_[r].next)
            if (!knows(writer, readers_[r].rank, readers_[r].done)) return false;
        return true;
    }
    /// The waits so far, each of which has told its rank something.
    long waits() const { return waits_; }
    /// The actor needs `value` of another rank.
    void need(int actor, int rank, int value) {
        if (rank == actor || value <= needed_[rank]) return;
        if (needed_[rank] < 0) pending_.push_back(rank);
        needed_[rank] = value;
    }
    /// Emits the waits that meet the actor's needs. All needs since the last flush must be the same actor's.
    // The latest value comes first: what its rank knew then may make other waits needless.
    void flush(int actor, list<instruction>& into, int round) {
        // Messages have a number each, and no wait implies another.
        if (wait_ == opcode::left) {
            merge_sort(pending_, sorted_, [this](int a, int b) { return needed_[a] > needed_[b]; });
            for (const int x : pending_) wait_for(actor, x, into, round);
            pending_.clear();
        }
        while (!pending_.empty()) {
            int latest = 0;
            for (const int x : pending_)
                if (needed_[x] > latest) latest = needed_[x];
            for (std::size_t i = 0; i < pending_.size();) {
                const int x = pending_[i];
                if (needed_[x] != latest) {
                    ++i;
                    continue;
                }
                pending_.drop(i);
                wait_for(actor, x, into, round);
            }
        }
    }

    // Where ranks share memory:

    /// The actor's copy or fold, done when it publishes `done`: it reads its operands, then writes its target.
    void access(int actor, const instruction& i, const list<location>& operands, int done) {
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
    /// The rank publishes `value`: its accesses so far are done.
    void publish(int rank, int value) {
        clock(rank, rank) = value + 1;
        if (snapshots_.empty() || value == 0) return;  // a rank that enters knows of none
        if (has_learnt_[rank]) {
            has_learnt_[rank] = false;
            latest_[rank] = static_cast<int>(known_.size() / static_cast<std::size_t>(size_));
            const int* const mine = &clock(rank, 0);
            for (int x = 0; x < size_; ++x) known_.push_back(static_cast<std::uint16_t>(mine[x]));
        }
        snapshot(rank, value) = latest_[rank];
    }
    /// Waits after the last chunk: a rank leaves when its own results are there and no peer will touch its memory.
    [[gnu::cold]] void flush_exit(int actor, list<instruction>& into, int round) {
        for (const history& h : histories_[actor]) {
            if (h.writer != none) need(actor, h.writer, h.written);
            need_readers(actor, h);
        }
        flush(actor, into, round);
    }
    /// Waits before a chunk whose scratch slots an earlier chunk used: the readers of that one must be done.
    [[gnu::cold]] void flush_reuse(int actor, list<instruction>& into, int round) {
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
    /// Drops the rank's publications of values for which no rank waits.
    [[gnu::cold]] void drop_unneeded_publications(int rank, list<instruction>& body) const {
        std::size_t kept = 0;
        for (const instruction& i : body)
            if (i.op != opcode::publish || awaited_[long{i.value} * size_ + rank]) body[kept++] = i;
        body.resize(kept);
    }

    // Where messages pass a need names the peer to which a message goes, and the number of the message:

    /// The rank that owns the location sends from there, with its message of that number.
    void send_from(const location& l, int peer, int number) { add_reader(history_of(l), peer, number); }
    /// The rank that owns the location writes there: messages that are sent from there must have left.
    void overwrite(const location& l) {
        history& h = history_of(l);
        need_readers(l.rank, h);
        h.readers = none;
    }

private:
    struct history {
        int writer = none, written = 0;  // the last writer, and the value with which its write is done
        int readers = none;              // since then: a chain through readers_
    };
    struct reading {
        int rank, done, next;
    };
    static constexpr std::size_t most_snapshot_bytes = std::size_t{256} << 20;

    std::size_t index_of(const location& l) const {
        return static_cast<std::size_t>(l.index) + (l.where == buffer_kind::scratch     ? 2 * indices_
                                                       : l.where == buffer_kind::output ? output_at_
                                                                                        : 0);
    }
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
    // The snapshot of what the rank knew of the others when it published the value.
    int& snapshot(int rank, int value) { return snapshots_[long{value} * size_ + rank]; }
    void wait_for(int actor, int rank, list<instruction>& into, int round) {
        const int value = needed_[rank];
        needed_[rank] = -1;
        if (knows(actor, rank, value)) return;
        into.push_back({.op = wait_, .peer = rank, .value = value, .round = round});
        ++waits_;
        clock(actor, rank) = value + 1;
        if (wait_ == opcode::wait) awaited_[long{value} * size_ + rank] = true;
        if (snapshots_.empty()) return;
        has_learnt_[actor] = true;
        if (snapshot(rank, value) == none) return;
        const std::uint16_t* const known =
            known_.data() + static_cast<std::size_t>(snapshot(rank, value)) * static_cast<std::size_t>(size_);
        int* const mine = &clock(actor, 0);
        for (int y = 0; y < size_; ++y) mine[y] = known[y] > mine[y] ? known[y] : mine[y];
    }

    const int size_, first_;             // ranks of the group; the first that is planned
    per_rank<list<history>> histories_;  // of each rank's memory
    list<int> clocks_;
    // A rank that has seen x reach a value knows what x knew then. For each value and rank the number of its snapshot,
    // or none while x knows nothing: one is made where x has learnt something since the last. Empty where clocks are
    // not inherited: for messages, and where the snapshots might take too much memory.
    list<int> snapshots_;
    list<std::uint16_t> known_;  // of each snapshot: the clock
    list<int> latest_;           // by rank: its last snapshot
    list<bool> has_learnt_;      // by rank: since then
    const opcode wait_;
    const std::size_t indices_;    // of a rank's input, and output, locations
    const std::size_t output_at_;  // index of the first output location
    list<reading> readers_;
    list<int> needed_;            // by rank: the value that the actor needs, or -1
    list<int> pending_, sorted_;  // the ranks of which it needs one
    list<bool> awaited_;          // by value and rank: some rank waits for it; for memory
    long waits_ = 0;
};

}  // namespace colls::inline v1::detail
