// What each slot of each rank holds before and after each round, for pictures.
#pragma once

#include <colls/any_schedule.hpp>

#include <vector>

namespace tool {

/// What a slot holds: contributions of `parts` of the ranks to block `label`; label none: nothing.
struct slot_state {
    int label = colls::none;
    int parts = 0;
    bool done = false;  ///< it is what the collective asks for
};
/// The slots at one moment: [rank][slot].
using picture_state = std::vector<std::vector<slot_state>>;

/// The states before the first round and after each one: rounds + 1 of them. The schedule must be proven for n ranks.
/// For a barrier, a slot's parts are the ranks that the rank has heard of.
std::vector<picture_state> states_of(const colls::any_schedule& s, int n);

}  // namespace tool
