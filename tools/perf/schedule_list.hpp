// The families that --schedule may name: those that COLLS_SCHEDULE knows.
#pragma once

#include <colls/any_schedule.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace perf {

/// The families' names, and `eager`, the path of small messages.
std::vector<std::string> schedule_names();

/// Whether the family has a schedule for the collective, and whether that one supports n ranks. Both are true of
/// `eager`.
bool provides(std::string_view family, colls::collective what);
bool supports(std::string_view family, colls::collective what, int n);

/// The fewest rounds in which a family's schedule does the collective on n ranks.
int fewest_rounds(colls::collective what, int n);

/// Scatter and gather: COLLS_SCHEDULE leaves these to `direct`, since automatic does not know their sizes on all ranks;
/// so their calls take the schedule as a value. The families' schedules, for listed<C>::index; the position of a family
/// among them, or -1.
const colls::any_schedule& scatter_schedule(int index);
const colls::any_schedule& gather_schedule(int index);
int index_of(std::string_view family, colls::collective what);

/// A schedule of that list.
template <colls::collective C>
struct listed {
    static constexpr colls::collective implements = C;
    int index = 0;

    const colls::any_schedule& get() const {
        return C == colls::collective::scatter ? scatter_schedule(index) : gather_schedule(index);
    }
    int rounds(int n) const { return get().rounds(n); }
    int blocks(int n) const { return get().blocks(n); }
    int ports(int n) const { return get().ports(n); }
    int scratch(int n) const { return get().scratch(n); }
    int root(int n) const { return get().root(n); }
    int home(int n, int slot) const { return get().home(n, slot); }
    bool supports(int n) const { return get().supports(n); }
    colls::step at(int rank, int n, int round, int port) const { return get().at(rank, n, round, port); }
};

}  // namespace perf
