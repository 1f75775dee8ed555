// Rows as nccl-tests print them, and as JSON.
#pragma once

#include "measure.hpp"

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace perf {

/// One call, out of place or in place.
struct half {
    timing time;
    std::optional<std::size_t> wrong;  ///< elements on all ranks; empty: not checked
};

struct row {
    job what{};
    shape size;
    std::string_view type;
    reduction op = reduction::none;
    int root = -1, ranks = 1;
    std::string schedule;
    std::optional<half> out_of_place, in_place;  ///< empty: there is no such call
    std::optional<double> bound_seconds;
    std::time_t at = 0;

    /// The time that stands for the row: out of place if the collective has that form.
    double seconds() const { return (out_of_place ? *out_of_place : *in_place).time.seconds; }
    double bus_bandwidth(double seconds) const;  ///< bytes a second
};

/// A rank, as the header lists it.
struct place {
    char host[64];
    int pid, core;
};

std::set<std::string> hosts_of(const std::vector<place>& ranks);

/// The lines that begin a run.
std::string heading(const options& o, const std::vector<place>& ranks);
/// The lines before the rows of a collective, which name the columns.
std::string columns(const options& o, job j);
std::string line(const options& o, const row& r);
/// The lines behind the rows of a collective.
std::string footer(job j, const std::vector<row>& rows);

/// How many halves of the rows have wrong elements.
int failed_checks(const std::vector<row>& rows);
/// The mean bus bandwidth of the halves, in GB/s.
double average_bus_bandwidth(const std::vector<row>& rows);

nlohmann::json to_json(const options& o, const std::vector<row>& rows, const std::vector<place>& ranks);

}  // namespace perf
