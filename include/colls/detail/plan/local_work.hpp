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

#include <utility>

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
    };

    local_work(const step_table& steps, const unit_map& units, slot_states& slots, scratch_slots& scratch,
        execution_plan& plan)
        : steps_(steps), units_(units), slots_(slots), scratch_(scratch), plan_(plan), arrivals_(steps.size) {}

    void add(int receiver, const arrival& a) { arrivals_[receiver].push_back(a); }
    /// Adds what a rank sends to itself in the round.
    void add_own(int rank, const step& own) {
        for (int i = 0; i < own.send.blocks.size(); ++i) {
            const slot_state& source = slots_.at(rank, own.send.blocks[i]);
            add(rank, {own.recv.blocks[i], rank, source.data(), source.contributions, own.recv.action});
        }
    }

    /// The folds and copies of what was added for the rank in this round.
    void fold_arrivals(int rank, int round, list<instruction>& into);
    /// After the last round: moves to the output what the rank held from the start and still lies elsewhere.
    void keep_inputs(int rank, list<instruction>& into);

private:
    static constexpr int taken = -1;

    void collect(int rank, std::size_t first);

    const step_table& steps_;
    const unit_map& units_;
    slot_states& slots_;
    scratch_slots& scratch_;
    execution_plan& plan_;
    per_rank<list<arrival>> arrivals_;
    list<arrival> parts_;  // of one fold
    list<int> landed_;     // scratch slots that are free after the folds
};

// Takes all arrivals for one slot, that of arrival `first`, in ascending rank order. A value that the slot holds is
// among them at the rank's own place, behind what the rank sends to itself.
inline void local_work::collect(int rank, std::size_t first) {
    list<arrival>& arrived = arrivals_[rank];
    const int slot = arrived[first].slot;
    parts_.clear();
    for (std::size_t i = first; i < arrived.size(); ++i)
        if (arrived[i].slot == slot) {
            parts_.push_back(arrived[i]);
            arrived[i].slot = taken;
        }
    const slot_state& own = slots_.at(rank, slot);
    if (parts_[0].act == action::reduce && own.is_defined())
        parts_.push_back({slot, rank, own.data(), own.contributions, action::reduce});
    for (std::size_t i = 1; i < parts_.size(); ++i)
        for (std::size_t j = i; j > 0 && parts_[j].from < parts_[j - 1].from; --j) std::swap(parts_[j], parts_[j - 1]);
}

inline void local_work::fold_arrivals(int rank, int round, list<instruction>& into) {
    list<arrival>& arrived = arrivals_[rank];
    list<location>& operands = plan_.program_of(rank).operands;
    landed_.clear();
    for (std::size_t i = 0; i < arrived.size(); ++i) {
        const int slot = arrived[i].slot;
        if (slot == taken) continue;
        collect(rank, i);
        const slot_state& own = slots_.at(rank, slot);
        location to = slots_.target(rank, slot, round);
        if (to.where == place::scratch) {
            // Where peers pull, the result must not replace what peers are about to pull.
            const bool stays = own.is_defined() && own.at.where == place::scratch &&
                               (!pulls_all(plan_.within) || own.sent_in != round);
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
    list<location>& operands = plan_.program_of(rank).operands;
    for (int s = 0; s < steps_.blocks; ++s) {
        const slot_state& own = slots_.at(rank, s);
        const int unit = units_.output_unit(rank, s);
        // A contribution that was only moved (a scan's) still has to meet the operator, which may transform it.
        const bool raw = reduces(steps_.what) && own.contributions == 1;
        if (unit == none || !own.is_defined() || (own.at.where == place::output && !raw)) continue;
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
