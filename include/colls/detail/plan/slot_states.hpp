// Where the data of all slots lie while a plan is made, round by round, which contributions they hold, and which
// scratch slots are free; and whether a plan would fit into memory, before it is made.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Sends of a round read the state at its start, so changes are collected and applied at its end.
#pragma once

#include <colls/detail/plan/dependencies.hpp>

namespace colls::inline v1::detail {

/// One slot of one rank, as of the start of the round.
struct slot_state {
    location at{};                       ///< where the data lie
    int contributions = 0;               ///< ranks whose data it holds; 0: undefined
    int last_write = -1, last_use = -1;  ///< rounds
    int received_in = -1, sent_in = -1;  ///< the latest round, up to the present one
    int staged = none;                   ///< scratch slot with a copy for peers to read
    int arrived = none, newest = none;   ///< the first and the latest of its arrivals in the round (lowering.hpp)

    bool is_defined() const { return contributions > 0; }
};

class slot_states {
public:
    slot_states(const step_table& steps, const unit_map& units, const dependencies& accesses)
        : steps_(steps), units_(units), accesses_(accesses), scratch_(steps.count, steps.first) {
        const auto ranks = static_cast<std::size_t>(steps.count);
        const int end = steps.first + steps.count;
        states_.resize(ranks * static_cast<std::size_t>(steps.slots));
        for (int k = 0; k < steps.rounds; ++k)
            each_step(k, [&](int r, const step& s) {
                each_block(s.send, [&](int slot) { at(r, slot).last_use = k; });
                each_block(s.recv, [&](int slot) { at(r, slot).last_write = at(r, slot).last_use = k; });
            });
        first_used_.resize(ranks * static_cast<std::size_t>(steps.rounds), none);
        next_used_.resize(states_.size(), none);
        for (int r = steps.first; r < end; ++r)
            for (int s = steps.slots; s-- > 0;) {
                slot_state& state = at(r, s);
                if (const int unit = units.input_unit(r, s); unit != none) {
                    state.at = {r, unit, buffer_kind::input};
                    state.contributions = 1;
                }
                if (state.last_use < 0) continue;
                next_used_[index(r, s)] = first_used_in(r, state.last_use);
                first_used_in(r, state.last_use) = s;
            }
    }

    slot_state& at(int rank, int slot) { return states_[index(rank, slot)]; }
    const slot_state& at(int rank, int slot) const { return states_[index(rank, slot)]; }

    /// Notes which slots the round sends and receives.
    void begin_round(int round) {
        each_step(round, [&](int r, const step& s) {
            each_block(s.send, [&](int slot) { at(r, slot).sent_in = round; });
            each_block(s.recv, [&](int slot) { at(r, slot).received_in = round; });
        });
    }
    /// The slot's data lie at `to` from the end of the round on, and hold this many contributions.
    void move(int rank, int slot, const location& to, int contributions) {
        changes_.push_back({rank, slot, to, contributions});
    }
    /// Applies the moves, and gives back the scratch slots that no later round uses.
    void end_round(int round) {
        for (const change& c : changes_) {
            slot_state& s = at(c.rank, c.slot);
            if (s.is_defined() && s.at.where == buffer_kind::scratch &&
                (c.to.where != buffer_kind::scratch || c.to.index != s.at.index))
                give_back(c.rank, s.at.index);
            unstage(c.rank, s);
            s.at = c.to;
            s.contributions = c.contributions;
        }
        changes_.clear();
        for (int r = steps_.first; r < steps_.first + steps_.count; ++r)
            for (int i = first_used_in(r, round); i != none; i = next_used_[index(r, i)]) {
                slot_state& s = at(r, i);
                unstage(r, s);
                if (!s.is_defined() || s.at.where != buffer_kind::scratch) continue;
                give_back(r, s.at.index);
                s.contributions = 0;
            }
    }

    /// Where the data go that the slot receives in the round: to the output if they stay there, else to a scratch slot,
    /// which the caller chooses (the index is none).
    location target(int rank, int slot, int round) const {
        const int unit = units_.output_unit(rank, slot);
        // Slots of an all_to_all also pass on other ranks' blocks: only what is written last stays.
        if (unit != none && (steps_.what != collective::all_to_all || at(rank, slot).last_write == round))
            return {rank, unit, buffer_kind::output};
        return {rank, none, buffer_kind::scratch};
    }
    /// Can copied data go to their target at once, while the round's sends may read what the slot holds?
    bool can_land(int rank, int slot, const location& target, int round) const {
        const slot_state& s = at(rank, slot);
        return s.sent_in != round || target.where == buffer_kind::scratch ||
               (steps_.what == collective::all_to_all && s.at.where != buffer_kind::output);
    }

    /// A scratch slot of `owner` that `writer` may overwrite without a wait: a free one, or a new one.
    location take(int writer, int owner) {
        scratch_slots& s = scratch_[owner];
        // A slot that the writer cannot take stays so until the writer has waited.
        if (s.writer != writer || s.waits != accesses_.waits()) s.seen = 0;
        s.writer = writer;
        s.waits = accesses_.waits();
        for (; s.seen < s.free.size(); ++s.seen) {
            const location l{owner, s.free[s.seen], buffer_kind::scratch};
            if (!accesses_.is_free(writer, l)) continue;
            s.free.drop(s.seen);
            return l;
        }
        return {owner, s.count++, buffer_kind::scratch};
    }
    void give_back(int owner, int index) { scratch_[owner].free.push_back(index); }
    /// How many scratch slots the rank has needed.
    int scratch(int rank) const { return scratch_[rank].count; }

private:
    struct change {
        int rank, slot;
        location to;
        int contributions;
    };
    // The scratch slots of a rank. `writer` could not take the first `seen` of those that are free, after this many
    // waits.
    struct scratch_slots {
        list<int> free;
        int count = 0, writer = none;
        long waits = 0;
        std::size_t seen = 0;
    };

    long index(int rank, int slot) const { return long{rank - steps_.first} * steps_.slots + slot; }
    int& first_used_in(int rank, int round) { return first_used_[long{rank - steps_.first} * steps_.rounds + round]; }
    void unstage(int rank, slot_state& s) {
        if (s.staged != none) give_back(rank, s.staged);
        s.staged = none;
    }
    template <class F>
    void each_step(int round, F f) {
        for (int r = steps_.first; r < steps_.first + steps_.count; ++r)
            for (int p = 0; p < steps_.ports; ++p) f(r, steps_.at(r, round, p));
    }

    const step_table& steps_;
    const unit_map& units_;
    const dependencies& accesses_;
    per_rank<scratch_slots> scratch_;
    list<slot_state> states_;
    // The slots of a rank that a round is the last to use, in ascending order: the first, and by slot the next.
    list<int> first_used_, next_used_;
    list<change> changes_;
};

/// Why no plan can be made of the schedule at n ranks, which it supports; empty: one can.
[[gnu::cold]] inline error_text too_large(const any_schedule& s, int n, reach within) {
    constexpr double gigabyte = 1 << 30, most = 4 * gigabyte, most_of_one = gigabyte;
    const bool messages = within == reach::nothing;
    error_text why;
    // Clocks are kept in 16 bits, and a round takes two values.
    if (!messages && s.rounds(n) >= 30000)
        return why << "more than 30,000 rounds in shared memory: take one of few rounds, such as circulant or tree";
    // About the bytes that it takes to make a plan: of all ranks, or of one where messages pass.
    constexpr double step_bytes = sizeof(step) + 3 * sizeof(instruction), slot_bytes = sizeof(slot_state) + 32;
    const double ranks = messages ? 1 : n, size = n;
    const double steps = static_cast<double>(s.rounds(n)) * s.ports(n), slots = double(s.blocks(n)) + s.scratch(n);
    const double bytes = ranks * (steps * step_bytes + slots * slot_bytes + 8 * size) + 16 * size;
    if (bytes <= (messages ? most_of_one : most)) return why;
    why << "its execution plan" << (messages ? " for one rank" : ", which has the programs of all ranks,");
    put_gigabytes(why << " would take about ", bytes)
        << ", and may take " << (messages ? 1 : 4) << ": take "
        << (messages ? "" : "messages (COLLS_TRANSPORT=tcp), where a rank needs only its own program, or ")
        << "a schedule of fewer rounds and peers, such as tree";
    return why;
}

}  // namespace colls::inline v1::detail
