// The program of one rank for the executor that passes messages.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// The messages of a round are posted first, each side naming the memory that it sends from or receives into. Posts are
// in the order (port, sender) on all ranks, so the messages of a channel have one order on both sides. A copied block
// is received at its place, unless the round sends from there. Any other block is received into a scratch slot, and
// folded or copied from there when all messages of the round have arrived.
#pragma once

#include <colls/detail/plan/lowering.hpp>
#include <colls/detail/prove/reader.hpp>

#include <utility>

namespace colls::inline v1::detail {

/// The place of block x in the set, or none.
inline int index_in(const block_set& set, int x) {
    if (set.grain == 1 && set.reps == 1 && set.run == 1 && set.period == 1) {
        const int i = set.modulus > 0 ? mod(x - set.base - set.first, set.modulus) : x - set.base - set.first;
        return i >= 0 && i < set.count && set[i] == x ? i : none;
    }
    for (int i = 0; i < set.size(); ++i)
        if (set[i] == x) return i;
    return none;
}

/// Whether what a slot of a rank holds after a round, in which it has been folded, has the contributions of all ranks.
///
/// To count contributions, all slots of all ranks would have to be followed. The laws that the proof checks
/// (verify.hpp) make that unnecessary: a result that stays in an output slot is complete (law complete); one that is
/// folded further, here or by a rank that it is sent to, is not, since that fold adds a contribution that it lacks (law
/// exactly_once). So only the ranks are read that receive it. `last`: no later round uses the slot.
[[gnu::cold]] inline bool has_all_contributions(
    const step_table& steps, const unit_map& units, int rank, int slot, int round, int last) {
    for (;;) {
        struct {
            int rank = none, slot = none, round = none;
        } copy;  // a rank that has received it, its slot, and when
        bool stays = true;
        for (int k = round + 1; k <= last && stays; ++k)
            for (int p = 0; p < steps.ports; ++p) {
                const auto [send, receive] = steps.of(rank, k, p);
                const int sent = send.peer == none ? none : index_in(send.blocks, slot);
                if (sent != none) {
                    const receive_part there = steps.of(send.peer, k, p).recv;
                    if (there.action == action::reduce) return false;
                    copy = {send.peer, there.blocks[sent], k};
                }
                if (receive.peer == none || index_in(receive.blocks, slot) == none) continue;
                if (receive.action == action::reduce) return false;
                stays = false;
            }
        // In a scan only the last rank's result has all.
        if (stays && units.output_unit(rank, slot) != none)
            return traits_of(steps.what).contributors_at(rank, steps.size) == steps.size;
        if (copy.rank == none) return false;
        rank = copy.rank, slot = copy.slot, round = copy.round;
        last = steps.rounds - 1;
    }
}

/// Makes the program of one rank, the one whose steps the table has. Of other ranks it reads the steps of those that
/// the rank talks to or that receive its results: so a program takes time and memory by what the rank itself does.
class message_lowering final : lowering {
public:
    message_lowering(const step_table& steps, const unit_map& units)
        : lowering(steps, units, reach::nothing), rank_(steps.first), program_(programs_[rank_]) {
        messages_.resize(static_cast<std::size_t>(steps.size));
        for (int k = 0; k < steps.rounds; ++k)
            for (int p = 0; p < steps.ports; ++p)
                if (const int to = steps.at(rank_, k, p).send.peer; to != none) ++messages_[to];
    }

    [[gnu::cold]] rank_program lower() {
        lower_rounds();
        if (steps_.rounds > 0) post_ahead();
        number_channels();
        return std::move(program_);
    }

private:
    // A message of nothing but what its sender holds from the start need not wait for earlier rounds: it is posted with
    // the first round's. Only where it is the only message to that rank: messages between two ranks arrive in the order
    // of their posts, so another would be overtaken.
    void send(int rank, int round, int port) override {
        const send_part& part = steps_.at(rank, round, port).send;
        instruction send = begin(opcode::send, part.peer, program_.sends++, port, round);
        bool from_input = true;
        each_block(part, [&](int slot) {
            if (units_.is_empty(slot)) return;
            const location& from = slots_.at(rank, slot).at;
            from_input = from_input && from.where == buffer_kind::input;
            accesses_.send_from(from, part.peer, send.value);
            add_operand(send, slot, from);
        });
        const bool ahead = round > 0 && send.count > 0 && from_input && messages_[part.peer] == 1;
        (ahead ? ahead_ : sends_).push_back(send);
    }
    // Adds the receive behind the waits that it needs.
    void receive(int rank, int round, int port) override {
        const receive_part& part = steps_.at(rank, round, port).recv;
        const block_set from = steps_.of(part.peer, round, port).send.blocks;
        instruction receive = begin(opcode::receive, part.peer, program_.receives++, port, round);
        for (int i = 0; i < from.size(); ++i) {
            if (units_.is_empty(from[i])) continue;
            const int slot = part.blocks[i];
            const location goal = land(rank, rank, {slot, part.peer, {}, 1, part.action}, round);
            accesses_.overwrite(goal);
            add_operand(receive, slot, goal);
        }
        accesses_.flush(rank, receives_, round);
        receives_.push_back(receive);
    }
    void end_transfers(int, int round) override {
        list<instruction>& body = program_.body;
        body.append(sends_);
        body.append(receives_);
        program_.segments.push_back(static_cast<int>(body.size()));
        for (const instruction& i : receives_)
            if (i.op == opcode::receive)
                body.push_back({.op = opcode::arrived, .peer = i.peer, .value = i.value, .round = round});
        sends_.clear();
        receives_.clear();
    }
    void end_folds(int rank, int round) override {
        for (const instruction& i : phase_) accesses_.overwrite(i.to);
        append_phase(rank, round);
    }
    int combined(int rank, int slot, int round, int) const override {
        const int last = slots_.at(rank, slot).last_use;
        return has_all_contributions(steps_, units_, rank, slot, round, last) ? steps_.size : 1;
    }

    instruction begin(opcode op, int peer, int number, int port, int round) const {
        const int first = static_cast<int>(program_.operands.size());
        return {.op = op, .peer = peer, .value = number, .unit = port, .round = round, .first = first};
    }
    void add_operand(instruction& message, int slot, const location& l) {
        program_.operands.push_back(l);
        program_.units.resize(program_.operands.size());
        program_.units.back() = units_.length_unit(rank_, slot, l);
        ++message.count;
    }
    // The messages of send() that go ahead follow those of the first round.
    [[gnu::cold]] void post_ahead() {
        list<instruction>& body = program_.body;
        list<instruction> ordered;
        for (int i = 0; i < program_.segments[0]; ++i) ordered.push_back(body[i]);
        ordered.append(ahead_);
        for (std::size_t i = ordered.size() - ahead_.size(); i < body.size(); ++i) ordered.push_back(body[i]);
        for (int& end : program_.segments) end += static_cast<int>(ahead_.size());
        body = std::move(ordered);
    }
    [[gnu::cold]] void number_channels() {
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

    const int rank_;
    rank_program& program_;
    list<int> messages_;                  // by receiver
    list<instruction> sends_, receives_;  // of the round; receives behind the waits that they need
    list<instruction> ahead_;             // sends that do not wait for their round
};

/// Gathers and scatters: do ranks other than the root send and receive parts of their own block alone? Where it would
/// take more than 16 million steps to know, the answer is no: then the root tells all ranks how long blocks are.
[[gnu::cold]] inline bool moves_own_blocks_only(const step_table& shape, const unit_map& units) {
    if (all_steps(shape.schedule, shape.size) > 1 << 24) return false;
    bool own = true;
    for (int r = 0; r < shape.size && own; ++r)
        for (int k = 0; k < shape.rounds && r != shape.root; ++k)
            for (int p = 0; p < shape.ports; ++p) {
                const auto [send, receive] = shape.of(r, k, p);
                if (send.peer == r) continue;
                const auto look = [&](int slot) {
                    own = own && (units.is_empty(slot) || units.is_of(r, units.unit_of(slot)));
                };
                each_block(send, look);
                each_block(receive, look);
            }
    return own;
}

/// Registers both with the planner. It is called before the first plan for messages: by a group when it is made, which
/// may be before the objects of this unit are initialised.
inline void plan_by_messages() {
    [[maybe_unused]] static const bool done = [] {
        planner_of_messages = {
            [](const step_table& steps, const unit_map& units) { return message_lowering(steps, units).lower(); },
            &moves_own_blocks_only};
        return true;
    }();
}

}  // namespace colls::inline v1::detail
