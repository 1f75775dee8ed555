// Execution plans for executors that pass messages.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// The messages of a round are posted first, each side naming the memory that it sends from or receives into. Posts are
// in the order (port, sender) on all ranks, so the messages of a channel have one order on both sides. A copied block
// is received at its place, unless the round sends from there. Any other block is received into a scratch slot, and
// folded or copied from there when all messages of the round have arrived.
#pragma once

#include <colls/detail/plan/dependencies.hpp>
#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/local_work.hpp>
#include <colls/detail/plan/per_rank.hpp>
#include <colls/detail/plan/scratch_slots.hpp>
#include <colls/detail/plan/slot_states.hpp>
#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>

#include <utility>

namespace colls::inline v1::detail {

class message_lowering {
public:
    message_lowering(const step_table& steps, const unit_map& units, execution_plan& plan)
        : steps_(steps),
          units_(units),
          plan_(plan),
          sources_(steps, units),
          scratch_(plan, sources_),
          slots_(steps, units, scratch_),
          work_(steps, units, slots_, scratch_, plan),
          sends_(steps.size),
          receives_(steps.size) {}

    /// Makes all programs of the plan.
    void lower();

private:
    void post_phase(int round);
    void post(int sender, int receiver, int port, int round);
    void fold_phase(int round);
    void append_phase(int rank, int round);
    void add_operand(rank_program& program, const location& l, int unit) const {
        program.operands.push_back(l);
        program.units.resize(program.operands.size());
        program.units.back() = unit;
    }
    void post_ahead(rank_program& program) const;

    const step_table& steps_;
    const unit_map& units_;
    execution_plan& plan_;
    message_dependencies sources_;
    scratch_slots scratch_;
    slot_states slots_;
    local_work work_;
    per_rank<list<instruction>> sends_, receives_;  // of the round; receives behind the waits that they need
    list<instruction> phase_;                       // copies and folds of one rank
};

inline void message_lowering::lower() {
    for (int k = 0; k < steps_.rounds; ++k) {
        slots_.begin_round(k);
        post_phase(k);
        fold_phase(k);
        slots_.end_round(k);
    }
    for (int r = 0; r < steps_.size; ++r) {
        phase_.clear();
        work_.keep_inputs(r, phase_);
        append_phase(r, steps_.rounds);
    }
    for (int r = 0; r < steps_.size && steps_.rounds > 0; ++r) post_ahead(plan_.program_of(r));
}

inline void message_lowering::post_phase(int round) {
    for (int r = 0; r < steps_.size; ++r) {
        sends_[r].clear();
        receives_[r].clear();
    }
    for (int p = 0; p < steps_.ports; ++p)
        for (int r = 0; r < steps_.size; ++r) {
            const step& own = steps_.at(r, round, p);
            if (own.send.peer == r)
                work_.add_own(r, own);
            else if (own.send.peer != none)
                post(r, own.send.peer, p, round);
        }
    for (int r = 0; r < steps_.size; ++r) {
        rank_program& program = plan_.program_of(r);
        program.body.append(sends_[r]);
        program.body.append(receives_[r]);
        program.segments.push_back(static_cast<int>(program.body.size()));
        for (const instruction& i : receives_[r])
            if (i.op == opcode::receive)
                program.body.push_back({.op = opcode::arrived, .peer = i.peer, .value = i.value, .round = round});
    }
}

// Adds one message: its send, and its receive behind the waits that it needs.
inline void message_lowering::post(int sender, int receiver, int port, int round) {
    const block_set& from = steps_.at(sender, round, port).send.blocks;
    const receive_part& into = steps_.at(receiver, round, port).recv;
    rank_program &sends = plan_.program_of(sender), &receives = plan_.program_of(receiver);
    instruction send{.op = opcode::send,
        .peer = receiver,
        .value = sends.sends++,
        .unit = port,
        .round = round,
        .first = static_cast<int>(sends.operands.size())};
    instruction receive{.op = opcode::receive,
        .peer = sender,
        .value = receives.receives++,
        .unit = port,
        .round = round,
        .first = static_cast<int>(receives.operands.size())};
    for (int i = 0; i < from.size(); ++i) {
        if (units_.is_empty(from[i])) continue;
        const slot_state& source = slots_.at(sender, from[i]);
        const int slot = into.blocks[i];
        location goal = slots_.target(receiver, slot, round);
        const bool lands = into.action == action::copy && slots_.can_land(receiver, slot, goal, round);
        if (!lands || goal.where == place::scratch) goal = scratch_.take(receiver, receiver);
        goal.leaf = source.contributions == 1;
        sources_.send_from(source.at, receiver, send.value);
        sources_.overwrite(goal);
        const int sent_unit = units_.length_unit(sender, from[i], source.at);
        const int received_unit = units_.length_unit(receiver, slot, goal);
        add_operand(sends, source.at, sent_unit);
        add_operand(receives, goal, received_unit);
        for (const auto& [rank, unit] : {std::pair{sender, sent_unit}, std::pair{receiver, received_unit}})
            plan_.own_blocks_only = plan_.own_blocks_only && (rank == plan_.root || units_.is_of(rank, unit));
        if (lands)
            slots_.move(receiver, slot, goal, source.contributions);
        else
            work_.add(receiver, {slot, sender, goal, source.contributions, into.action});
    }
    send.count = static_cast<int>(sends.operands.size()) - send.first;
    receive.count = static_cast<int>(receives.operands.size()) - receive.first;
    sends_[sender].push_back(send);
    sources_.flush(receiver, receives_[receiver], round);
    receives_[receiver].push_back(receive);
}

inline void message_lowering::fold_phase(int round) {
    for (int r = 0; r < steps_.size; ++r) {
        phase_.clear();
        work_.fold_arrivals(r, round, phase_);
        append_phase(r, round);
    }
}

inline void message_lowering::append_phase(int rank, int round) {
    list<instruction>& body = plan_.program_of(rank).body;
    for (const instruction& i : phase_) sources_.overwrite(i.to);
    sources_.flush(rank, body, round);
    body.append(phase_);
}

// A message of nothing but what its sender holds from the start need not wait for earlier rounds: it is posted with the
// first round's. Only where it is the only message to that rank: messages between two ranks arrive in the order of
// their posts, so another would be overtaken.
inline void message_lowering::post_ahead(rank_program& program) const {
    list<int> messages;  // by receiver
    messages.resize(static_cast<std::size_t>(steps_.size));
    for (const instruction& i : program.body) messages[i.peer] += i.op == opcode::send;
    const auto goes_ahead = [&](const instruction& i) {
        if (i.op != opcode::send || i.count == 0 || messages[i.peer] != 1) return false;
        for (int k = i.first; k < i.first + i.count; ++k)
            if (program.operands[k].where != place::input) return false;
        return true;
    };
    list<instruction>& body = program.body;
    list<int>& segments = program.segments;
    list<instruction> ordered;
    int at = segments[0];
    for (int i = 0; i < static_cast<int>(body.size()); ++i)
        if (i < at || goes_ahead(body[i])) ordered.push_back(body[i]);
    segments[0] = static_cast<int>(ordered.size());
    for (std::size_t k = 1; k <= segments.size(); ++k) {
        const int end = k < segments.size() ? segments[k] : static_cast<int>(body.size());
        for (; at < end; ++at)
            if (!goes_ahead(body[at])) ordered.push_back(body[at]);
        if (k < segments.size()) segments[k] = static_cast<int>(ordered.size());
    }
    body = std::move(ordered);
}

}  // namespace colls::inline v1::detail
