// Where the data of all slots lie while a plan is made, round by round, and which contributions they hold.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Sends of a round read the state at its start, so changes are collected and applied at its end.
#pragma once

#include <colls/detail/plan/scratch_slots.hpp>
#include <colls/detail/plan/step_table.hpp>
#include <colls/detail/plan/unit_map.hpp>

namespace colls::inline v1::detail {

/// One slot of one rank, as of the start of the round.
struct slot_state {
    location at{};
    int contributions = 0;               ///< ranks whose data it holds; 0: undefined
    int last_write = -1, last_use = -1;  ///< rounds
    int received_in = -1, sent_in = -1;  ///< the latest round, up to the present one
    int staged = none;                   ///< scratch slot with a copy for peers to read
    int arrived = none, newest = none;   ///< the first and the latest of its arrivals in the round (local_work.hpp)

    bool is_defined() const { return contributions > 0; }
    /// Where the data lie, as an operand.
    location data() const { return at; }
};

class slot_states {
public:
    slot_states(const step_table& steps, const unit_map& units, scratch_slots& scratch);

    slot_state& at(int rank, int slot) { return states_[index(rank, slot)]; }
    const slot_state& at(int rank, int slot) const { return states_[index(rank, slot)]; }

    /// Notes which slots the round sends and receives.
    void begin_round(int round);
    /// The slot's data lie at `to` from the end of the round on, and hold so many contributions.
    void move(int rank, int slot, const location& to, int contributions) {
        changes_.push_back({rank, slot, to, contributions});
    }
    /// Applies the moves, and gives back the scratch slots that no later round uses.
    void end_round(int round);

    /// Where the data go that the slot receives in the round: to the output if they stay there, else to a scratch slot,
    /// which the caller chooses (the index is none).
    location target(int rank, int slot, int round) const;
    /// Can copied data go to their target at once, while the round's sends may read what the slot holds?
    bool can_land(int rank, int slot, const location& target, int round) const;

private:
    struct change {
        int rank, slot;
        location to;
        int contributions;
    };

    long index(int rank, int slot) const { return long{rank - steps_.first} * steps_.slots + slot; }
    int& first_used_in(int rank, int round) { return first_used_[long{rank - steps_.first} * steps_.rounds + round]; }
    void unstage(int rank, slot_state& s) {
        if (s.staged != none) scratch_.give_back(rank, s.staged);
        s.staged = none;
    }

    const step_table& steps_;
    const unit_map& units_;
    scratch_slots& scratch_;
    list<slot_state> states_;
    // The slots of a rank that a round is the last to use, in ascending order: the first, and by slot the next.
    list<int> first_used_, next_used_;
    list<change> changes_;
};

inline slot_states::slot_states(const step_table& steps, const unit_map& units, scratch_slots& scratch)
    : steps_(steps), units_(units), scratch_(scratch) {
    const auto ranks = static_cast<std::size_t>(steps.count);
    const int end = steps.first + steps.count;
    states_.resize(ranks * static_cast<std::size_t>(steps.slots));
    for (int r = steps.first; r < end; ++r)
        for (int s = 0; s < steps.blocks; ++s)
            if (const int unit = units.input_unit(r, s); unit != none) {
                at(r, s).at = {r, unit, place::input};
                at(r, s).contributions = 1;
            }
    for (int k = 0; k < steps.rounds; ++k)
        for (int r = steps.first; r < end; ++r)
            for (int p = 0; p < steps.ports; ++p) {
                const auto& [send, receive] = steps.at(r, k, p);
                for (int i = 0; send.peer != none && i < send.blocks.size(); ++i) at(r, send.blocks[i]).last_use = k;
                for (int i = 0; receive.peer != none && i < receive.blocks.size(); ++i) {
                    slot_state& to = at(r, receive.blocks[i]);
                    to.last_write = to.last_use = k;
                }
            }
    first_used_.resize(ranks * static_cast<std::size_t>(steps.rounds), none);
    next_used_.resize(states_.size(), none);
    for (int r = steps.first; r < end; ++r)
        for (int s = steps.slots; s-- > 0;)
            if (const int round = at(r, s).last_use; round >= 0) {
                next_used_[index(r, s)] = first_used_in(r, round);
                first_used_in(r, round) = s;
            }
}

inline void slot_states::begin_round(int round) {
    for (int r = steps_.first; r < steps_.first + steps_.count; ++r)
        for (int p = 0; p < steps_.ports; ++p) {
            const auto& [send, receive] = steps_.at(r, round, p);
            for (int i = 0; send.peer != none && i < send.blocks.size(); ++i) at(r, send.blocks[i]).sent_in = round;
            for (int i = 0; receive.peer != none && i < receive.blocks.size(); ++i) {
                slot_state& to = at(r, receive.blocks[i]);
                to.received_in = round;
            }
        }
}

inline void slot_states::end_round(int round) {
    for (const change& c : changes_) {
        slot_state& s = at(c.rank, c.slot);
        if (s.is_defined() && s.at.where == place::scratch &&
            (c.to.where != place::scratch || c.to.index != s.at.index))
            scratch_.give_back(c.rank, s.at.index);
        unstage(c.rank, s);
        s.at = c.to;
        s.contributions = c.contributions;
    }
    changes_.clear();
    for (int r = steps_.first; r < steps_.first + steps_.count; ++r)
        for (int i = first_used_in(r, round); i != none; i = next_used_[index(r, i)]) {
            slot_state& s = at(r, i);
            unstage(r, s);
            if (!s.is_defined() || s.at.where != place::scratch) continue;
            scratch_.give_back(r, s.at.index);
            s.contributions = 0;
        }
}

inline location slot_states::target(int rank, int slot, int round) const {
    const int unit = units_.output_unit(rank, slot);
    // Slots of an all_to_all also pass on other ranks' blocks: only what is written last stays.
    if (unit != none && (steps_.what != collective::all_to_all || at(rank, slot).last_write == round))
        return {rank, unit, place::output};
    return {rank, none, place::scratch};
}

inline bool slot_states::can_land(int rank, int slot, const location& target, int round) const {
    const slot_state& s = at(rank, slot);
    return s.sent_in != round || target.where == place::scratch ||
           (steps_.what == collective::all_to_all && s.at.where != place::output);
}

}  // namespace colls::inline v1::detail
