// The program of one rank for the executor that passes messages.
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
#include <colls/detail/plan/value_origins.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// Makes the program of one rank, the one whose steps the table has. Of other ranks it reads the steps of those that
/// the rank talks to, and what value_origins needs: so a program takes time and memory by what the rank itself does.
class message_lowering {
public:
    message_lowering(const step_table& steps, const unit_map& units)
        : steps_(steps),
          units_(units),
          rank_(steps.first),
          programs_(1, rank_),
          program_(programs_[rank_]),
          origins_(steps, units),
          sources_(steps, units),
          scratch_(steps, programs_, sources_),
          slots_(steps, units, scratch_),
          work_(steps, units, slots_, scratch_, programs_, reach::nothing) {}

    rank_program lower();

private:
    void post_phase(int round);
    void post_send(const send_part& part, int port, int round);
    void post_receive(const receive_part& part, int port, int round);
    void append_phase(int round);
    void add_operand(const location& l, int unit) {
        program_.operands.push_back(l);
        program_.units.resize(program_.operands.size());
        program_.units.back() = unit;
    }
    void post_ahead();
    void number_channels();

    const step_table& steps_;
    const unit_map& units_;
    const int rank_;
    per_rank<rank_program> programs_;
    rank_program& program_;
    value_origins origins_;
    message_dependencies sources_;
    scratch_slots scratch_;
    slot_states slots_;
    local_work work_;
    list<instruction> sends_, receives_;  // of the round; receives behind the waits that they need
    list<instruction> phase_;             // copies and folds
};

inline rank_program message_lowering::lower() {
    for (int k = 0; k < steps_.rounds; ++k) {
        slots_.begin_round(k);
        post_phase(k);
        phase_.clear();
        work_.fold_arrivals(rank_, k, phase_);
        append_phase(k);
        slots_.end_round(k);
    }
    phase_.clear();
    work_.keep_inputs(rank_, phase_);
    append_phase(steps_.rounds);
    if (steps_.rounds > 0) post_ahead();
    number_channels();
    return std::move(program_);
}

inline void message_lowering::post_phase(int round) {
    sends_.clear();
    receives_.clear();
    for (int p = 0; p < steps_.ports; ++p) {
        const step& own = steps_.at(rank_, round, p);
        const bool receives_first = own.recv.peer < rank_;
        if (receives_first && own.recv.peer != none) post_receive(own.recv, p, round);
        if (own.send.peer == rank_)
            work_.add_own(rank_, own,
                [&](int i) { return own.recv.action == action::reduce ? origins_.folded(round, p, i) : 0; });
        else if (own.send.peer != none)
            post_send(own.send, p, round);
        if (!receives_first && own.recv.peer != rank_) post_receive(own.recv, p, round);
    }
    list<instruction>& body = program_.body;
    body.append(sends_);
    body.append(receives_);
    program_.segments.push_back(static_cast<int>(body.size()));
    for (const instruction& i : receives_)
        if (i.op == opcode::receive)
            body.push_back({.op = opcode::arrived, .peer = i.peer, .value = i.value, .round = round});
}

inline void message_lowering::post_send(const send_part& part, int port, int round) {
    instruction send{.op = opcode::send,
        .peer = part.peer,
        .value = program_.sends++,
        .unit = port,
        .round = round,
        .first = static_cast<int>(program_.operands.size())};
    for (int i = 0; i < part.blocks.size(); ++i) {
        const int slot = part.blocks[i];
        if (units_.is_empty(slot)) continue;
        const location& from = slots_.at(rank_, slot).at;
        sources_.send_from(from, part.peer, send.value);
        add_operand(from, units_.length_unit(rank_, slot, from));
    }
    send.count = static_cast<int>(program_.operands.size()) - send.first;
    sends_.push_back(send);
}

// Adds the receive behind the waits that it needs.
inline void message_lowering::post_receive(const receive_part& part, int port, int round) {
    const block_set from = steps_.schedule.at(part.peer, steps_.size, round, port).send.blocks;
    instruction receive{.op = opcode::receive,
        .peer = part.peer,
        .value = program_.receives++,
        .unit = port,
        .round = round,
        .first = static_cast<int>(program_.operands.size())};
    for (int i = 0; i < from.size(); ++i) {
        if (units_.is_empty(from[i])) continue;
        const int slot = part.blocks[i];
        location goal = slots_.target(rank_, slot, round);
        const bool copies = part.action == action::copy;
        const bool lands = copies && slots_.can_land(rank_, slot, goal, round);
        if (!lands || goal.where == place::scratch) goal = scratch_.take(rank_, rank_);
        sources_.overwrite(goal);
        add_operand(goal, units_.length_unit(rank_, slot, goal));
        if (lands)
            slots_.move(rank_, slot, goal, 1);
        else
            work_.add(rank_, {slot, part.peer, goal, 1, part.action, copies ? 0 : origins_.folded(round, port, i)});
    }
    receive.count = static_cast<int>(program_.operands.size()) - receive.first;
    sources_.flush(rank_, receives_, round);
    receives_.push_back(receive);
}

inline void message_lowering::append_phase(int round) {
    for (const instruction& i : phase_) sources_.overwrite(i.to);
    sources_.flush(rank_, program_.body, round);
    program_.body.append(phase_);
}

inline void message_lowering::number_channels() {
    list<int> number;  // by peer
    number.resize(static_cast<std::size_t>(steps_.size), none);
    for (instruction& i : program_.body) {
        if (i.op != opcode::send && i.op != opcode::receive) continue;
        if (number[i.peer] == none) {
            number[i.peer] = static_cast<int>(program_.peers.size());
            program_.peers.push_back(i.peer);
        }
        i.channel = number[i.peer];
    }
}

// A message of nothing but what its sender holds from the start need not wait for earlier rounds: it is posted with the
// first round's. Only where it is the only message to that rank: messages between two ranks arrive in the order of
// their posts, so another would be overtaken.
inline void message_lowering::post_ahead() {
    list<int> messages;  // by receiver
    messages.resize(static_cast<std::size_t>(steps_.size));
    for (const instruction& i : program_.body) messages[i.peer] += i.op == opcode::send;
    const auto goes_ahead = [&](const instruction& i) {
        if (i.op != opcode::send || i.count == 0 || messages[i.peer] != 1) return false;
        for (int k = i.first; k < i.first + i.count; ++k)
            if (program_.operands[k].where != place::input) return false;
        return true;
    };
    list<instruction>& body = program_.body;
    list<int>& segments = program_.segments;
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
