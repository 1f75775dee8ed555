// From the steps of a schedule to programs: what is the same whether data pass by memory or by messages.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// In each round a rank makes its transfers, and then folds or copies what has arrived for its slots. After the last
// round it moves to its output what it has held from the start. What a transfer becomes is what the two lowerings that
// derive from this say.
#pragma once

#include <colls/detail/plan/slot_states.hpp>

namespace colls::inline v1::detail {

/// What the half of the library that passes messages brings to planning (message_lowering.hpp), so that a program
/// without it compiles none of that. The pointers are null there.
struct message_planner {
    rank_program (*program)(const step_table& of_one_rank, const unit_map& units);
    bool (*moves_own_blocks_only)(const step_table& shape, const unit_map& units);
};
inline message_planner planner_of_messages{};

/// Makes the programs of the ranks whose steps the table has.
class lowering {
protected:
    /// A block that its receiver folds or copies in the round's fold phase.
    struct arrival {
        int slot;         ///< the receiver's
        int from;         ///< the rank that sent it
        location source;  ///< where the receiver reads it: in the sender's memory, or in a scratch slot of its own
        int contributions;
        action act;
        int next = none;  ///< the next arrival for the slot
    };

    lowering(const step_table& steps, const unit_map& units, reach within)
        : steps_(steps), units_(units), within_(within) {}
    ~lowering() = default;

    [[gnu::cold]] void lower_rounds() {
        const int end = steps_.first + steps_.count;
        for (int k = 0; k < steps_.rounds; ++k) {
            slots_.begin_round(k);
            for (int r = steps_.first; r < end; ++r) transfer(r, k);
            for (int r = steps_.first; r < end; ++r) {
                phase_.clear();
                fold_arrivals(r, k);
                end_folds(r, k);
            }
            slots_.end_round(k);
        }
        for (int r = steps_.first; r < end; ++r) {
            phase_.clear();
            keep_inputs(r);
            end_folds(r, steps_.rounds);
            programs_[r].scratch = slots_.scratch(r);
        }
    }

    // What the rank sends, and receives, on the port; and what follows when it has done so on all ports.
    virtual void send(int rank, int round, int port) = 0;
    virtual void receive(int rank, int round, int port) = 0;
    virtual void end_transfers(int rank, int round) = 0;
    /// The folds and copies of the round are in phase_; of the round behind the last one, copies of what stays.
    virtual void end_folds(int rank, int round) = 0;
    /// How many contributions the slot holds after the round, in which it folds operands that have `sum` of them.
    virtual int combined(int rank, int slot, int round, int sum) const = 0;

    void add_arrival(int receiver, const arrival& a) {
        list<arrival>& all = arrivals_[receiver];
        slot_state& slot = slots_.at(receiver, a.slot);
        const int number = static_cast<int>(all.size());
        (slot.arrived == none ? slot.arrived : all[slot.newest].next) = number;
        slot.newest = number;
        all.push_back(a);
    }
    /// Where `writer` stores the arrival in the receiver's memory: at its place, or in a scratch slot, which becomes
    /// its source.
    location land(int writer, int receiver, arrival a, int round) {
        location goal = slots_.target(receiver, a.slot, round);
        const bool lands = a.act == action::copy && slots_.can_land(receiver, a.slot, goal, round);
        if (!lands || goal.where == buffer_kind::scratch) goal = slots_.take(writer, receiver);
        a.source = goal;
        if (lands)
            slots_.move(receiver, a.slot, goal, a.contributions);
        else
            add_arrival(receiver, a);
        return goal;
    }
    /// A copy in phase_, from `from` to `to`.
    void add_copy(int rank, const location& from, const location& to, int unit, int round) {
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
    void append_phase(int rank, int round) {
        list<instruction>& body = programs_[rank].body;
        accesses_.flush(rank, body, round);
        body.append(phase_);
    }

    const step_table& steps_;
    const unit_map& units_;
    const reach within_;
    per_rank<rank_program> programs_{steps_.count, steps_.first};
    dependencies accesses_{steps_, units_, within_ == reach::nothing ? opcode::left : opcode::wait};
    slot_states slots_{steps_, units_, accesses_};
    list<instruction> phase_;  // copies and folds of one rank in one phase

private:
    // In the order (port, sender): where messages pass, all ranks post in it.
    void transfer(int rank, int round) {
        phase_.clear();
        for (int p = 0; p < steps_.ports; ++p) {
            const step& own = steps_.at(rank, round, p);
            if (own.recv.peer != none && own.recv.peer < rank) receive(rank, round, p);
            if (own.send.peer == rank) {
                for (int i = 0; i < own.send.blocks.size(); ++i) {
                    const slot_state& source = slots_.at(rank, own.send.blocks[i]);
                    add_arrival(rank, {own.recv.blocks[i], rank, source.at, source.contributions, own.recv.action});
                }
            } else if (own.send.peer != none) {
                send(rank, round, p);
            }
            if (own.recv.peer > rank) receive(rank, round, p);
        }
        end_transfers(rank, round);
    }
    // Takes all arrivals for one slot, in ascending rank order. A value that the slot holds is among them at the rank's
    // own place, behind what the rank sends to itself.
    void collect(int rank, int slot) {
        slot_state& own = slots_.at(rank, slot);
        parts_.clear();
        for (int i = own.arrived; i != none; i = arrivals_[rank][i].next) parts_.push_back(arrivals_[rank][i]);
        own.arrived = own.newest = none;
        if (parts_[0].act == action::reduce && own.is_defined())
            parts_.push_back({slot, rank, own.at, own.contributions, action::reduce});
        merge_sort(parts_, sorted_, [](const arrival& a, const arrival& b) { return a.from < b.from; });
    }
    void fold_arrivals(int rank, int round) {
        list<arrival>& arrived = arrivals_[rank];
        list<location>& operands = programs_[rank].operands;
        landed_.clear();
        for (std::size_t i = 0; i < arrived.size(); ++i) {
            const int slot = arrived[i].slot;
            const slot_state& own = slots_.at(rank, slot);
            if (own.arrived == none) continue;
            collect(rank, slot);
            location to = slots_.target(rank, slot, round);
            if (to.where == buffer_kind::scratch) {
                // Where peers pull, the result must not replace what peers are about to pull.
                const bool stays = own.is_defined() && own.at.where == buffer_kind::scratch &&
                                   (!pulls_all(within_) || own.sent_in != round);
                to.index = stays ? own.at.index : slots_.take(rank, rank).index;
            }
            const bool reduces = parts_[0].act == action::reduce;
            const int first = static_cast<int>(operands.size());
            int contributions = 0;
            for (const arrival& part : parts_) {
                operands.push_back(part.source);
                if (part.source.where == buffer_kind::scratch && part.source.rank == rank && part.from != rank)
                    landed_.push_back(part.source.index);
                contributions += part.contributions;
            }
            if (reduces) contributions = combined(rank, slot, round, contributions);
            phase_.push_back({.op = reduces ? opcode::fold : opcode::copy,
                .finish = reduces && contributions == steps_.size,
                .peer = rank,
                .unit = units_.length_unit(rank, slot, parts_[0].source),
                .round = round,
                .first = first,
                .count = static_cast<int>(parts_.size()),
                .to = to});
            slots_.move(rank, slot, to, contributions);
        }
        arrived.clear();
        for (const int index : landed_) slots_.give_back(rank, index);
    }
    [[gnu::cold]] void keep_inputs(int rank) {
        for (int s = 0; s < steps_.blocks; ++s) {
            const slot_state& own = slots_.at(rank, s);
            const int unit = units_.output_unit(rank, s);
            if (unit == none || !own.is_defined() || own.at.where == buffer_kind::output) continue;
            add_copy(
                rank, own.at, {rank, unit, buffer_kind::output}, units_.length_unit(rank, s, own.at), steps_.rounds);
            instruction& kept = phase_.back();
            if (reduces(steps_.what)) kept.op = opcode::fold;
            kept.finish = steps_.size == 1;
            kept.keep = true;
        }
    }

    per_rank<list<arrival>> arrivals_{steps_.count, steps_.first};
    list<arrival> parts_, sorted_;  // of one fold
    list<int> landed_;              // scratch slots that are free after the folds
};

}  // namespace colls::inline v1::detail
