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
    action received_by = action::copy;   ///< in that round
    int staged = none;                   ///< scratch slot with a copy for peers to read

    bool is_defined() const { return contributions > 0; }
    /// Where the data lie, as an operand.
    location data() const { return {at.rank, at.index, at.where, contributions == 1}; }
};

class slot_states {
public:
    slot_states(const step_table& steps, const unit_map& units, scratch_slots& scratch);

    slot_state& at(int rank, int slot) { return states_[long{rank} * steps_.slots + slot]; }
    const slot_state& at(int rank, int slot) const { return states_[long{rank} * steps_.slots + slot]; }

    /// Notes which slots the round sends and receives. Throws errc::unsupported where it both copies and reduces into
    /// one slot.
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

    void unstage(int rank, slot_state& s) {
        if (s.staged != none) scratch_.give_back(rank, s.staged);
        s.staged = none;
    }

    const step_table& steps_;
    const unit_map& units_;
    scratch_slots& scratch_;
    list<slot_state> states_;
    list<change> changes_;
};

inline slot_states::slot_states(const step_table& steps, const unit_map& units, scratch_slots& scratch)
    : steps_(steps), units_(units), scratch_(scratch) {
    states_.resize(static_cast<std::size_t>(steps.size) * static_cast<std::size_t>(steps.slots));
    for (int r = 0; r < steps.size; ++r)
        for (int s = 0; s < steps.blocks; ++s)
            if (const int unit = units.input_unit(r, s); unit != none) {
                at(r, s).at = {r, unit, place::input, true};
                at(r, s).contributions = 1;
            }
    for (int k = 0; k < steps.rounds; ++k)
        for (int r = 0; r < steps.size; ++r)
            for (int p = 0; p < steps.ports; ++p) {
                const auto& [send, receive] = steps.at(r, k, p);
                for (int i = 0; send.peer != none && i < send.blocks.size(); ++i) at(r, send.blocks[i]).last_use = k;
                for (int i = 0; receive.peer != none && i < receive.blocks.size(); ++i) {
                    slot_state& to = at(r, receive.blocks[i]);
                    to.last_write = to.last_use = k;
                }
            }
}

inline void slot_states::begin_round(int round) {
    for (int r = 0; r < steps_.size; ++r)
        for (int p = 0; p < steps_.ports; ++p) {
            const auto& [send, receive] = steps_.at(r, round, p);
            for (int i = 0; send.peer != none && i < send.blocks.size(); ++i) at(r, send.blocks[i]).sent_in = round;
            for (int i = 0; receive.peer != none && i < receive.blocks.size(); ++i) {
                slot_state& to = at(r, receive.blocks[i]);
                if (to.received_in == round && to.received_by != receive.action)
                    refuse_schedule(
                        steps_.schedule, steps_.size, errc::unsupported, "one round copies and reduces into one block");
                to.received_in = round;
                to.received_by = receive.action;
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
    for (int r = 0; r < steps_.size; ++r)
        for (int i = 0; i < steps_.slots; ++i) {
            slot_state& s = at(r, i);
            if (s.last_use != round) continue;
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
