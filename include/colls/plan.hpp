// From a proven schedule to one program per rank for executors that load from and store to a peer's memory.
//
// A reduction is pulled (the receiver reads the sender's slot while it folds), a copy is pushed (the sender stores
// into the receiver's slot). Where a round both sends and overwrites a slot, the data goes through a landing slot in
// the receiver's scratch instead. Waits are derived, not declared: every location keeps its last writer and its
// readers since; an access needs those before it to be done, and a wait is emitted only where the rank's vector clock
// does not imply it. What is waited for is one number per rank:
//     0          the rank has entered the operation (its buffers are exposed)
//     2k + 1     it has done the stores of round k into its peers
//     2k + 2     it has done its folds of round k
// A wait in the send phase of round k names values up to 2k, in the fold phase up to 2k + 1: strictly earlier in the
// order (round, phase), so by induction on the smallest unfinished phase nothing can block for ever (law: live).
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/error.hpp>
#include <colls/verify.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace colls::inline v1::detail {

/// Where a slot's data lies. `input` and `output` are the user's buffers, indexed by unit (part of a user block);
/// `scratch` is indexed by a number of its own.
enum class place : std::uint8_t { input, output, scratch };

struct location {
    int rank = 0;
    int index = 0;
    place where = place::input;
    bool leaf = false;  ///< an unreduced contribution
};

enum class opcode : std::uint8_t { wait, publish, copy, fold };

struct instruction {
    opcode op;
    bool finish = false;   ///< fold: the result is complete
    bool keep = false;     ///< copy: the rank's own data, from its input to its output
    int peer = 0;          ///< wait: for whom
    int value = 0;         ///< wait, publish
    int unit = 0;          ///< copy, fold: whose length it is
    int round = 0;         ///< for messages
    int first = 0;         ///< copy, fold: operands [first, first + count)
    int count = 0;
    location to{};
};

struct program {
    std::vector<instruction> body;   ///< once per chunk
    std::vector<instruction> exit;   ///< waits after the last chunk
    std::vector<location> operands;
    int scratch = 0;                 ///< scratch slots of this rank
};

struct plan {
    explicit plan(const any_schedule& s, int n) : schedule(s), size(n) {}
    any_schedule schedule;
    int size;
    int rounds = 0;
    int blocks = 1;        ///< user blocks: size, or the parts of the whole buffer
    int parts = 1;         ///< units per user block
    int root = 0;
    std::uint64_t fingerprint = 0;   ///< of every step: equal plans move data alike
    bool order_preserving = false;
    std::vector<program> ranks;

    int values() const { return 2 * rounds; }   ///< progress values per chunk
};

class planner {
public:
    planner(const any_schedule& s, int n) : s_(s), n_(n) {}

    std::shared_ptr<const plan> make();

private:
    // One location's history: who wrote it last, who has read it since.
    struct history {
        int writer = none, written = 0;
        std::vector<std::pair<int, int>> readers;
    };
    // A slot of a rank, as of the start of the round.
    struct slot_state {
        location at{};
        int contributions = 0;   // 0: undefined
        int last_write = -1, last_use = -1;
        int written_in = -1, sent_in = -1;   // the latest round scanned
        int scratch = -1;                    // its scratch index, while it has one
    };
    struct arrival {   // a block to be folded (or unstaged) by the receiver in this round
        int slot;
        int from;
        location source;
        int contributions;
        action act;
    };
    struct change {
        int rank, slot;
        location at;
        int contributions;
    };

    const step& step_at(int rank, int round, int port) const {
        return steps_[(static_cast<std::size_t>(rank) * rounds_ + round) * ports_ + port];
    }
    slot_state& slot(int rank, int s) { return slots_[static_cast<std::size_t>(rank) * width_ + s]; }
    history& track(const location& l) {
        auto& h = histories_[l.rank];
        // Input and output of one slot may be one memory (in place), but for all_to_all, whose in-place calls copy.
        const std::size_t id = l.where == place::scratch ? 2 * units_ + l.index
                               : l.where == place::output && c_ == collective::all_to_all ? units_ + l.index
                                                                                          : l.index;
        if (h.size() <= id) h.resize(id + 1);
        return h[id];
    }
    std::uint16_t& clock(int a, int x) { return clocks_[static_cast<std::size_t>(a) * n_ + x]; }

    void read_schedule();
    void name_units();
    void initial_state();
    void scan(int round);
    void send_phase(int round);
    void fold_phase(int round);
    void keep_phase();
    void exit_phase();
    void drop_unneeded();
    void snapshot(int value);

    int output_unit(int rank, int s) const;
    int length_unit(int s, const location& data) const;
    location target(int rank, int s, int round);
    int take_scratch(int writer, int rank);
    void release_scratch(int round);
    void need(int actor, int x, int value) {
        if (x != actor && value > needed_[x]) {
            if (needed_[x] < 0) pending_.push_back(x);
            needed_[x] = value;
        }
    }
    void read(int actor, const location& l, int done);
    void write(int actor, const location& l, int done);
    void flush_waits(int actor, std::vector<instruction>& into, int round);
    void publish(int rank, int value, int round);

    const any_schedule& s_;
    const int n_;
    collective c_{};
    int rounds_ = 0, ports_ = 1, slots_per_rank_ = 0, width_ = 0, blocks_ = 0, root_ = 0;
    std::size_t units_ = 0;
    std::shared_ptr<plan> plan_;
    std::vector<step> steps_;
    std::vector<int> home_unit_;          // owned collectives: slot -> unit, or none
    std::vector<slot_state> slots_;
    std::vector<std::vector<history>> histories_;
    std::vector<std::vector<arrival>> arrivals_;
    std::vector<std::vector<int>> free_scratch_;
    std::vector<change> changes_;
    std::vector<std::uint16_t> clocks_, snapshots_;
    bool transitive_ = true;
    std::vector<int> needed_, pending_;
};

inline void planner::read_schedule() {
    c_ = s_.implements;
    rounds_ = s_.rounds(n_);
    ports_ = s_.ports(n_);
    slots_per_rank_ = s_.blocks(n_);
    width_ = slots_per_rank_ + s_.scratch(n_);
    if (rounds_ >= 30000 || (width_ > slots_per_rank_ && slots_per_rank_ > 1))
        throw error(errc::unsupported, "colls: " + std::string(s_.name()) +
                                           (rounds_ >= 30000 ? ": more than 30,000 rounds"
                                                             : ": scratch slots need a schedule of one block"));
    root_ = rooted(c_) ? s_.root(n_) : 0;
    steps_.reserve(static_cast<std::size_t>(n_) * rounds_ * ports_);
    std::uint64_t h = hash_mix(static_cast<std::uint64_t>(c_), static_cast<std::uint64_t>(slots_per_rank_));
    for (int r = 0; r < n_; ++r)
        for (int k = 0; k < rounds_; ++k)
            for (int p = 0; p < ports_; ++p) {
                const step st = s_.at(r, n_, k, p);
                steps_.push_back(st);
                const auto mix = [&h](int a, int b) {
                    h = hash_mix(h, static_cast<std::uint64_t>(static_cast<unsigned>(a)) << 32 | static_cast<unsigned>(b));
                };
                mix(st.send.peer, st.recv.peer);
                mix(st.send.blocks.size(), st.recv.blocks.size());
                if (!st.send.blocks.empty()) mix(st.send.blocks[0], st.send.blocks[st.send.blocks.size() - 1]);
                if (!st.recv.blocks.empty())
                    mix(st.recv.blocks[0], static_cast<int>(st.recv.action));
            }
    plan_->fingerprint = h;
    plan_->rounds = rounds_;
    plan_->root = root_;
}

// User blocks and their parts. Several slots of one home cut that block in ascending slot order.
inline void planner::name_units() {
    if (owned(c_)) {
        std::vector<int> seen(static_cast<std::size_t>(n_), 0);
        home_unit_.assign(static_cast<std::size_t>(slots_per_rank_), none);
        for (int s = 0; s < slots_per_rank_; ++s)
            if (const int h = s_.home(n_, s); h != none) home_unit_[s] = seen[h]++;
        for (int r = 0; r < n_; ++r)
            if (seen[r] != seen[0])
                throw error(errc::unsupported, "colls: " + std::string(s_.name()) +
                                                   ": every rank must be home to equally many slots");
        plan_->blocks = n_;
        plan_->parts = seen[0];
        for (int s = 0; s < slots_per_rank_; ++s)
            if (home_unit_[s] != none) home_unit_[s] += s_.home(n_, s) * plan_->parts;
    } else if (c_ == collective::all_to_all) {
        plan_->blocks = n_;
        plan_->parts = slots_per_rank_ / n_;
    } else {
        plan_->blocks = slots_per_rank_;
        plan_->parts = 1;
    }
    units_ = static_cast<std::size_t>(plan_->blocks) * plan_->parts;
    if (units_ < static_cast<std::size_t>(slots_per_rank_)) units_ = static_cast<std::size_t>(slots_per_rank_);
}

// The part of the user's output that slot s of the rank ends up in, or none.
inline int planner::output_unit(int rank, int s) const {
    if (s >= slots_per_rank_) return none;
    if (c_ == collective::all_to_all) {
        int part = 0;
        for (int t = 0; t < s && plan_->parts > 1; ++t) part += s_.output(rank, n_, t) == s_.output(rank, n_, s);
        return s_.output(rank, n_, s) * plan_->parts + part;
    }
    const int unit = owned(c_) ? home_unit_[s] : s;
    if (unit == none) return none;
    switch (c_) {
        case collective::reduce:
        case collective::gather: return rank == root_ ? unit : none;
        case collective::scatter:
        case collective::reduce_scatter: return unit / plan_->parts == rank ? unit : none;
        case collective::exclusive_scan: return rank == 0 ? none : unit;
        default: return unit;
    }
}

// The unit whose length slot s has. Blocks of an all_to_all are of one length, but for the direct one with counts,
// where data comes straight from the input.
inline int planner::length_unit(int s, const location& data) const {
    if (c_ == collective::all_to_all) return data.where == place::input ? data.index : 0;
    if (s >= slots_per_rank_) return 0;
    return owned(c_) ? home_unit_[s] : s;
}

inline void planner::initial_state() {
    slots_.assign(static_cast<std::size_t>(n_) * width_, {});
    for (int r = 0; r < n_; ++r)
        for (int s = 0; s < slots_per_rank_; ++s) {
            slot_state& st = slot(r, s);
            int unit = owned(c_) ? home_unit_[s] : s;
            bool has = unit != none;
            if (c_ == collective::scatter || c_ == collective::broadcast) has = has && r == root_;
            if (c_ == collective::gather || c_ == collective::all_gather)
                has = has && unit / plan_->parts == r;
            if (c_ == collective::all_to_all) {
                int part = 0;
                for (int t = 0; t < s && plan_->parts > 1; ++t) part += s_.input(r, n_, t) == s_.input(r, n_, s);
                unit = s_.input(r, n_, s) * plan_->parts + part;
            }
            if (has) {
                st.at = {r, unit, place::input, true};
                st.contributions = 1;
            }
        }
    for (int k = 0; k < rounds_; ++k)
        for (int r = 0; r < n_; ++r)
            for (int p = 0; p < ports_; ++p) {
                const step& st = step_at(r, k, p);
                for (int i = 0; st.send.peer != none && i < st.send.blocks.size(); ++i)
                    slot(r, st.send.blocks[i]).last_use = k;
                for (int i = 0; st.recv.peer != none && i < st.recv.blocks.size(); ++i) {
                    slot(r, st.recv.blocks[i]).last_write = k;
                    slot(r, st.recv.blocks[i]).last_use = k;
                }
            }
    histories_.assign(static_cast<std::size_t>(n_), {});
    arrivals_.assign(static_cast<std::size_t>(n_), {});
    free_scratch_.assign(static_cast<std::size_t>(n_), {});
    clocks_.assign(static_cast<std::size_t>(n_) * n_, 0);
    needed_.assign(static_cast<std::size_t>(n_), -1);
    // Knowing nobody's entry is different from knowing value 0: clocks hold value + 1.
    const std::size_t bytes = (2 * static_cast<std::size_t>(rounds_) + 1) * clocks_.size() * sizeof(std::uint16_t);
    transitive_ = bytes <= std::size_t{256} << 20;
    if (transitive_) snapshots_.resize(bytes / sizeof(std::uint16_t));
    snapshot(0);
}

inline void planner::snapshot(int value) {
    for (int r = 0; r < n_; ++r) clock(r, r) = static_cast<std::uint16_t>(value + 1);
    if (transitive_)
        std::memcpy(snapshots_.data() + static_cast<std::size_t>(value) * clocks_.size(), clocks_.data(),
                    clocks_.size() * sizeof(std::uint16_t));
}

inline void planner::scan(int round) {
    for (int r = 0; r < n_; ++r)
        for (int p = 0; p < ports_; ++p) {
            const step& st = step_at(r, round, p);
            for (int i = 0; st.send.peer != none && i < st.send.blocks.size(); ++i)
                slot(r, st.send.blocks[i]).sent_in = round;
            for (int i = 0; st.recv.peer != none && i < st.recv.blocks.size(); ++i)
                slot(r, st.recv.blocks[i]).written_in = round;
        }
}

inline void planner::read(int actor, const location& l, int done) {
    history& h = track(l);
    if (h.writer != none) need(actor, h.writer, h.written);
    if (l.rank != actor) need(actor, l.rank, 0);
    h.readers.emplace_back(actor, done);
}
inline void planner::write(int actor, const location& l, int done) {
    history& h = track(l);
    if (h.writer != none) need(actor, h.writer, h.written);
    if (l.rank != actor) need(actor, l.rank, 0);
    for (const auto& [reader, value] : h.readers) need(actor, reader, value);
    h.readers.clear();
    h.writer = actor;
    h.written = done;
}

// The strongest first: what its clock implies need not be waited for.
inline void planner::flush_waits(int actor, std::vector<instruction>& into, int round) {
    while (!pending_.empty()) {
        std::size_t best = 0;
        for (std::size_t i = 1; i < pending_.size(); ++i)
            if (needed_[pending_[i]] > needed_[pending_[best]]) best = i;
        const int x = pending_[best], value = needed_[x];
        pending_[best] = pending_.back();
        pending_.pop_back();
        needed_[x] = -1;
        if (clock(actor, x) > value) continue;
        into.push_back({.op = opcode::wait, .peer = x, .value = value, .round = round});
        clock(actor, x) = static_cast<std::uint16_t>(value + 1);
        if (!transitive_) continue;
        const std::uint16_t* seen = snapshots_.data() + static_cast<std::size_t>(value) * clocks_.size() +
                                    static_cast<std::size_t>(x) * n_;
        for (int y = 0; y < n_; ++y)
            if (seen[y] > clock(actor, y)) clock(actor, y) = seen[y];
    }
}

inline void planner::publish(int rank, int value, int round) {
    plan_->ranks[rank].body.push_back({.op = opcode::publish, .value = value, .round = round});
}

// A scratch slot of `rank` that `writer` may overwrite without a further wait, or a new one.
inline int planner::take_scratch(int writer, int rank) {
    auto& list = free_scratch_[rank];
    for (std::size_t i = 0; i < list.size(); ++i) {
        history& h = track({rank, list[i], place::scratch});
        bool known = h.writer == none || h.writer == writer || clock(writer, h.writer) > h.written;
        for (const auto& [reader, value] : h.readers) known = known && (reader == writer || clock(writer, reader) > value);
        if (!known) continue;
        const int index = list[i];
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        return index;
    }
    return plan_->ranks[rank].scratch++;
}

// Where the receive of this round into slot s goes, were there no conflict.
inline location planner::target(int rank, int s, int round) {
    const int unit = output_unit(rank, s);
    if (unit != none && (c_ != collective::all_to_all || slot(rank, s).last_write == round))
        return {rank, unit, place::output};
    return {rank, none, place::scratch};
}

inline void planner::send_phase(int round) {
    for (auto& list : arrivals_) list.clear();
    for (int a = 0; a < n_; ++a) {
        auto& body = plan_->ranks[a].body;
        const int done = 2 * round + 1;
        std::vector<instruction> copies;
        for (int p = 0; p < ports_; ++p) {
            const step& st = step_at(a, round, p);
            const int q = st.send.peer;
            if (q == none) continue;
            const receive_part& into = step_at(q, round, p).recv;
            for (int i = 0; i < st.send.blocks.size(); ++i) {
                const int from = st.send.blocks[i], to = into.blocks[i];
                const slot_state& source = slot(a, from);
                if (owned(c_) && from < slots_per_rank_ && home_unit_[from] == none) continue;   // an empty slot
                location at = source.at;
                at.leaf = source.contributions == 1;
                const auto& landing = slot(q, to);
                if (q == a) {   // local: in the fold phase
                    arrivals_[q].push_back({to, a, at, source.contributions, into.action});
                    continue;
                }
                location goal = target(q, to, round);
                const bool pull = into.action == action::reduce && source.written_in != round;
                const bool push = into.action == action::copy &&
                                  (landing.sent_in != round || goal.where == place::scratch ||
                                   (c_ == collective::all_to_all && landing.at.where != place::output));
                if (!pull) {
                    if (goal.where == place::scratch || !push) goal = {q, take_scratch(a, q), place::scratch};
                    read(a, at, done);
                    write(a, goal, done);
                    auto& operands = plan_->ranks[a].operands;
                    copies.push_back({.op = opcode::copy, .peer = q, .unit = length_unit(from, at), .round = round,
                                      .first = static_cast<int>(operands.size()), .count = 1, .to = goal});
                    operands.push_back(at);
                }
                if (push) {
                    goal.leaf = at.leaf;
                    changes_.push_back({q, to, goal, source.contributions});
                } else {
                    location where = pull ? at : goal;
                    where.leaf = at.leaf;
                    arrivals_[q].push_back({to, a, where, source.contributions, into.action});
                }
            }
        }
        flush_waits(a, body, round);
        body.insert(body.end(), copies.begin(), copies.end());
        publish(a, done, round);
    }
    snapshot(2 * round + 1);
}

inline void planner::fold_phase(int round) {
    const int done = 2 * round + 2;
    for (int r = 0; r < n_; ++r) {
        auto& list = arrivals_[r];
        auto& operands = plan_->ranks[r].operands;
        std::vector<instruction> folds;
        std::vector<int> landed;
        for (std::size_t i = 0; i < list.size(); ++i) {
            const int s = list[i].slot;
            if (s < 0) continue;
            const slot_state& own = slot(r, s);
            // Everything that arrives for this slot, in ascending rank order; the own value at its own place, a local
            // operand on its left.
            std::vector<arrival> parts;
            for (std::size_t j = i; j < list.size(); ++j)
                if (list[j].slot == s) {
                    parts.push_back(list[j]);
                    list[j].slot = -1;
                }
            if (parts.front().act == action::reduce && own.contributions > 0) {
                location at = own.at;
                at.leaf = own.contributions == 1;
                parts.push_back({s, r, at, own.contributions, action::reduce});
            }
            for (std::size_t j = 1; j < parts.size(); ++j)
                for (std::size_t t = j; t > 0 && parts[t].from < parts[t - 1].from; --t) std::swap(parts[t], parts[t - 1]);
            location goal = target(r, s, round);
            int total = 0;
            if (goal.where == place::scratch)
                goal.index = own.at.where == place::scratch && own.contributions > 0 && own.at.rank == r
                                 ? own.at.index
                                 : take_scratch(r, r);
            instruction fold{.op = parts.front().act == action::reduce ? opcode::fold : opcode::copy,
                             .peer = r, .unit = length_unit(s, parts.front().source), .round = round,
                             .first = static_cast<int>(operands.size()), .count = static_cast<int>(parts.size()),
                             .to = goal};
            for (const arrival& part : parts) {
                read(r, part.source, done);
                operands.push_back(part.source);
                if (part.source.where == place::scratch && part.source.rank == r && part.from != r)
                    landed.push_back(part.source.index);
                total += part.contributions;
            }
            write(r, goal, done);
            fold.finish = fold.op == opcode::fold && total == n_;
            folds.push_back(fold);
            changes_.push_back({r, s, goal, total});
        }
        if (c_ == collective::barrier)
            for (int p = 0; p < ports_; ++p)
                if (const int q = step_at(r, round, p).recv.peer; q != none) need(r, q, 2 * round + 1);
        flush_waits(r, plan_->ranks[r].body, round);
        auto& body = plan_->ranks[r].body;
        body.insert(body.end(), folds.begin(), folds.end());
        publish(r, done, round);
        for (const int index : landed) free_scratch_[r].push_back(index);
    }
    snapshot(done);
    for (const change& c : changes_) {
        slot_state& st = slot(c.rank, c.slot);
        if (st.contributions > 0 && st.at.where == place::scratch &&
            (c.at.where != place::scratch || c.at.index != st.at.index))
            free_scratch_[c.rank].push_back(st.at.index);
        st.at = c.at;
        st.contributions = c.contributions;
    }
    changes_.clear();
    release_scratch(round);
}

// Scratch slots whose content nobody uses after this round.
inline void planner::release_scratch(int round) {
    for (int r = 0; r < n_; ++r)
        for (int s = 0; s < width_; ++s) {
            slot_state& st = slot(r, s);
            if (st.last_use == round && st.contributions > 0 && st.at.where == place::scratch) {
                free_scratch_[r].push_back(st.at.index);
                st.contributions = 0;
            }
        }
}

// What a rank held from the start and nobody overwrote still has to get from its input to its output.
inline void planner::keep_phase() {
    const int done = 2 * rounds_;
    for (int r = 0; r < n_; ++r) {
        std::vector<instruction> keeps;
        auto& operands = plan_->ranks[r].operands;
        for (int s = 0; s < slots_per_rank_; ++s) {
            slot_state& st = slot(r, s);
            const int unit = output_unit(r, s);
            // A contribution that was only moved (a scan's) still has to meet the operator, which may transform it.
            const bool raw = reduces(c_) && st.contributions == 1;
            if (unit == none || st.contributions == 0 || (st.at.where == place::output && !raw)) continue;
            const location goal{r, unit, place::output};
            read(r, st.at, done);
            write(r, goal, done);
            keeps.push_back({.op = reduces(c_) ? opcode::fold : opcode::copy, .finish = n_ == 1, .keep = true, .peer = r,
                             .unit = length_unit(s, st.at), .round = rounds_, .first = static_cast<int>(operands.size()), .count = 1, .to = goal});
            operands.push_back(st.at);
            operands.back().leaf = st.contributions == 1;
        }
        flush_waits(r, plan_->ranks[r].body, rounds_);
        auto& body = plan_->ranks[r].body;
        body.insert(body.end(), keeps.begin(), keeps.end());
    }
}

// A rank leaves when its own results have arrived and nobody will touch its memory any more.
inline void planner::exit_phase() {
    for (int r = 0; r < n_; ++r) {
        for (const history& h : histories_[r]) {
            if (h.writer != none) need(r, h.writer, h.written);
            for (const auto& [reader, value] : h.readers) need(r, reader, value);
        }
        flush_waits(r, plan_->ranks[r].exit, rounds_);
    }
}

inline void planner::drop_unneeded() {
    const std::size_t values = 2 * static_cast<std::size_t>(rounds_) + 1;
    std::vector<bool> awaited(values * n_);
    for (const program& p : plan_->ranks)
        for (const auto* list : {&p.body, &p.exit})
            for (const instruction& i : *list)
                if (i.op == opcode::wait) awaited[static_cast<std::size_t>(i.peer) * values + i.value] = true;
    for (int r = 0; r < n_; ++r)
        std::erase_if(plan_->ranks[r].body, [&](const instruction& i) {
            return i.op == opcode::publish && !awaited[static_cast<std::size_t>(r) * values + i.value];
        });
}

inline std::shared_ptr<const plan> planner::make() {
    const std::string what = "colls: " + std::string(s_.name()) + " at " + std::to_string(n_) + " ranks: ";
    if (!s_.supports(n_)) throw error(errc::unsupported, what + "the schedule does not support this group size");
    if (const auto report = verify(s_, n_); !report.ok())
        throw error(errc::wrong_schedule, what + "the proof rejects it: " + report.text(), report.rank, none, report.round);
    plan_ = std::make_shared<plan>(s_, n_);
    plan_->ranks.resize(static_cast<std::size_t>(n_));
    read_schedule();
    name_units();
    initial_state();
    for (int k = 0; k < rounds_; ++k) {
        scan(k);
        send_phase(k);
        fold_phase(k);
    }
    keep_phase();
    exit_phase();
    drop_unneeded();
    plan_->order_preserving = reduces(c_) && properties_of(s_, n_).order_preserving;
    return plan_;
}

/// The plan of a schedule at n ranks; made once in the process, then shared by all ranks and groups.
inline std::shared_ptr<const plan> plan_for(const any_schedule& s, int n) {
    static std::mutex mutex;
    static std::vector<std::shared_ptr<const plan>> cache;
    const std::lock_guard lock(mutex);
    for (const auto& p : cache)
        if (p->size == n && p->schedule == s) return p;
    cache.push_back(planner(s, n).make());
    return cache.back();
}

}  // namespace colls::inline v1::detail
