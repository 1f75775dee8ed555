// The schedules that the tool knows: those of the library's families, and those of a user's header.
#pragma once

#include <colls/any_schedule.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// A schedule for one collective, and the family that it is of.
struct entry {
    std::string family;
    colls::any_schedule schedule;
    int ranks = 0;  ///< of a plan, which is for one group size; 0: of any

    /// The steps of all of n ranks: what counting, playing or drawing it goes through.
    double steps(int n) const { return static_cast<double>(n) * schedule.rounds(n) * schedule.ports(n); }
};

/// All schedules of the library's families, those of one family after those of another.
const std::vector<entry>& catalogue();
/// The names of the families, in the library's order.
std::vector<std::string> families();

/// Whether collective_named knows the name.
bool names_collective(std::string_view name);
/// From a name in any of the usual spellings: all_reduce, allreduce, AllReduce. Throws std::runtime_error that lists
/// the names.
colls::collective collective_named(std::string_view name);

/// What the user asks for on the command line.
struct request {
    std::string name;        ///< of a family; with `include`, of a C++ type: a schedule or a family; or a plan's file
    std::string collective;  ///< empty: all that it has
    std::string include;     ///< a header that declares `name`; empty: a family of the library
};
/// The schedules that a request names, at least one. Throws std::runtime_error that says what there is instead. A
/// header is compiled by $CXX, or c++, into ${XDG_CACHE_HOME:-~/.cache}/colls, once for each content of what it
/// includes.
std::vector<entry> find(const request& asked);

}  // namespace tool
