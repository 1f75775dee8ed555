// Execution plans for executors that load from and store to the memory of peers.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Each round has two phases. In the send phase a rank stores into its peers' memory, in the fold phase it folds into
// its own; it publishes a progress value after each. A block that is reduced is pulled: the receiver reads the sender's
// slot while it folds. A block that is copied is pushed, that is, stored by its sender, or pulled, as the plan's
// `copies` says. Where a round both sends and overwrites a slot, data go through a scratch slot of the receiver.
//
// Within reach::scratch everything is pulled, and what peers read is staged: copied once to a scratch slot of its
// owner. Within reach::processes it is staged only where the round overwrites it.
#pragma once

#include <colls/detail/plan/dependencies.hpp>
#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/local_work.hpp>
#include <colls/detail/plan/scratch_slots.hpp>
#include <colls/detail/plan/slot_states.hpp>
#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>

#include <utility>

namespace colls::inline v1::detail {

class memory_lowering {
public:
    memory_lowering(const step_table& steps, const unit_map& units, execution_plan& plan)
        : steps_(steps),
          units_(units),
          plan_(plan),
          programs_(steps.size),
          accesses_(steps, units),
          scratch_(steps, programs_, accesses_),
          slots_(steps, units, scratch_),
          work_(steps, units, slots_, scratch_, programs_, plan.within) {}

    /// Makes all programs of the plan.
    void lower();

private:
    static int stored(int round) { return 2 * round + 1; }
    static int folded(int round) { return 2 * round + 2; }

    void send_phase(int round);
    void fold_phase(int round);
    void send_block(int sender, int slot, int receiver, int to, action act, int round);
    bool pushes(int sender, int slot, int receiver) const;
    bool is_overwritten(const slot_state& source, int round) const;
    location stage(int rank, int slot, int round);
    void add_copy(int rank, const location& from, const location& to, int unit, int round);
    void record(int rank, int done) {
        for (const instruction& i : phase_) accesses_.access(rank, i, programs_[rank].operands, done);
    }
    void append_phase(int rank, int round);
    void copy_first(int rank);
    void copy_with_staging(int rank);
    void publish(int rank, int value, int round) {
        programs_[rank].body.push_back({.op = opcode::publish, .value = value, .round = round});
    }
    static void mark_pushes(rank_program& program);

    const step_table& steps_;
    const unit_map& units_;
    execution_plan& plan_;
    per_rank<rank_program> programs_;
    memory_dependencies accesses_;
    scratch_slots scratch_;
    slot_states slots_;
    local_work work_;
    list<instruction> phase_;  // copies and folds of one rank in one phase
};

inline void memory_lowering::lower() {
    for (int k = 0; k < steps_.rounds; ++k) {
        slots_.begin_round(k);
        send_phase(k);
        fold_phase(k);
        slots_.end_round(k);
    }
    for (int r = 0; r < steps_.size; ++r) {
        phase_.clear();
        work_.keep_inputs(r, phase_);
        if (plan_.within == reach::buffers && plan_.copies == copying::pulled) copy_first(r);
        if (plan_.within == reach::scratch) copy_with_staging(r);
        record(r, plan_.values());
        append_phase(r, steps_.rounds);
    }
    for (int r = 0; r < steps_.size; ++r) {
        rank_program& program = programs_[r];
        if (plan_.within == reach::scratch) accesses_.flush_reuse(r, program.reuse_waits, steps_.rounds);
        accesses_.flush_exit(r, program.exit, steps_.rounds);
    }
    drop_unneeded_publications(plan_, programs_);
    for (int r = 0; r < steps_.size; ++r) {
        mark_pushes(programs_[r]);
        plan_.add_program(r, std::move(programs_[r]));
    }
}

inline void memory_lowering::send_phase(int round) {
    for (int r = 0; r < steps_.size; ++r) {
        phase_.clear();
        for (int p = 0; p < steps_.ports; ++p) {
            const step& own = steps_.at(r, round, p);
            const int peer = own.send.peer;
            if (peer == r) work_.add_own(r, own, [](int) { return 0; });
            if (peer == r || peer == none) continue;
            const receive_part& into = steps_.at(peer, round, p).recv;
            for (int i = 0; i < own.send.blocks.size(); ++i)
                send_block(r, own.send.blocks[i], peer, into.blocks[i], into.action, round);
        }
        record(r, stored(round));
        append_phase(r, round);
        publish(r, stored(round), round);
    }
    accesses_.publish_all(stored(round));
}

inline void memory_lowering::send_block(int sender, int slot, int receiver, int to, action act, int round) {
    if (units_.is_empty(slot)) return;
    const slot_state& source = slots_.at(sender, slot);
    const location from = source.data();
    const bool stays = !is_overwritten(source, round);
    if (pulls_all(plan_.within) && !pushes(sender, slot, receiver)) {
        const bool is_reached = from.where == place::scratch || (plan_.within == reach::processes && stays);
        const location reached = is_reached ? from : stage(sender, slot, round);
        return work_.add(receiver, {to, sender, reached, source.contributions, act});
    }
    if (!pulls_all(plan_.within) && stays && (act == action::reduce || plan_.copies == copying::pulled))
        return work_.add(receiver, {to, sender, from, source.contributions, act});
    location goal = slots_.target(receiver, to, round);
    const bool lands = act == action::copy && slots_.can_land(receiver, to, goal, round);
    if (!lands || goal.where == place::scratch) goal = scratch_.take(sender, receiver);
    add_copy(sender, from, goal, units_.length_unit(sender, slot, from), round);
    if (lands)
        slots_.move(receiver, to, goal, source.contributions);
    else
        work_.add(receiver, {to, sender, goal, source.contributions, act});
}

// See pulls_all().
inline bool memory_lowering::pushes(int sender, int slot, int receiver) const {
    if (plan_.within != reach::processes) return false;
    if (steps_.what == collective::gather) return true;
    return steps_.what == collective::broadcast && steps_.rounds == 1 && steps_.blocks == steps_.size &&
           sender == steps_.root && slot == receiver;
}
// May the data be overwritten in the round in which peers pull them?
inline bool memory_lowering::is_overwritten(const slot_state& source, int round) const {
    // Input and output of an all_to_all are different memory.
    return source.received_in == round && !(steps_.what == collective::all_to_all && source.at.where == place::input);
}

// The scratch slot from which peers read the slot's data: they are copied there for the first of them.
inline location memory_lowering::stage(int rank, int slot, int round) {
    slot_state& own = slots_.at(rank, slot);
    const location from = own.data();
    const bool is_staged = own.staged != none;
    if (!is_staged) own.staged = scratch_.take(rank, rank).index;
    const location copy{rank, own.staged, place::scratch};
    if (!is_staged) add_copy(rank, from, copy, units_.length_unit(rank, slot, from), round);
    return copy;
}

inline void memory_lowering::add_copy(int rank, const location& from, const location& to, int unit, int round) {
    list<location>& operands = programs_[rank].operands;
    phase_.push_back({.op = opcode::copy,
        .peer = to.rank,
        .unit = unit,
        .round = round,
        .first = static_cast<int>(operands.size()),
        .count = 1,
        .to = to});
    operands.push_back(from);
}

inline void memory_lowering::fold_phase(int round) {
    for (int r = 0; r < steps_.size; ++r) {
        phase_.clear();
        work_.fold_arrivals(r, round, phase_);
        record(r, folded(round));
        // A barrier has no data whose accesses would make ranks wait.
        if (steps_.what == collective::barrier)
            for (int p = 0; p < steps_.ports; ++p)
                if (const int peer = steps_.at(r, round, p).recv.peer; peer != none)
                    accesses_.need(r, peer, stored(round));
        append_phase(r, round);
        publish(r, folded(round), round);
    }
    accesses_.publish_all(folded(round));
}

/// Moves copies of what has stayed in the rank's input to the begin of its program: there it has time, while the others
/// enter. They need no waits: peers read the input alone, and in place there is nothing to copy.
inline void memory_lowering::copy_first(int rank) {
    rank_program& program = programs_[rank];
    list<instruction> first, rest;
    for (const instruction& i : phase_)
        (i.op == opcode::copy && program.operands[i.first].where == place::input ? first : rest).push_back(i);
    first.append(program.body);
    program.body = std::move(first);
    phase_ = std::move(rest);
}

/// Moves copies of what has stayed in the rank's input behind those that stage the same, so that both are one pass; or,
/// where it is not staged, to the first wait.
inline void memory_lowering::copy_with_staging(int rank) {
    rank_program& program = programs_[rank];
    const auto source = [&](const instruction& i) { return program.operands[i.first]; };
    list<instruction> body, rest;
    list<bool> moved;
    moved.resize(phase_.size());
    const auto move = [&](bool all, const location& staged) {
        for (std::size_t k = 0; k < phase_.size(); ++k) {
            if (moved[k] || phase_[k].op != opcode::copy || source(phase_[k]).where != place::input) continue;
            if (!all && source(phase_[k]).index != staged.index) continue;
            body.push_back(phase_[k]);
            moved[k] = true;
            if (!all) break;
        }
    };
    bool waited = false;
    for (const instruction& i : program.body) {
        if (i.op == opcode::wait && !waited) {
            move(true, {});
            waited = true;
        }
        body.push_back(i);
        if (i.op == opcode::copy && i.to.where == place::scratch && source(i).where == place::input) {
            const std::size_t at = body.size() - 1;
            move(false, source(i));
            body[at].pushes = static_cast<int>(body.size() - 1 - at);
        }
    }
    for (std::size_t k = 0; k < phase_.size(); ++k)
        if (!moved[k]) rest.push_back(phase_[k]);
    program.body = std::move(body);
    phase_ = std::move(rest);
}

inline void memory_lowering::append_phase(int rank, int round) {
    list<instruction>& body = programs_[rank].body;
    accesses_.flush(rank, body, round);
    body.append(phase_);
}

// A fold and the copies of its result that follow it can be done piece by piece, while a piece is in the nearest cache.
inline void memory_lowering::mark_pushes(rank_program& program) {
    list<instruction>& body = program.body;
    for (std::size_t i = 0; i < body.size(); ++i) {
        if (body[i].op != opcode::fold) continue;
        const location& made = body[i].to;
        for (std::size_t j = i + 1; j < body.size() && body[j].op == opcode::copy; ++j) {
            const location& sent = program.operands[body[j].first];
            if (sent.rank != made.rank || sent.where != made.where || sent.index != made.index) break;
            ++body[i].pushes;
        }
    }
}

}  // namespace colls::inline v1::detail
