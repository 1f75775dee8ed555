// Which ranks are on one host, and what a schedule sends between hosts.
#pragma once

#include "catalogue.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tool {

/// The host of each of n ranks. `text`: how many ranks each host has, one host after the other, as "2,1,3"; or one
/// number that all have, as "4". Empty for an empty text. Throws std::runtime_error where they are not n in all.
std::vector<int> hosts_of(const std::string& text, int n);

/// What goes between hosts.
struct far_traffic {
    int rounds = 0;               ///< in which something does
    std::uint64_t blocks = 0;     ///< that the rank sends which sends the most
    std::uint64_t of_a_host = 0;  ///< that the host sends which sends the most
};
/// Counted from the steps of all ranks.
far_traffic far_traffic_of(const colls::any_schedule& s, const std::vector<int>& hosts);

}  // namespace tool
