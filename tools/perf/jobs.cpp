#include "jobs.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace perf {

namespace {

struct traits {
    std::string_view name;
    bool blocked, out_of_place, in_place;
};
constexpr std::array<traits, job_count> table{{{"broadcast", false, false, true}, {"scatter", true, true, true},
    {"gather", true, true, true}, {"all_gather", true, true, true}, {"reduce", false, true, true},
    {"reduce_scatter", true, true, true}, {"all_reduce", false, true, true}, {"all_to_all", true, true, true},
    {"barrier", false, true, false}, {"inclusive_scan", false, true, true}, {"exclusive_scan", false, true, true},
    {"all_to_all_v", true, true, false}, {"send_recv", false, true, false}}};
const traits& of(job j) { return table[static_cast<std::size_t>(j)]; }

std::string plain(std::string_view name) {
    std::string out;
    for (const char c : name)
        if (c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (out.size() > 4 && out.ends_with("perf")) out.resize(out.size() - 4);
    return out;
}

}  // namespace

std::string_view name_of(job j) { return of(j).name; }

std::optional<job> job_named(std::string_view name) {
    const std::string wanted = plain(name);
    for (int j = 0; j < job_count; ++j)
        if (plain(table[static_cast<std::size_t>(j)].name) == wanted) return static_cast<job>(j);
    return wanted == "scan" ? std::optional(job::inclusive_scan) : std::nullopt;
}

std::vector<job> all_jobs() {
    std::vector<job> jobs;
    for (int j = 0; j < colls::collective_count; ++j) jobs.push_back(static_cast<job>(j));
    return jobs;
}

std::optional<colls::collective> collective_of(job j) {
    if (j == job::send_recv) return {};
    if (j == job::all_to_all_v) return colls::collective::all_to_all;
    return static_cast<colls::collective>(j);
}
bool reduces(job j) { return j != job::send_recv && colls::reduces(*collective_of(j)); }
bool rooted(job j) { return j != job::send_recv && colls::rooted(*collective_of(j)); }
bool blocked(job j) { return of(j).blocked; }
bool runs_out_of_place(job j) { return of(j).out_of_place; }
bool runs_in_place(job j) { return of(j).in_place; }

double bus_factor(job j, int n) {
    const double others = static_cast<double>(n - 1) / n;
    if (j == job::all_reduce) return 2 * others;
    return blocked(j) ? others : 1;
}

double least_copies(job j, int n) {
    const double ranks = n, others = (ranks - 1) / ranks;
    switch (j) {
        case job::broadcast:
        case job::all_gather:
        case job::all_to_all:
        case job::all_to_all_v:
            return others;  // what comes from other ranks
        case job::scatter:
        case job::gather:
            return others / ranks;
        case job::reduce:
        case job::reduce_scatter:
            return (ranks + 1) / (2 * ranks);  // n inputs are loaded, one result is stored: (n + 1) / 2 copies
        case job::barrier:
            return 0;
        default:
            return 1;
    }
}

shape shape_of(job j, std::size_t bytes, std::size_t element, int n) {
    const auto ranks = static_cast<std::size_t>(n);
    shape s{.element = element};
    if (j == job::barrier) return s;
    s.count = bytes / element;
    if (blocked(j)) {
        s.count /= ranks;
        if (s.count >= 16 / element) s.count -= s.count % (16 / element);
    }
    s.count = std::max<std::size_t>(s.count, 1);
    s.in = s.out = s.whole = blocked(j) ? s.count * ranks : s.count;
    if (j == job::all_gather || j == job::gather) s.in = s.count;
    if (j == job::reduce_scatter || j == job::scatter) s.out = s.count;
    return s;
}

std::size_t sent_by(int from, int to, int n, std::size_t count) {
    const auto ranks = static_cast<std::size_t>(n), ahead = static_cast<std::size_t>((to - from + n) % n);
    const auto share = [&](std::size_t k) { return 2 * count * (k + 1) / (ranks + 1); };
    if (ahead + 1 < ranks) return share(ahead);
    std::size_t nearer = 0;  // the farthest rank gets what is left, so that each rank sends count * n in all
    for (std::size_t k = 0; k + 1 < ranks; ++k) nearer += share(k);
    return count * ranks - nearer;
}

}  // namespace perf
