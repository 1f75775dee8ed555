// Which parts of the users' buffers the slots of a schedule stand for.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// A unit is what one slot holds of a user block: the whole block, or a part of it where several slots have one home.
// Units are numbered block by block. All blocks have the same range of numbers: as many as the block with most parts
// needs.
#pragma once

#include <colls/detail/plan/execution_plan.hpp>
#include <colls/detail/plan/step_table.hpp>

#include <utility>

namespace colls::inline v1::detail {

class unit_map {
public:
    [[gnu::cold]] explicit unit_map(const step_table& steps) : steps_(steps), traits_(traits_of(steps.what)) {
        const int n = steps.size;
        if (traits_.owned()) {
            blocks_ = n;
            list<int> parts;
            parts.resize(static_cast<std::size_t>(n));
            home_unit_.resize(static_cast<std::size_t>(steps.blocks), none);
            for (int s = 0; s < steps.blocks; ++s)
                if (const int home = steps.schedule.home(n, s); home != none) home_unit_[s] = parts[home]++;
            parts_ = fewest_parts_ = parts[0];
            for (const int k : parts) {
                if (k > parts_) parts_ = k;
                if (k < fewest_parts_) fewest_parts_ = k;
            }
            for (int s = 0; s < steps.blocks; ++s)
                if (home_unit_[s] != none) home_unit_[s] += steps.schedule.home(n, s) * parts_;
            if (fewest_parts_ != parts_) parts_of_ = std::move(parts);
        } else if (steps.what == collective::all_to_all) {
            blocks_ = n;
            parts_ = fewest_parts_ = steps.blocks / n;
        } else {
            blocks_ = steps.blocks;
        }
    }

    /// More than any index of an input or output location.
    int indices() const { return blocks_ * parts_ < steps_.blocks ? steps_.blocks : blocks_ * parts_; }
    /// Does the unit belong to a block of this rank's? (Meaningful where blocks have owners.)
    bool is_of(int rank, int unit) const { return unit / parts_ == rank; }
    /// True for a slot that stands for no user block: it is never filled.
    bool is_empty(int slot) const { return unit_of(slot) == none; }

    /// The unit of its input that a rank's slot holds at the start, or none.
    int input_unit(int rank, int slot) const {
        return unit_in(&any_schedule::input, traits_.in, traits_.in_at_root, rank, slot);
    }
    /// The unit of its output that a rank's slot holds at the end, or none.
    int output_unit(int rank, int slot) const {
        if (traits_.contributors_at(rank, steps_.size) == 0) return none;
        return unit_in(&any_schedule::output, traits_.out, traits_.out_at_root, rank, slot);
    }
    /// The unit of a slot, but in an all_to_all: its home's, or none, where blocks have owners; 0 for a scratch slot.
    int unit_of(int slot) const { return slot >= steps_.blocks ? 0 : traits_.owned() ? home_unit_[slot] : slot; }
    /// The unit that has the length of the data in a rank's slot; `data`: where they lie.
    int length_unit(int rank, int slot, const location& data) const {
        // Blocks of an all_to_all have one length, except in all_to_all_v. That one runs by the direct schedule, whose
        // data come straight from the input. Parts of a block differ in length; data stay in slots of the same part.
        if (steps_.what == collective::all_to_all) {
            if (data.where == buffer_kind::input) return data.index;
            return parts_ > 1 ? output_unit(rank, slot) % parts_ : 0;
        }
        return unit_of(slot);
    }

    /// Enters blocks and parts in the plan.
    void describe(execution_plan& plan) && {
        plan.blocks = blocks_;
        plan.parts = parts_;
        plan.fewest_parts = fewest_parts_;
        plan.parts_of = std::move(parts_of_);
    }

private:
    using block_of_slot = int (any_schedule::*)(int rank, int n, int slot) const;
    int unit_in(block_of_slot side, content held, bool root_alone, int rank, int slot) const {
        if (slot >= steps_.blocks || (root_alone && rank != steps_.root)) return none;
        if (names_contents(steps_.what)) {
            const auto block = [&](int s) { return (steps_.schedule.*side)(rank, steps_.size, s); };
            const int own = block(slot);
            // Units of a redistribution are a rank's own: its slots.
            if (steps_.what == collective::redistribute) return own == none ? none : slot;
            // Slots of one block are its parts, in the order of the slots.
            int part = 0;
            for (int s = 0; s < slot && parts_ > 1; ++s) part += block(s) == own;
            return own * parts_ + part;
        }
        const int unit = unit_of(slot);
        const bool is_foreign = held == content::own_block && unit != none && !is_of(rank, unit);
        return is_foreign || held == content::nothing ? none : unit;
    }

    const step_table& steps_;
    const collective_traits& traits_;
    int blocks_ = 1, parts_ = 1, fewest_parts_ = 1;
    list<int> parts_of_;
    list<int> home_unit_;  // where blocks have owners: by slot, or none
};

}  // namespace colls::inline v1::detail
