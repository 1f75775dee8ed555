// A page that explores schedules: every group size, collective and root, a round at a time.
#pragma once

#include "catalogue.hpp"

#include <colls/cost.hpp>

#include <string>
#include <vector>

namespace tool {

/// What a page has at most: more could not be read.
inline constexpr int most_page_ranks = 32, most_page_slots = 64;

struct explorer_request {
    int shown = 0;    ///< the group size that the page shows first; 0: the least one that is refuted, or 8
    int largest = 0;  ///< 0: 16, or `shown` where that is more
    int hosts = 0;    ///< ranks of a host, at first; 0: 4, and the ranks stand on a ring
    colls::model machine;
};
/// A page of HTML that needs no other file, and what is wrong with its schedules, a line for each collective.
struct explorer_page {
    std::string text;
    std::vector<std::string> refuted;
};

/// The page of schedules of one family, for the group sizes from 1 on that they support. It has each schedule's steps,
/// and plays them. What is refuted is drawn, too, up to the round in which it goes wrong. Throws std::runtime_error
/// where nothing can be drawn, or not the group size that was asked for.
explorer_page explorer_of(const std::vector<entry>& schedules, const explorer_request& asked);

}  // namespace tool
