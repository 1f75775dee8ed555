// From a proven schedule to one program per rank for executors that load from and store to a peer's memory.
//
// A reduction is pulled (the receiver reads the sender's slot while it folds), a copy is pushed (the sender stores
// into the receiver's slot), but for those of broadcast and scatter, which are pulled too. Where a round both sends and
// overwrites a slot, the data goes through a landing slot in the receiver's scratch instead. Waits are derived, not
// declared: every location keeps its last writer and its readers since; an access needs those before it to be done, and
// a wait is emitted only where the rank's vector clock does not imply it. What is waited for is one number per rank:
//     0          the rank has entered the operation (its buffers are exposed)
//     2k + 1     it has done the stores of round k into its peers
//     2k + 2     it has done its folds of round k
// A wait in the send phase of round k names values up to 2k, in the fold phase up to 2k + 1: strictly earlier in the
// order (round, phase), so by induction on the smallest unfinished phase nothing can block for ever (law: live).
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/support/list.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace colls::inline v1::detail {

/// From one to many: the many have more hands than the one.
constexpr bool pulls_copies(collective c) { return c == collective::broadcast || c == collective::scatter; }

/// Where a slot's data lies. `input` and `output` are the user's buffers, indexed by unit (part of a user block);
/// `scratch` is indexed by a number of its own.
enum class place : std::uint8_t { input, output, scratch };

struct location {
    int rank = 0;
    int index = 0;
    place where = place::input;
    bool leaf = false;  ///< an unreduced contribution
};

enum class opcode : std::uint8_t {
    wait,
    publish,
    copy,
    fold,
    send,
    receive,
    arrived,
    left  ///< of messages: offer one, take one, wait until it is there, until it is gone
};

struct instruction {
    opcode op;
    bool finish = false;  ///< fold: the result is complete
    bool keep = false;    ///< copy: the rank's own data, from its input to its output
    int peer = 0;         ///< wait: for whom
    int value = 0;        ///< wait, publish; messages: their number in this program, sent and received apart
    int unit = 0;         ///< copy, fold: whose length it is; send, receive: the port
    int round = 0;        ///< for messages
    int first = 0;        ///< copy, fold: operands [first, first + count)
    int count = 0;
    int pushes = 0;  ///< fold: so many of the following are copies of its result
    location to{};
};

struct rank_program {
    list<instruction> reuse_waits;  ///< staged: waits before a chunk, for the one that used the same scratch slots
    list<instruction> body;         ///< once per chunk
    list<instruction> exit;         ///< waits after the last chunk
    list<location> operands;
    int scratch = 0;  ///< scratch slots of this rank
    // Where messages pass:
    list<int> units;     ///< of each operand, whose length it has
    list<int> segments;  ///< what of the body posts a round's messages (the first: those sent ahead too), and what
                         ///< finishes the round before, ends here
    int sends = 0, receives = 0;  ///< messages
};

/// What of a rank's memory the others can reach.
enum class reach : std::uint8_t {
    buffers,  ///< the callers' buffers, and scratch memory
    scratch,  ///< scratch memory alone: what others are to read is copied there first (staged)
    nothing   ///< messages pass
};

/// What all ranks do. Made once, never changed, kept until the process ends.
struct execution_plan {
    execution_plan(const any_schedule& s, int n, reach r)
        : schedule(s), size(n), within(r), ranks(new rank_program[static_cast<std::size_t>(n)]) {}
    any_schedule schedule;
    int size;
    reach within;
    mutable std::atomic<const execution_plan*> staged =
        nullptr;  ///< the same within reach::scratch, once it is asked for
    int rounds = 0;
    int blocks = 1;  ///< user blocks: size, or the parts of the whole buffer
    int parts = 1;   ///< units per user block, at most
    int fewest_parts = 1;
    list<int> parts_of;    ///< ... of each block, where they differ
    bool own_blocks_only = true;  ///< messages: off the root, ranks handle their own block alone
    int root = 0;
    std::uint64_t fingerprint = 0;  ///< of the schedule's type and every step
    bool order_preserving = false;  ///< known where the schedule was proven at run time
    std::unique_ptr<rank_program[]> ranks;

    int values() const { return 2 * rounds; }  ///< progress values per chunk
};

class planner {
public:
    planner(const any_schedule& s, int n, reach r) : s_(s), n_(n), within_(r) {}

    const execution_plan* make();

private:
    // One location's history: who wrote it last, who has read it since (a chain through readers_).
    struct history {
        int writer = none, written = 0, readers = none;
    };
    struct reading {
        int rank, done, next;
    };
    // A slot of a rank, as of the start of the round.
    struct slot_state {
        location at{};
        int contributions = 0;  // 0: undefined
        int last_write = -1, last_use = -1;
        int written_in = -1, sent_in = -1;  // the latest round scanned
        int staged = none;                  // the scratch slot with a copy that others can reach
        action written_by = action::copy;
    };
    struct arrival {  // a block to be folded (or unstaged) by the receiver in this round
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
        return steps_[(long{rank} * rounds_ + round) * ports_ + port];
    }
    [[noreturn]] void refuse(errc code, std::string_view why, int rank = none, int round = none) const {
        message what;
        put_brief(what << "colls: ", s_.name()) << " at " << n_ << " ranks: ";
        if (code == errc::wrong_schedule) what << "the proof rejects it: ";
        throw error(code, (what << why).text(), rank, none, round);
    }
    [[noreturn]] void refuse_size() const {
        message what;
        put_brief(what << "colls: ", s_.name()) << " does not support " << n_ << " ranks: take ";
        if (s_.folds(n_)) put_brief(what << "folded<", s_.name()) << ">, ";
        throw error(errc::unsupported, (what << "direct or automatic").text());
    }
    static void exchange(arrival& a, arrival& b) {
        const arrival c = a;
        a = b;
        b = c;
    }
    rank_program& mine(int rank) { return plan_->ranks[static_cast<std::size_t>(rank)]; }
    slot_state& slot(int rank, int s) { return slots_[long{rank} * width_ + s]; }
    history& track(const location& l) {
        list<history>& h = histories_[static_cast<std::size_t>(l.rank)];
        // Input and output of one slot may be one memory (in place), but for all_to_all, whose in-place calls copy.
        const bool apart = l.where == place::output && c_ == collective::all_to_all;
        const std::size_t id = static_cast<std::size_t>(l.index) + (l.where == place::scratch ? 2 * units_
                                                                       : apart                ? units_
                                                                                              : 0);
        if (h.size() <= id) h.resize(id + 1);
        return h[id];
    }
    std::uint16_t& clock(int a, int x) { return clocks_[long{a} * n_ + x]; }

    void read_schedule();
    void name_units();
    void initial_state();
    void scan(int round);
    void send_phase(int round);
    void fold_phase(int round);
    location stage(int rank, int s, const location& at, int round, list<instruction>& copies);
    void unstage(int rank, slot_state& st) {
        if (st.staged != none) free_scratch_[static_cast<std::size_t>(rank)].push_back(st.staged);
        st.staged = none;
    }
    void post_ahead();
    void ring_phase();
    void post_phase(int round);
    void pass(int a, int q, int port, int round);
    void overwrite(int actor, const location& l);
    void keep_phase();
    void exit_phase();
    void drop_unneeded();
    void mark_pushes();
    void snapshot(int value);

    int output_unit(int rank, int s) const;
    int length_unit(int rank, int s, const location& data) const;
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
    void flush_waits(int actor, list<instruction>& into, int round);
    void need_readers(int actor, const history& h) {
        for (int i = h.readers; i != none; i = readers_[i].next) need(actor, readers_[i].rank, readers_[i].done);
    }
    void publish(int rank, int value, int round);

    const any_schedule& s_;
    const int n_;
    const reach within_;
    collective c_{};
    int rounds_ = 0, ports_ = 1, slots_per_rank_ = 0, width_ = 0, root_ = 0;
    std::size_t units_ = 0;
    std::unique_ptr<execution_plan> plan_;
    list<step> steps_;
    list<int> home_unit_;  // owned collectives: slot -> unit, or none
    list<slot_state> slots_;
    list<reading> readers_;
    std::unique_ptr<list<history>[]> histories_;
    std::unique_ptr<list<arrival>[]> arrivals_;
    std::unique_ptr<list<int>[]> free_scratch_;
    std::unique_ptr<list<instruction>[]> outgoing_, incoming_;
    list<change> changes_;
    list<std::uint16_t> clocks_, snapshots_;
    bool transitive_ = true;
    list<int> needed_, pending_;
};

inline void planner::read_schedule() {
    c_ = s_.implements;
    rounds_ = s_.rounds(n_);
    ports_ = s_.ports(n_);
    slots_per_rank_ = s_.blocks(n_);
    width_ = slots_per_rank_ + s_.scratch(n_);
    if (rounds_ >= 30000) refuse(errc::unsupported, "more than 30,000 rounds");
    if (width_ > slots_per_rank_ && slots_per_rank_ > 1)
        refuse(errc::unsupported, "scratch slots need a schedule of one block");
    root_ = rooted(c_) ? s_.root(n_) : 0;
    steps_.reserve(static_cast<std::size_t>(n_) * static_cast<std::size_t>(rounds_) * static_cast<std::size_t>(ports_));
    std::uint64_t h = hash_mix(hash_text(s_.type()), static_cast<std::uint64_t>(slots_per_rank_));
    for (int r = 0; r < n_; ++r)
        for (int k = 0; k < rounds_; ++k)
            for (int p = 0; p < ports_; ++p) {
                const step st = s_.at(r, n_, k, p);
                steps_.push_back(st);
                const auto mix = [&h](int a, int b) {
                    h = hash_mix(
                        h, static_cast<std::uint64_t>(static_cast<unsigned>(a)) << 32 | static_cast<unsigned>(b));
                };
                mix(st.send.peer, st.recv.peer);
                mix(st.send.blocks.size(), st.recv.blocks.size());
                if (!st.send.blocks.empty()) mix(st.send.blocks[0], st.send.blocks[st.send.blocks.size() - 1]);
                if (!st.recv.blocks.empty()) mix(st.recv.blocks[0], static_cast<int>(st.recv.action));
            }
    plan_->fingerprint = h;
    plan_->rounds = rounds_;
    plan_->root = root_;
}

// User blocks and their parts. Several slots of one home cut that block in ascending slot order.
inline void planner::name_units() {
    if (owned(c_)) {
        list<int> seen;
        seen.resize(static_cast<std::size_t>(n_));
        home_unit_.resize(static_cast<std::size_t>(slots_per_rank_), none);
        for (int s = 0; s < slots_per_rank_; ++s)
            if (const int h = s_.home(n_, s); h != none) home_unit_[s] = seen[h]++;
        plan_->blocks = n_;
        plan_->parts = plan_->fewest_parts = seen[0];
        for (const int k : seen) {
            if (k > plan_->parts) plan_->parts = k;
            if (k < plan_->fewest_parts) plan_->fewest_parts = k;
        }
        for (int s = 0; s < slots_per_rank_; ++s)
            if (home_unit_[s] != none) home_unit_[s] += s_.home(n_, s) * plan_->parts;
        if (plan_->fewest_parts != plan_->parts) plan_->parts_of = std::move(seen);
    } else if (c_ == collective::all_to_all) {
        plan_->blocks = n_;
        plan_->parts = plan_->fewest_parts = slots_per_rank_ / n_;
    } else {
        plan_->blocks = slots_per_rank_;
        plan_->parts = 1;
    }
    units_ = static_cast<std::size_t>(plan_->blocks) * static_cast<std::size_t>(plan_->parts);
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
        case collective::gather:
            return rank == root_ ? unit : none;
        case collective::scatter:
        case collective::reduce_scatter:
            return unit / plan_->parts == rank ? unit : none;
        case collective::exclusive_scan:
            return rank == 0 ? none : unit;
        default:
            return unit;
    }
}

// The unit whose length a rank's slot s has. Blocks of an all_to_all are of one length, but for the direct one with
// counts, where data comes straight from the input; their parts are not, and a part stays one.
inline int planner::length_unit(int rank, int s, const location& data) const {
    if (c_ == collective::all_to_all)
        return data.where == place::input ? data.index : plan_->parts > 1 ? output_unit(rank, s) % plan_->parts : 0;
    if (s >= slots_per_rank_) return 0;
    return owned(c_) ? home_unit_[s] : s;
}

inline void planner::initial_state() {
    const auto n = static_cast<std::size_t>(n_);
    slots_.resize(n * static_cast<std::size_t>(width_));
    for (int r = 0; r < n_; ++r)
        for (int s = 0; s < slots_per_rank_; ++s) {
            slot_state& st = slot(r, s);
            int unit = owned(c_) ? home_unit_[s] : s;
            bool has = unit != none && c_ != collective::barrier;
            if (c_ == collective::scatter || c_ == collective::broadcast) has = has && r == root_;
            if (c_ == collective::gather || c_ == collective::all_gather) has = has && unit / plan_->parts == r;
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
    histories_.reset(new list<history>[n]);
    arrivals_.reset(new list<arrival>[n]);
    free_scratch_.reset(new list<int>[n]);
    outgoing_.reset(new list<instruction>[n]);
    incoming_.reset(new list<instruction>[n]);
    clocks_.resize(n * n);
    needed_.resize(n, -1);
    // Knowing nobody's entry is different from knowing value 0: clocks hold value + 1.
    const std::size_t bytes = (2 * static_cast<std::size_t>(rounds_) + 1) * clocks_.size() * sizeof(std::uint16_t);
    transitive_ = within_ != reach::nothing && bytes <= std::size_t{256} << 20;
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
            for (int i = 0; st.recv.peer != none && i < st.recv.blocks.size(); ++i) {
                slot_state& to = slot(r, st.recv.blocks[i]);
                if (to.written_in == round && to.written_by != st.recv.action)
                    refuse(errc::unsupported, "one round copies and reduces into one block");
                to.written_in = round;
                to.written_by = st.recv.action;
            }
        }
}

inline void planner::read(int actor, const location& l, int done) {
    if (within_ == reach::nothing) return;  // its own memory, at once
    history& h = track(l);
    if (h.writer != none) need(actor, h.writer, h.written);
    if (l.rank != actor) need(actor, l.rank, 0);
    readers_.push_back({actor, done, h.readers});
    h.readers = static_cast<int>(readers_.size()) - 1;
}
inline void planner::write(int actor, const location& l, int done) {
    if (within_ == reach::nothing) return overwrite(actor, l);
    history& h = track(l);
    if (h.writer != none) need(actor, h.writer, h.written);
    if (l.rank != actor) need(actor, l.rank, 0);
    need_readers(actor, h);
    h.readers = none;
    h.writer = actor;
    h.written = done;
}

// The strongest first: what its clock implies need not be waited for.
inline void planner::flush_waits(int actor, list<instruction>& into, int round) {
    while (!pending_.empty()) {
        std::size_t best = 0;
        for (std::size_t i = 1; i < pending_.size(); ++i)
            if (needed_[pending_[i]] > needed_[pending_[best]]) best = i;
        const int x = pending_[best], value = needed_[x];
        pending_.drop(best);
        needed_[x] = -1;
        if (clock(actor, x) > value) continue;
        into.push_back(
            {.op = within_ == reach::nothing ? opcode::left : opcode::wait, .peer = x, .value = value, .round = round});
        clock(actor, x) = static_cast<std::uint16_t>(value + 1);
        if (!transitive_) continue;
        const std::uint16_t* seen = snapshots_.data() + static_cast<std::size_t>(value) * clocks_.size() +
                                    static_cast<std::size_t>(x) * static_cast<std::size_t>(n_);
        for (int y = 0; y < n_; ++y)
            if (seen[y] > clock(actor, y)) clock(actor, y) = seen[y];
    }
}

inline void planner::publish(int rank, int value, int round) {
    mine(rank).body.push_back({.op = opcode::publish, .value = value, .round = round});
}

// A scratch slot of `rank` that `writer` may overwrite without a further wait, or a new one.
inline int planner::take_scratch(int writer, int rank) {
    auto& free = free_scratch_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < free.size(); ++i) {
        history& h = track({rank, free[i], place::scratch});
        bool known = h.writer == none || h.writer == writer || clock(writer, h.writer) > h.written;
        for (int j = h.readers; j != none; j = readers_[j].next)
            known = known && (readers_[j].rank == writer || clock(writer, readers_[j].rank) > readers_[j].done);
        if (!known) continue;
        const int index = free[i];
        free.drop(i);
        return index;
    }
    return mine(rank).scratch++;
}

// Messages that are still to leave from there must have left.
inline void planner::overwrite(int actor, const location& l) {
    history& h = track(l);
    need_readers(actor, h);
    h.readers = none;
}

// Where the receive of this round into slot s goes, were there no conflict.
inline location planner::target(int rank, int s, int round) {
    const int unit = output_unit(rank, s);
    if (unit != none && (c_ != collective::all_to_all || slot(rank, s).last_write == round))
        return {rank, unit, place::output};
    return {rank, none, place::scratch};
}

// What others are to read, where they can reach it; copied there once, however many they are.
inline location planner::stage(int rank, int s, const location& at, int round, list<instruction>& copies) {
    slot_state& own = slot(rank, s);
    const bool fresh = own.staged == none;
    if (fresh) own.staged = take_scratch(rank, rank);
    const location copy{rank, own.staged, place::scratch, at.leaf};
    if (!fresh) return copy;
    read(rank, at, 2 * round + 1);
    write(rank, copy, 2 * round + 1);
    auto& operands = mine(rank).operands;
    copies.push_back({.op = opcode::copy,
        .peer = rank,
        .unit = length_unit(rank, s, at),
        .round = round,
        .first = static_cast<int>(operands.size()),
        .count = 1,
        .to = copy});
    operands.push_back(at);
    return copy;
}

inline void planner::send_phase(int round) {
    for (int r = 0; r < n_; ++r) arrivals_[static_cast<std::size_t>(r)].clear();
    list<instruction> copies;
    for (int a = 0; a < n_; ++a) {
        auto& body = mine(a).body;
        const int done = 2 * round + 1;
        copies.clear();
        for (int p = 0; p < ports_; ++p) {
            const step& st = step_at(a, round, p);
            const int q = st.send.peer;
            if (q == none) continue;
            const receive_part& into = step_at(q, round, p).recv;
            for (int i = 0; i < st.send.blocks.size(); ++i) {
                const int from = st.send.blocks[i], to = into.blocks[i];
                const slot_state& source = slot(a, from);
                if (owned(c_) && from < slots_per_rank_ && home_unit_[from] == none) continue;  // an empty slot
                location at = source.at;
                at.leaf = source.contributions == 1;
                const auto& landing = slot(q, to);
                if (q == a) {  // local: in the fold phase
                    arrivals_[static_cast<std::size_t>(q)].push_back({to, a, at, source.contributions, into.action});
                    continue;
                }
                if (within_ == reach::scratch) {  // pulled from there: what the round overwrites is another slot
                    const location reached = at.where == place::scratch ? at : stage(a, from, at, round, copies);
                    arrivals_[static_cast<std::size_t>(q)].push_back(
                        {to, a, reached, source.contributions, into.action});
                    continue;
                }
                location goal = target(q, to, round);
                const bool pull = (into.action == action::reduce || pulls_copies(c_)) && source.written_in != round;
                const bool push = !pull && into.action == action::copy &&
                                  (landing.sent_in != round || goal.where == place::scratch ||
                                      (c_ == collective::all_to_all && landing.at.where != place::output));
                if (!pull) {
                    if (goal.where == place::scratch || !push) goal = {q, take_scratch(a, q), place::scratch};
                    read(a, at, done);
                    write(a, goal, done);
                    auto& operands = mine(a).operands;
                    copies.push_back({.op = opcode::copy,
                        .peer = q,
                        .unit = length_unit(a, from, at),
                        .round = round,
                        .first = static_cast<int>(operands.size()),
                        .count = 1,
                        .to = goal});
                    operands.push_back(at);
                }
                if (push) {
                    goal.leaf = at.leaf;
                    changes_.push_back({q, to, goal, source.contributions});
                } else {
                    location where = pull ? at : goal;
                    where.leaf = at.leaf;
                    arrivals_[static_cast<std::size_t>(q)].push_back({to, a, where, source.contributions, into.action});
                }
            }
        }
        flush_waits(a, body, round);
        body.append(copies);
        publish(a, done, round);
    }
    snapshot(2 * round + 1);
}

// One message, from its sender's slots to where its receiver wants them: what is copied straight to its place, unless
// that is sent from in this round; else into a scratch slot, to be folded or copied from.
inline void planner::pass(int a, int q, int port, int round) {
    const block_set from = step_at(a, round, port).send.blocks;
    const receive_part& into = step_at(q, round, port).recv;
    rank_program &sender = mine(a), &receiver = mine(q);
    instruction out{.op = opcode::send,
        .peer = q,
        .value = sender.sends++,
        .unit = port,
        .round = round,
        .first = static_cast<int>(sender.operands.size())};
    instruction in{.op = opcode::receive,
        .peer = a,
        .value = receiver.receives++,
        .unit = port,
        .round = round,
        .first = static_cast<int>(receiver.operands.size())};
    for (int i = 0; i < from.size(); ++i) {
        if (owned(c_) && from[i] < slots_per_rank_ && home_unit_[from[i]] == none) continue;  // an empty slot
        const slot_state& source = slot(a, from[i]);
        const int to = into.blocks[i];
        const slot_state& landing = slot(q, to);
        location at = source.at, goal = target(q, to, round);
        const bool lands =
            into.action == action::copy && (landing.sent_in != round || goal.where == place::scratch ||
                                               (c_ == collective::all_to_all && landing.at.where != place::output));
        if (!lands || goal.where == place::scratch) goal = {q, take_scratch(q, q), place::scratch};
        goal.leaf = source.contributions == 1;
        history& h = track(at);
        readers_.push_back({q, out.value, h.readers});
        h.readers = static_cast<int>(readers_.size()) - 1;
        overwrite(q, goal);
        sender.operands.push_back(at);
        receiver.operands.push_back(goal);
        const int length = length_unit(a, from[i], at), landed = length_unit(q, to, goal);
        sender.units.resize(sender.operands.size());
        sender.units.back() = length;
        receiver.units.resize(receiver.operands.size());
        receiver.units.back() = landed;
        for (const auto& [r, unit] : {std::pair{a, length}, std::pair{q, landed}})
            plan_->own_blocks_only = plan_->own_blocks_only && (r == root_ || unit / plan_->parts == r);
        if (lands)
            changes_.push_back({q, to, goal, source.contributions});
        else
            arrivals_[static_cast<std::size_t>(q)].push_back({to, a, goal, source.contributions, into.action});
    }
    out.count = static_cast<int>(sender.operands.size()) - out.first;
    in.count = static_cast<int>(receiver.operands.size()) - in.first;
    outgoing_[static_cast<std::size_t>(a)].push_back(out);
    flush_waits(q, incoming_[static_cast<std::size_t>(q)], round);
    incoming_[static_cast<std::size_t>(q)].push_back(in);
}

// All messages of a round: each rank offers its own, then says where those of others go. They come and go in this order
// on every channel, on both sides.
inline void planner::post_phase(int round) {
    for (int r = 0; r < n_; ++r) {
        arrivals_[static_cast<std::size_t>(r)].clear();
        outgoing_[static_cast<std::size_t>(r)].clear();
        incoming_[static_cast<std::size_t>(r)].clear();
    }
    for (int p = 0; p < ports_; ++p)
        for (int a = 0; a < n_; ++a) {
            const step& st = step_at(a, round, p);
            if (st.send.peer == none) continue;
            if (st.send.peer != a) {
                pass(a, st.send.peer, p, round);
                continue;
            }
            const receive_part& into = st.recv;  // to oneself
            for (int i = 0; i < st.send.blocks.size(); ++i) {
                const slot_state& source = slot(a, st.send.blocks[i]);
                location at = source.at;
                at.leaf = source.contributions == 1;
                arrivals_[static_cast<std::size_t>(a)].push_back(
                    {into.blocks[i], a, at, source.contributions, into.action});
            }
        }
    for (int r = 0; r < n_; ++r) {
        auto& body = mine(r).body;
        body.append(outgoing_[static_cast<std::size_t>(r)]);
        body.append(incoming_[static_cast<std::size_t>(r)]);
        mine(r).segments.push_back(static_cast<int>(body.size()));
        for (const instruction& i : incoming_[static_cast<std::size_t>(r)])
            if (i.op == opcode::receive)
                body.push_back({.op = opcode::arrived, .peer = i.peer, .value = i.value, .round = round});
    }
}

inline void planner::fold_phase(int round) {
    const int done = 2 * round + 2;
    list<instruction> folds;
    list<int> landed;
    list<arrival> parts;
    for (int r = 0; r < n_; ++r) {
        auto& list = arrivals_[static_cast<std::size_t>(r)];
        auto& operands = mine(r).operands;
        folds.clear();
        landed.clear();
        for (std::size_t i = 0; i < list.size(); ++i) {
            const int s = list[i].slot;
            if (s < 0) continue;
            const slot_state& own = slot(r, s);
            // Everything that arrives for this slot, in ascending rank order; the own value at its own place, a local
            // operand on its left.
            parts.clear();
            for (std::size_t j = i; j < list.size(); ++j)
                if (list[j].slot == s) {
                    parts.push_back(list[j]);
                    list[j].slot = -1;
                }
            if (parts[0].act == action::reduce && own.contributions > 0) {
                location at = own.at;
                at.leaf = own.contributions == 1;
                parts.push_back({s, r, at, own.contributions, action::reduce});
            }
            for (std::size_t j = 1; j < parts.size(); ++j)
                for (std::size_t t = j; t > 0 && parts[t].from < parts[t - 1].from; --t)
                    exchange(parts[t], parts[t - 1]);
            location goal = target(r, s, round);
            int total = 0;
            if (goal.where == place::scratch)
                goal.index =
                    own.at.where == place::scratch && own.contributions > 0 && own.at.rank == r &&
                            (within_ != reach::scratch || own.sent_in != round)  // else others are about to pull it
                        ? own.at.index
                        : take_scratch(r, r);
            instruction fold{.op = parts[0].act == action::reduce ? opcode::fold : opcode::copy,
                .peer = r,
                .unit = length_unit(r, s, parts[0].source),
                .round = round,
                .first = static_cast<int>(operands.size()),
                .count = static_cast<int>(parts.size()),
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
        if (c_ == collective::barrier && within_ != reach::nothing)
            for (int p = 0; p < ports_; ++p)
                if (const int q = step_at(r, round, p).recv.peer; q != none) need(r, q, 2 * round + 1);
        flush_waits(r, mine(r).body, round);
        auto& body = mine(r).body;
        body.append(folds);
        if (within_ != reach::nothing) publish(r, done, round);
        free_scratch_[static_cast<std::size_t>(r)].append(landed);
    }
    snapshot(done);
    for (const change& c : changes_) {
        slot_state& st = slot(c.rank, c.slot);
        if (st.contributions > 0 && st.at.where == place::scratch &&
            (c.at.where != place::scratch || c.at.index != st.at.index))
            free_scratch_[static_cast<std::size_t>(c.rank)].push_back(st.at.index);
        unstage(c.rank, st);
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
            if (st.last_use == round) unstage(r, st);
            if (st.last_use == round && st.contributions > 0 && st.at.where == place::scratch) {
                free_scratch_[static_cast<std::size_t>(r)].push_back(st.at.index);
                st.contributions = 0;
            }
        }
}

// What a rank held from the start and nobody overwrote still has to get from its input to its output.
inline void planner::keep_phase() {
    const int done = 2 * rounds_;
    list<instruction> keeps;
    for (int r = 0; r < n_; ++r) {
        keeps.clear();
        auto& operands = mine(r).operands;
        for (int s = 0; s < slots_per_rank_; ++s) {
            slot_state& st = slot(r, s);
            const int unit = output_unit(r, s);
            // A contribution that was only moved (a scan's) still has to meet the operator, which may transform it.
            const bool raw = reduces(c_) && st.contributions == 1;
            if (unit == none || st.contributions == 0 || (st.at.where == place::output && !raw)) continue;
            const location goal{r, unit, place::output};
            read(r, st.at, done);
            write(r, goal, done);
            keeps.push_back({.op = reduces(c_) ? opcode::fold : opcode::copy,
                .finish = n_ == 1,
                .keep = true,
                .peer = r,
                .unit = length_unit(r, s, st.at),
                .round = rounds_,
                .first = static_cast<int>(operands.size()),
                .count = 1,
                .to = goal});
            operands.push_back(st.at);
            operands.back().leaf = st.contributions == 1;
        }
        flush_waits(r, mine(r).body, rounds_);
        auto& body = mine(r).body;
        body.append(keeps);
    }
}

// A rank leaves when its own results have arrived and nobody will touch its memory any more.
inline void planner::exit_phase() {
    for (int r = 0; r < n_; ++r) {
        for (const history& h : histories_[static_cast<std::size_t>(r)]) {
            if (h.writer != none) need(r, h.writer, h.written);
            need_readers(r, h);
        }
        flush_waits(r, mine(r).exit, rounds_);
    }
}

// What a rank held from the start need not wait for what comes in the rounds before: it goes with the first round's
// messages. Not where another message to the same rank could be overtaken: what is posted between two ranks comes in
// one order.
inline void planner::post_ahead() {
    list<int> messages;
    list<instruction> kept;
    for (int r = 0; r < n_ && rounds_ > 0; ++r) {
        rank_program& m = mine(r);
        messages.clear();
        messages.resize(static_cast<std::size_t>(n_));
        for (const instruction& i : m.body) messages[static_cast<std::size_t>(i.peer)] += i.op == opcode::send;
        const auto goes_ahead = [&](const instruction& i) {
            bool held = i.op == opcode::send && i.count > 0 && messages[static_cast<std::size_t>(i.peer)] == 1;
            for (int k = 0; held && k < i.count; ++k)
                held = m.operands[static_cast<std::size_t>(i.first + k)].where == place::input;
            return held;
        };
        kept.clear();
        int at = m.segments[0];
        for (int i = 0; i < static_cast<int>(m.body.size()); ++i)
            if (i < at || goes_ahead(m.body[i])) kept.push_back(m.body[i]);
        m.segments[0] = static_cast<int>(kept.size());
        for (std::size_t k = 1; k <= m.segments.size(); ++k) {
            const int end = k < m.segments.size() ? m.segments[k] : static_cast<int>(m.body.size());
            for (; at < end; ++at)
                if (!goes_ahead(m.body[at])) kept.push_back(m.body[at]);
            if (k < m.segments.size()) m.segments[k] = static_cast<int>(kept.size());
        }
        m.body.clear();
        m.body.append(kept);
    }
}

// Staged, the scratch slots of a chunk are used again some chunks later: by then their readers must be done.
inline void planner::ring_phase() {
    list<std::uint16_t> known;
    for (int r = 0; r < n_; ++r) {
        known.clear();
        for (int x = 0; x < n_; ++x) known.push_back(clock(r, x));
        for (const history& h : histories_[static_cast<std::size_t>(r)]) need_readers(r, h);
        // Two chunks or more later: who is known to have done anything in the chunk between has done all of that one.
        for (int x = 0; x < n_; ++x)
            if (clock(r, x) > 1) clock(r, x) = 0xffff;
        flush_waits(r, mine(r).reuse_waits, rounds_);
        for (int x = 0; x < n_; ++x) clock(r, x) = known[x];  // of an earlier chunk: at the exit it is not known yet
    }
}

inline void planner::drop_unneeded() {
    const std::size_t values = 2 * static_cast<std::size_t>(rounds_) + 1;
    list<bool> awaited;
    awaited.resize(values * static_cast<std::size_t>(n_));
    const auto awaits = [&](const list<instruction>& all) {
        for (const instruction& i : all)
            if (i.op == opcode::wait)
                awaited[static_cast<std::size_t>(i.peer) * values + static_cast<std::size_t>(i.value)] = true;
    };
    for (int r = 0; r < n_; ++r) {
        awaits(mine(r).reuse_waits);
        awaits(mine(r).body);
        awaits(mine(r).exit);
    }
    for (int r = 0; r < n_; ++r) {
        auto& body = mine(r).body;
        std::size_t kept = 0;
        for (const instruction& i : body)
            if (i.op != opcode::publish ||
                awaited[static_cast<std::size_t>(r) * values + static_cast<std::size_t>(i.value)])
                body[kept++] = i;
        body.resize(kept);
    }
}

// What is pushed as soon as it is folded can go out while it is in the nearest cache.
inline void planner::mark_pushes() {
    for (int r = 0; r < n_; ++r) {
        auto& body = mine(r).body;
        for (std::size_t i = 0; i < body.size(); ++i) {
            if (body[i].op != opcode::fold) continue;
            const location& made = body[i].to;
            for (std::size_t j = i + 1; j < body.size() && body[j].op == opcode::copy; ++j) {
                const location& sent = mine(r).operands[body[j].first];
                if (sent.rank != made.rank || sent.where != made.where || sent.index != made.index) break;
                ++body[i].pushes;
            }
        }
    }
}

inline const execution_plan* planner::make() {
    if (!s_.supports(n_)) refuse_size();
    plan_.reset(new execution_plan(s_, n_, within_));
    if (s_.needs_proof()) {
        const finding f = s_.prove(n_);
        if (!f.right) refuse(errc::wrong_schedule, f.text.text(), f.rank, f.round);
        plan_->order_preserving = f.order_preserving;
    }
    read_schedule();
    name_units();
    initial_state();
    for (int k = 0; k < rounds_; ++k) {
        scan(k);
        if (within_ == reach::nothing)
            post_phase(k);
        else
            send_phase(k);
        fold_phase(k);
    }
    keep_phase();
    if (within_ == reach::nothing) {
        post_ahead();
        return plan_.release();
    }
    if (within_ == reach::scratch) ring_phase();
    exit_phase();
    drop_unneeded();
    mark_pushes();
    return plan_.release();
}

/// The execution plan of a schedule at n ranks: the one place where they are made and kept. Throws where there is none.
const execution_plan* execution_plan_for(const any_schedule& s, int n, reach within = reach::buffers);
#ifndef COLLS_SEPARATE
COLLS_INLINE const execution_plan* execution_plan_for(const any_schedule& s, int n, reach within) {
    static std::mutex mutex;
    static list<const execution_plan*>& cache =
        *new list<const execution_plan*>;  // never destroyed: threads may outlive main
    const std::lock_guard lock(mutex);
    for (const execution_plan* p : cache)
        if (p->size == n && p->within == within && p->schedule == s) return p;
    cache.push_back(planner(s, n, within).make());
    return cache.back();
}
#endif
/// The same, for buffers that other ranks cannot reach.
inline const execution_plan& staged(const execution_plan& s) {
    const execution_plan* found = s.staged.load(std::memory_order_acquire);
    if (found == nullptr)
        s.staged.store(found = execution_plan_for(s.schedule, s.size, reach::scratch), std::memory_order_release);
    return *found;
}

}  // namespace colls::inline v1::detail
