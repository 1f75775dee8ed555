// What the simulators of execution plans share: values that stand for data, and what each rank's buffers hold before
// and must hold after a collective.
#pragma once

#include <colls/detail/plan/execution_plan.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace support {

/// The data of one location: contributions of ranks to one unit.
struct plan_value {
    std::vector<int> ranks;    ///< that contributed, in the order of the fold
    int unit = colls::none;    ///< of the contributors' input
    bool is_complete = false;  ///< the fold was marked as the last one
};

/// The inputs and outputs of a plan's collective. Units of the second buffer to go through the plan (a chunk), and so
/// on, have numbers that are higher by `offset`.
class plan_data {
public:
    explicit plan_data(const colls::detail::execution_plan& plan) : plan_(plan), what_(plan.schedule.implements) {}

    int units() const { return plan_.blocks * plan_.parts; }
    /// Does the rank's input have the unit?
    bool has_input(int rank, int unit) const {
        using colls::collective;
        if (!exists(unit)) return false;
        switch (what_) {
            case collective::barrier:
                return false;
            case collective::broadcast:
            case collective::scatter:
                return rank == plan_.root;
            case collective::gather:
            case collective::all_gather:
                return block_of(unit) == rank;
            default:
                return true;
        }
    }
    /// Must the rank's output have the unit at the end?
    bool has_output(int rank, int unit) const {
        using colls::collective;
        if (!exists(unit)) return false;
        switch (what_) {
            case collective::barrier:
                return false;
            case collective::gather:
            case collective::reduce:
                return rank == plan_.root;
            case collective::scatter:
            case collective::reduce_scatter:
                return block_of(unit) == rank;
            case collective::exclusive_scan:
                return rank > 0;
            default:
                return true;
        }
    }
    /// Is this what the rank's output must have in the unit?
    bool is_output(int rank, int unit, const plan_value& v, int offset = 0) const {
        using colls::collective;
        if (!reduces(what_)) {
            const bool from_root = what_ == collective::broadcast || what_ == collective::scatter;
            const int source = from_root ? plan_.root : block_of(unit);
            const int of = what_ == collective::all_to_all ? rank * plan_.parts + unit % plan_.parts : unit;
            return v.ranks == std::vector<int>{source} && v.unit == of + offset;
        }
        const int end = what_ == collective::inclusive_scan   ? rank + 1
                        : what_ == collective::exclusive_scan ? rank
                                                              : size();
        std::vector<int> all, got = v.ranks;
        for (int q = 0; q < end; ++q) all.push_back(q);
        if (!plan_.order_preserving) std::sort(got.begin(), got.end());
        return got == all && v.unit == unit + offset;
    }

    /// Appends an operand to a fold; returns what is wrong with that, or nothing.
    std::string fold(plan_value& sum, const plan_value& operand) const {
        if (operand.is_complete) return "folds a complete result";
        if (!sum.ranks.empty() && operand.unit != sum.unit) return "folds different units";
        sum.unit = operand.unit;
        for (const int q : operand.ranks) {
            if (std::find(sum.ranks.begin(), sum.ranks.end(), q) != sum.ranks.end())
                return "folds a contribution twice";
            sum.ranks.push_back(q);
        }
        return {};
    }
    /// Ends a fold; returns what is wrong with it, or nothing.
    std::string complete(plan_value& sum, bool finish) const {
        sum.is_complete = finish;
        return finish == (static_cast<int>(sum.ranks.size()) == size()) ? "" : "has a fold with a wrong finish mark";
    }

private:
    int size() const { return plan_.size; }
    int block_of(int unit) const { return unit / plan_.parts; }
    bool exists(int unit) const {
        return plan_.parts_of.empty() || unit % plan_.parts < plan_.parts_of[block_of(unit)];
    }

    const colls::detail::execution_plan& plan_;
    const colls::collective what_;
};

}  // namespace support
