// The commands of the tool. Each prints to the standard output and returns an exit status.
#pragma once

#include "catalogue.hpp"

#include <colls/cost.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

enum status { good = 0, refuted = 1, misused = 2, not_run = 3, nothing_proven = 4 };

/// Families, what each implements, rounds, volume and properties on n ranks. `json`: as JSON.
int list(const std::string& collective, int n, bool json);

/// Proves each schedule for the group sizes that it supports, first to last; prints the first finding of each.
int prove(const std::vector<entry>& schedules, int first, int last, bool json);

/// What schedules cost on n ranks, and their predicted time for `bytes`. `hosts`: of each rank, or empty; then what
/// goes between hosts, too: rounds, and bytes of the rank and of the host that send the most.
int cost(const std::vector<entry>& schedules, int n, double bytes, const colls::model& m, const std::vector<int>& hosts,
    bool json);

/// All schedules of a collective over sizes, the least first: predicted times, the best one of each size, and where the
/// best changes.
int compare(const std::string& collective, int n, const std::vector<double>& sizes, const colls::model& m,
    const std::string& svg, bool json);

/// The most steps, of all ranks together; a count or a proof reads 10 to 100 million in a second.
constexpr double most_steps = 2e9;
/// Refuses what would take minutes, or too much memory, before it begins: a schedule that has more than `most` of
/// `of`, such as "steps". `instead`: what else the user may do.
void expect_few(
    const entry& e, int n, const char* of, double number, double most, const std::string& instead = std::string());

/// "4 KB", "12.5 us".
std::string show_size(double bytes);
std::string show_time(double seconds);
/// How many times as long as `best` it takes, as "1.25"; "1.00" where both take no time.
std::string show_ratio(double seconds, double best);
/// "1..16" or "8"; at most 2^24.
std::pair<int, int> parse_range(const std::string& text);

}  // namespace tool
