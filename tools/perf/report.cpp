#include "report.hpp"

#include <colls/config.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <thread>

namespace perf {

namespace {

/// As many decimals, of 2 at most, as fit into the width.
std::string fitted(double value, std::size_t width) {
    for (const int decimals : {2, 1, 0})
        if (const std::string text = fmt::format("{:>{}.{}f}", value, width, decimals); text.size() <= width)
            return text;
    return fmt::format("{:>{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

/// A column of figures of the iterations.
struct statistic {
    const char *name, *unit;
    double (*of)(const std::vector<double>&);
};
constexpr double micro = 1e6;
double mean_of(const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}
std::vector<statistic> statistics(const options& o) {
    std::vector<statistic> all;
    if (o.percentiles) {
        all.push_back({"p50", "(us)", [](const std::vector<double>& v) { return percentile(v, 0.5) * micro; }});
        all.push_back({"p99", "(us)", [](const std::vector<double>& v) { return percentile(v, 0.99) * micro; }});
    }
    if (o.per_iteration) {
        all.push_back({"i_min", "(us)", [](const std::vector<double>& v) { return std::ranges::min(v) * micro; }});
        all.push_back({"i_max", "(us)", [](const std::vector<double>& v) { return std::ranges::max(v) * micro; }});
        all.push_back({"i_p99", "(us)", [](const std::vector<double>& v) { return percentile(v, 0.99) * micro; }});
        all.push_back({"i_cv%", "(%)", [](const std::vector<double>& v) {
                           const double mean = mean_of(v);
                           double squares = 0;
                           for (const double x : v) squares += (x - mean) * (x - mean);
                           return mean > 0 ? 100 * std::sqrt(squares / static_cast<double>(v.size())) / mean : 0;
                       }});
    }
    return all;
}

std::string half_text(const options& o, const row& r, const std::optional<half>& h) {
    const std::vector<statistic> extra = statistics(o);
    std::string out;
    if (!h) {
        out = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
        for (std::size_t i = 0; i < extra.size(); ++i) out += fmt::format("  {:>7}", "N/A");
        return out;
    }
    const double seconds = h->time.seconds, algorithm = static_cast<double>(r.size.bytes()) / seconds;
    out = fmt::format("  {}  {}  {}  {:>6}", fitted(seconds * micro, 7), fitted(algorithm / 1e9, 6),
        fitted(r.bus_bandwidth(seconds) / 1e9, 6),
        h->wrong ? fmt::format("{:g}", static_cast<double>(*h->wrong)) : "N/A");
    for (const statistic& s : extra) out += "  " + fitted(s.of(h->time.iteration), 7);
    return out;
}

nlohmann::json half_json(const options& o, const row& r, const std::optional<half>& h) {
    if (!h) return nullptr;
    const double seconds = h->time.seconds;
    nlohmann::json out{{"seconds", seconds}, {"time_us", seconds * micro},
        {"algbw_gb_s", static_cast<double>(r.size.bytes()) / seconds / 1e9},
        {"busbw_gb_s", r.bus_bandwidth(seconds) / 1e9}, {"wrong", nullptr}, {"iterations", h->time.iterations}};
    if (h->wrong) out["wrong"] = *h->wrong;
    for (const statistic& s : statistics(o)) out[s.name] = s.of(h->time.iteration);
    return out;
}

std::string processor() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string text; std::getline(info, text);)
        if (text.starts_with("model name") && text.find(": ") != std::string::npos)
            return text.substr(text.find(": ") + 2);
    return "unknown";
}

}  // namespace

double row::bus_bandwidth(double seconds) const {
    return static_cast<double>(size.bytes()) / seconds * bus_factor(what, ranks);
}

std::set<std::string> hosts_of(const std::vector<place>& ranks) {
    std::set<std::string> hosts;
    for (const place& p : ranks) hosts.insert(p.host);
    return hosts;
}

std::string heading(const options& o, const std::vector<place>& ranks) {
    std::string out =
        fmt::format("# colls_perf version {}.{}.{}\n", COLLS_VERSION_MAJOR, COLLS_VERSION_MINOR, COLLS_VERSION_PATCH);
    out += fmt::format(
        "# nRanks {} transport: {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: {} "
        "validation: {} average: {} unalign: {}\n",
        ranks.size(), o.transport, o.min_bytes, o.max_bytes, o.step_factor > 1 ? o.step_factor : o.step_bytes,
        o.step_factor > 1 ? "factor" : "bytes", o.warmup, o.iterations > 0 ? std::to_string(o.iterations) : "20+",
        o.aggregate, o.checks, o.average, o.unalign);
    if (!o.schedule.empty()) out += fmt::format("# Schedule: {}\n", o.schedule);
    if (o.reproducible) out += "# Reproducible\n";
    if (o.registered) out += "# Buffers from communicator::allocate\n";
    constexpr const char* modes[] = {"each operation is started and waited for",
        "a barrier after each iteration, timed", "", "a barrier around each iteration, not timed"};
    if (o.blocking != 2) out += fmt::format("# Blocking {}: {}\n", o.blocking, modes[o.blocking]);
    if (o.fresh) out += "# Fresh: inputs are rewritten before each iteration and outputs read after it, not timed\n";
    out += "#\n# Using ranks\n";
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        out += fmt::format("#  Rank {:>2} Pid {:>6} on {:>10}", r, ranks[r].pid, ranks[r].host);
        if (o.pin) out += fmt::format(" core {:>2}", ranks[r].core);
        out += "\n";
    }
    return out;
}

std::string columns(const options& o, job j) {
    const std::vector<statistic> extra = statistics(o);
    std::string title,
        names = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop", "root"),
        units = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
    const std::size_t width = 33 + 9 * extra.size();
    title = fmt::format("# {:>50}", "");
    for (const std::string half : {"out-of-place", "in-place"})
        title += fmt::format("{:<{}}", std::string((width - half.size() + 1) / 2, ' ') + half, width);
    for (int i = 0; i < 2; ++i) {
        names += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "time", "algbw", "busbw", "#wrong");
        units += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
        for (const statistic& s : extra) {
            names += fmt::format("  {:>7}", s.name);
            units += fmt::format("  {:>7}", s.unit);
        }
    }
    if (o.timestamps) names += fmt::format("{:>21}", "timestamp");
    if (o.show_schedule) names += "  schedule";
    std::string out = fmt::format("#\n# Collective test starting: {}\n#\n", name_of(j));
    for (const std::string& text : {title, names, units}) out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
    return out;
}

std::string line(const options& o, const row& r) {
    std::string out =
        fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", r.size.bytes(), r.size.count, r.type, name_of(r.op), r.root);
    out += half_text(o, r, r.out_of_place) + half_text(o, r, r.in_place);
    if (o.timestamps) out += fmt::format("  {:%Y-%m-%d %H:%M:%S}", fmt::localtime(r.at));
    if (o.show_schedule) out += "  " + r.schedule;
    return out + "\n";
}

std::string footer(job j, const std::vector<row>& rows) {
    const int failed = failed_checks(rows);
    return fmt::format("# {:<20} : {} {}\n# {:<20} : {:g}\n#\n# Collective test concluded: {}\n#\n",
        "Out of bounds values", failed, failed == 0 ? "OK" : "FAILED", "Avg bus bandwidth", average_bus_bandwidth(rows),
        name_of(j));
}

int failed_checks(const std::vector<row>& rows) {
    int failed = 0;
    for (const row& r : rows)
        for (const auto& h : {r.out_of_place, r.in_place}) failed += h && h->wrong.value_or(0) > 0;
    return failed;
}

double average_bus_bandwidth(const std::vector<row>& rows) {
    double sum = 0;
    int halves = 0;
    for (const row& r : rows)
        for (const auto& h : {r.out_of_place, r.in_place})
            if (h) sum += r.bus_bandwidth(h->time.seconds) / 1e9, ++halves;
    return halves > 0 ? sum / halves : 0;
}

nlohmann::json to_json(const options& o, const std::vector<row>& rows, const std::vector<place>& ranks) {
    nlohmann::json list = nlohmann::json::array();
    for (const row& r : rows) {
        nlohmann::json out{{"collective", name_of(r.what)}, {"ranks", r.ranks}, {"bytes", r.size.bytes()},
            {"count", r.size.count}, {"type", r.type}, {"redop", name_of(r.op)}, {"root", r.root},
            {"schedule", r.schedule}, {"seconds", r.seconds()}, {"out_of_place", half_json(o, r, r.out_of_place)},
            {"in_place", half_json(o, r, r.in_place)}};
        if (r.bound_seconds) out["bound_seconds"] = *r.bound_seconds;
        list.push_back(std::move(out));
    }
    utsname system{};
    uname(&system);
    return {{"tool", "colls_perf"}, {"name", o.name},
        {"version", fmt::format("{}.{}.{}", COLLS_VERSION_MAJOR, COLLS_VERSION_MINOR, COLLS_VERSION_PATCH)},
        {"machine", {{"hosts", hosts_of(ranks)}, {"ranks", ranks.size()}, {"processor", processor()},
                        {"cores", std::thread::hardware_concurrency()},
                        {"system", fmt::format("{} {}", system.sysname, system.release)}}},
        {"settings",
            {{"transport", o.transport}, {"schedule", o.schedule}, {"reproducible", o.reproducible},
                {"registered", o.registered}, {"fresh", o.fresh}, {"min_bytes", o.min_bytes},
                {"max_bytes", o.max_bytes}, {"step_bytes", o.step_bytes}, {"step_factor", o.step_factor},
                {"iterations", o.iterations}, {"warmup", o.warmup}, {"aggregate", o.aggregate},
                {"blocking", o.blocking}, {"average", o.average}, {"checks", o.checks}, {"unalign", o.unalign}}},
        {"rows", list}, {"out_of_bounds", failed_checks(rows)}, {"average_busbw_gb_s", average_bus_bandwidth(rows)}};
}

}  // namespace perf
