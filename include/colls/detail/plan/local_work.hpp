// What a rank does with the data that have arrived: the instructions that both lowerings share.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// In each round a rank folds or copies what has arrived for its slots, and after the last one it moves to its output
// what it has held from the start.
#pragma once

#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/per_rank.hpp>
#include <colls/detail/plan/scratch_slots.hpp>
#include <colls/detail/plan/slot_states.hpp>
#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>
#include <colls/detail/support/merge_sort.hpp>

namespace colls::inline v1::detail {

class local_work {
public:
    /// A block that its receiver folds or copies in the round's fold phase.
    struct arrival {
        int slot;         ///< the receiver's
        int from;         ///< the rank that sent it
        location source;  ///< where the receiver reads it: in the sender's memory, or in a scratch slot of its own
        int contributions;
        action act;
        int result = 0;   ///< contributions of what the slot holds after the round; 0: the sum of what is folded
        int next = none;  ///< the next arrival for the slot
    };

    local_work(const step_table& steps, const unit_map& units, slot_states& slots, scratch_slots& scratch,
        per_rank<rank_program>& programs, reach within)
        : steps_(steps),
          units_(units),
          slots_(slots),
          scratch_(scratch),
          programs_(programs),
          within_(within),
          arrivals_(steps.count, steps.first) {}

    void add(int receiver, const arrival& a) {
        list<arrival>& all = arrivals_[receiver];
        slot_state& slot = slots_.at(receiver, a.slot);
        const int number = static_cast<int>(all.size());
        (slot.arrived == none ? slot.arrived : all[slot.newest].next) = number;
        slot.newest = number;
        all.push_back(a);
    }
    /// Adds what a rank sends to itself in the round. `result(i)`: of block i, as in an arrival.
    template <class F>
    void add_own(int rank, const step& own, F result) {
        for (int i = 0; i < own.send.blocks.size(); ++i) {
            const slot_state& source = slots_.at(rank, own.send.blocks[i]);
            add(rank, {own.recv.blocks[i], rank, source.data(), source.contributions, own.recv.action, result(i)});
        }
    }

    /// The folds and copies of what was added for the rank in this round.
    void fold_arrivals(int rank, int round, list<instruction>& into);
    /// After the last round: moves to the output what the rank held from the start and still lies elsewhere.
    void keep_inputs(int rank, list<instruction>& into);

private:
    void collect(int rank, int slot);

    const step_table& steps_;
    const unit_map& units_;
    slot_states& slots_;
    scratch_slots& scratch_;
    per_rank<rank_program>& programs_;
    const reach within_;
    per_rank<list<arrival>> arrivals_;
    list<arrival> parts_, sorted_;  // of one fold
    list<int> landed_;              // scratch slots that are free after the folds
};

// Takes all arrivals for one slot, in ascending rank order. A value that the slot holds is among them at the rank's own
// place, behind what the rank sends to itself.
inline void local_work::collect(int rank, int slot) {
    slot_state& own = slots_.at(rank, slot);
    parts_.clear();
    for (int i = own.arrived; i != none; i = arrivals_[rank][i].next) parts_.push_back(arrivals_[rank][i]);
    own.arrived = own.newest = none;
    if (parts_[0].act == action::reduce && own.is_defined())
        parts_.push_back({slot, rank, own.data(), own.contributions, action::reduce, parts_[0].result});
    merge_sort(parts_, sorted_, [](const arrival& a, const arrival& b) { return a.from < b.from; });
}

inline void local_work::fold_arrivals(int rank, int round, list<instruction>& into) {
    list<arrival>& arrived = arrivals_[rank];
    list<location>& operands = programs_[rank].operands;
    landed_.clear();
    for (std::size_t i = 0; i < arrived.size(); ++i) {
        const int slot = arrived[i].slot;
        const slot_state& own = slots_.at(rank, slot);
        if (own.arrived == none) continue;
        collect(rank, slot);
        location to = slots_.target(rank, slot, round);
        if (to.where == place::scratch) {
            // Where peers pull, the result must not replace what peers are about to pull.
            const bool stays =
                own.is_defined() && own.at.where == place::scratch && (!pulls_all(within_) || own.sent_in != round);
            to.index = stays ? own.at.index : scratch_.take(rank, rank).index;
        }
        const int first = static_cast<int>(operands.size());
        int contributions = 0;
        for (const arrival& part : parts_) {
            operands.push_back(part.source);
            if (part.source.where == place::scratch && part.source.rank == rank && part.from != rank)
                landed_.push_back(part.source.index);
            contributions += part.contributions;
        }
        if (parts_[0].result != 0) contributions = parts_[0].result;
        const bool reduces = parts_[0].act == action::reduce;
        into.push_back({.op = reduces ? opcode::fold : opcode::copy,
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
    for (const int index : landed_) scratch_.give_back(rank, index);
}

inline void local_work::keep_inputs(int rank, list<instruction>& into) {
    list<location>& operands = programs_[rank].operands;
    for (int s = 0; s < steps_.blocks; ++s) {
        const slot_state& own = slots_.at(rank, s);
        const int unit = units_.output_unit(rank, s);
        if (unit == none || !own.is_defined() || own.at.where == place::output) continue;
        into.push_back({.op = reduces(steps_.what) ? opcode::fold : opcode::copy,
            .finish = steps_.size == 1,
            .keep = true,
            .peer = rank,
            .unit = units_.length_unit(rank, s, own.at),
            .round = steps_.rounds,
            .first = static_cast<int>(operands.size()),
            .count = 1,
            .to = {rank, unit, place::output}});
        operands.push_back(own.data());
    }
}

}  // namespace colls::inline v1::detail
