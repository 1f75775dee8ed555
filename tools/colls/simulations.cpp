#include "simulations.hpp"

#include "commands.hpp"
#include "json_text.hpp"
#include "progress.hpp"
#include "schedule_header.hpp"

#include <colls/verify.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <stdexcept>

namespace tool {

namespace {

using nlohmann::json;
namespace sim = colls::simulation;

/// Steps that a simulation asks for: a schedule of more is simulated only where all ranks do the same.
constexpr double most_steps = 1e6;
/// Steps of all chunks, where blocks go in chunks: some seconds.
constexpr double most_chunked_steps = 1e7;
/// Group sizes for which properties are derived: they do not change with the size, and large proofs take long.
constexpr int largest_proof = 24;

/// A schedule on n ranks of a network, if that can be simulated in a short time.
class subject {
public:
    /// `bytes`: the most that are simulated. `always`: however many steps it has.
    subject(const entry& e, const network& on, int n, double bytes, bool always = false)
        : entry_(&e), network_(&on), n_(n) {
        const colls::any_schedule& s = e.schedule;
        if (n > on.topology.ranks() || !s.supports(n)) return;
        const double ports = s.ports(n), rounds = s.rounds(n);
        options_.gamma = on.gamma;
        options_.overhead = on.overhead;
        options_.buffered = on.buffered;
        options_.chunk = on.chunk;
        const double steps = ports * rounds * n,
                     chunks = on.chunk > 0 && s.blocks(n) > 0 ? bytes / s.blocks(n) / on.chunk : 0;
        possible_ = always || (steps <= most_steps && steps * chunks <= most_chunked_steps);
        if (possible_ || on.buffered || ports * n > most_steps || rounds * ports * 3 > 10 * most_steps) return;
        int proven = std::min(n, largest_proof);
        while (proven > 1 && !s.supports(proven)) --proven;
        options_.in_step = options_.symmetric = possible_ = colls::properties_of(s, proven).symmetric;
    }

    const std::string& family() const { return entry_->family; }
    bool possible() const { return possible_; }
    double seconds(double bytes) const { return played(bytes, options_).seconds; }
    /// The mean over trials.
    double seconds(double bytes, const disturbance& d) const {
        if (!d.any()) return seconds(bytes);
        double sum = 0;
        sim::options o = options_;
        o.in_step = false;
        for (int trial = 1; trial <= d.trials; ++trial) {
            const auto seed = static_cast<std::uint64_t>(trial);
            o.late = [noise = sim::exponential_noise(d.noise, seed),
                         few = sim::stragglers(std::max(d.one_in, 1), d.one_in > 0 ? d.late : 0, seed)](
                         int rank, int round) { return noise(rank, round) + few(rank, round); };
            sum += played(bytes, o).seconds;
        }
        return sum / d.trials;
    }
    bool disturbable() const { return possible_ && !options_.in_step; }
    const sim::options& options() const { return options_; }

private:
    sim::outcome played(double bytes, const sim::options& o) const {
        return sim::simulate(entry_->schedule, n_, network_->topology, bytes, o);
    }

    const entry* entry_;
    const network* network_;
    int n_;
    sim::options options_;
    bool possible_ = false;
};

/// Those of the library for the collective, and `more`.
std::vector<entry> schedules_for(colls::collective what, const std::vector<entry>& more) {
    std::vector<entry> found;
    for (const entry& e : catalogue())
        if (e.schedule.implements == what) found.push_back(e);
    found.insert(found.end(), more.begin(), more.end());
    return found;
}

/// Seconds and families, the fastest first; of equal ones in the order of the catalogue.
using ranking = std::vector<std::pair<double, std::string>>;

ranking ranked(const std::vector<subject>& all, double bytes) {
    ranking ordered;
    const progress shown;
    for (const subject& s : all) {
        shown.say(fmt::format("{}: {}", show_size(bytes), s.family()));
        ordered.emplace_back(s.seconds(bytes), s.family());
    }
    // Times that are equal but for rounding are made equal.
    std::ranges::stable_sort(ordered, {}, [](const auto& of) { return std::round(std::log(of.first) * 1e9); });
    return ordered;
}

/// From so many bytes on this family.
struct chosen {
    double from;
    std::string family;
};

void write_tuning(const std::string& file, colls::collective what, int n, const std::string& origin,
    const std::vector<chosen>& choices) {
    std::string text = "# Schedules that took the least time in a simulation, for COLLS_TUNE\n";
    constexpr std::size_t width = 200;  // the reader takes lines of 254 characters
    std::string line = origin;
    std::ranges::replace_if(line, [](unsigned char c) { return c < ' '; }, ' ');
    for (std::size_t at = 0; at < line.size(); at += width) text += "# " + line.substr(at, width) + "\n";
    for (const chosen& c : choices)
        text += fmt::format("schedule {} {} {:.0f} {}\n", colls::name_of(what), n, std::ceil(c.from), c.family);
    std::ofstream out(file);
    out << text;
    if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

}  // namespace

int simulate(const std::string& collective, const std::vector<entry>& only, const network& on, std::vector<int> sizes,
    double bytes, const disturbance& late, bool as_json) {
    const colls::collective what = collective_named(collective);
    if (sizes.empty()) {
        for (int n = 2; n < on.topology.ranks(); n *= 2) sizes.push_back(n);
        sizes.push_back(on.topology.ranks());
    }
    for (const int n : sizes)
        if (n > on.topology.ranks())
            throw std::runtime_error(fmt::format("the network has {} ranks, not {}", on.topology.ranks(), n));
    json rows = json::array();
    if (!as_json) {
        fmt::print("{} of {}, simulated\n\n{:<20}", colls::name_of(what), show_size(bytes), "ranks");
        for (const int n : sizes) fmt::print(" {:>11}", n);
        fmt::print("\n");
    }
    for (const entry& e : only.empty() ? schedules_for(what, {}) : only) {
        if (!as_json) fmt::print("{:<20}", e.family);
        for (const int n : sizes) {
            const progress shown;
            shown.say(fmt::format("{}: {} ranks", e.family, n));
            const subject s(e, on, n, bytes);
            std::optional<double> seconds;
            if (late.any() ? s.disturbable() : s.possible()) seconds = s.seconds(bytes, late);
            if (!as_json)
                fmt::print(" {:>11}", seconds ? show_time(*seconds) : "-");
            else if (seconds)
                rows.push_back({{"family", e.family}, {"ranks", n}, {"bytes", bytes}, {"seconds", *seconds}});
        }
        if (!as_json) fmt::print("\n");
    }
    if (as_json) print(rows);
    return good;
}

int choose(const std::string& collective, const std::vector<entry>& own, const network& on, int n,
    const std::vector<double>& sizes, const std::string& tune, const std::string& origin, bool as_json) {
    const colls::collective what = collective_named(collective);
    if (!tune.empty() && !own.empty())
        throw std::runtime_error("a file for COLLS_TUNE names families of the library alone: no --include with --tune");
    if (!tune.empty() && (what == colls::collective::scatter || what == colls::collective::gather))
        throw std::runtime_error(fmt::format(
            "{} always goes by direct: not all ranks know its size, so no file can choose", colls::name_of(what)));
    if (n > on.topology.ranks())
        throw std::runtime_error(fmt::format("the network has {} ranks, not {}", on.topology.ranks(), n));
    const std::vector<entry> schedules = schedules_for(what, own);
    std::vector<subject> all;
    std::vector<std::string> left_out;
    for (const entry& e : schedules) {
        const subject s(e, on, n, sizes.back());
        if (s.possible())
            all.push_back(s);
        else if (e.schedule.supports(n))
            left_out.push_back(e.family);
    }
    if (all.empty()) throw std::runtime_error(fmt::format("no schedule can be simulated on {} ranks", n));

    json rows = json::array();
    if (!as_json)
        fmt::print("{} on {} ranks, simulated\n\n{:>10}  {:<20} {:>12}  {}\n", colls::name_of(what), n, "size", "best",
            "time", "next");
    std::vector<ranking> of_sizes;
    for (const double bytes : sizes) {
        const ranking& ordered = of_sizes.emplace_back(ranked(all, bytes));
        if (as_json) {
            json times;
            for (const auto& [seconds, family] : ordered) times[family] = seconds;
            rows.push_back({{"bytes", bytes}, {"best", ordered[0].second}, {"seconds", times}});
        } else {
            fmt::print("{:>10}  {:<20} {:>12}  {}\n", show_size(bytes), ordered[0].second, show_time(ordered[0].first),
                ordered.size() > 1 ? fmt::format("{} {} times as long", ordered[1].second,
                                         show_ratio(ordered[1].first, ordered[0].first))
                                   : std::string());
        }
    }
    // Where the best one changes, by bisection between two sizes.
    std::vector<chosen> choices{{0, of_sizes.front()[0].second}};
    for (std::size_t i = 1; i < sizes.size(); ++i)
        for (double low = sizes[i - 1]; of_sizes[i][0].second != choices.back().family;) {
            double high = sizes[i];
            std::string after = of_sizes[i][0].second;
            while (high - low > 1 && high / low > 1.1) {  // the library tells apart sizes of an eighth's difference
                const double middle = std::sqrt(std::max(low, 1.0) * high);
                const std::string best = ranked(all, middle)[0].second;
                if (best == choices.back().family) {
                    low = middle;
                } else {
                    high = middle;
                    after = best;
                }
            }
            choices.push_back({low = high, after});
            if (!as_json)
                fmt::print("from {} on {}, not {}\n", show_size(high), choices.back().family,
                    choices[choices.size() - 2].family);
        }
    if (!as_json && !left_out.empty())
        fmt::print("not simulated, since too many steps: {}\n", fmt::join(left_out, ", "));
    if (as_json) print(rows);
    if (!tune.empty()) write_tuning(tune, what, n, origin, choices);
    return good;
}

int synthesise(const synthesis_request& asked, const std::vector<entry>& own, const network& on, bool as_json) {
    const int n = asked.what.ranks;
    if (n > on.topology.ranks())
        throw std::runtime_error(fmt::format("the network has {} ranks, not {}", on.topology.ranks(), n));
    const std::string what(colls::name_of(asked.what.what));
    const double bound = bandwidth_bound(asked.what, on.topology, asked.bytes);
    constexpr int most_blocks = 1024;
    std::vector<int> cuts{asked.what.cut};
    if (asked.what.cut == 0) {
        const bool one_buffer =
            asked.what.what == colls::collective::broadcast || asked.what.what == colls::collective::reduce;
        cuts.clear();
        for (const int cut : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512})
            if (cuts.empty() || cut * (one_buffer ? 1 : n) <= most_blocks) cuts.push_back(cut);
    }
    json rows = json::array();
    if (!as_json)
        fmt::print("{} of {} on {} ranks; the bound, links without latency: {}\n\n{:>8} {:>8} {:>8} {:>12} {:>12}\n",
            what, show_size(asked.bytes), n, show_time(bound), "cut", "blocks", "rounds", "time", "over bound");
    // A schedule refers to its table, which stays where it is.
    exchange::transfer_table best;
    double least = 0;
    for (const int cut : cuts) {
        synthesis one = asked.what;
        one.cut = cut;
        progress shown;
        shown.say(fmt::format("cut {}", cut));
        exchange::transfer_table table = synthesised(one, on.topology);
        const entry made{"synthesised", exchange::schedule_of(table), n};
        const double seconds = subject(made, on, n, asked.bytes, true).seconds(asked.bytes);
        shown.say("");
        rows.push_back({{"cut", cut}, {"blocks", table.blocks}, {"rounds", table.rounds}, {"seconds", seconds}});
        if (!as_json)
            fmt::print("{:>8} {:>8} {:>8} {:>12} {:>12.3f}\n", cut, table.blocks, table.rounds, show_time(seconds),
                seconds / bound);
        if (least > 0 && seconds >= least) continue;
        least = seconds;
        best = std::move(table);
    }
    const colls::report proof = colls::verify(exchange::schedule_of(best), n);
    std::vector<subject> known;
    const std::vector<entry> families = schedules_for(asked.what.what, own);
    for (const entry& e : families)
        if (const subject s(e, on, n, asked.bytes); s.possible()) known.push_back(s);
    const ranking others = ranked(known, asked.bytes);
    if (as_json) {
        json out{{"collective", what}, {"ranks", n}, {"bytes", asked.bytes}, {"bound_seconds", bound}, {"tried", rows},
            {"blocks", best.blocks}, {"rounds", best.rounds}, {"ports", best.ports}, {"seconds", least},
            {"proven", proof.ok()}};
        if (!others.empty()) out["library"] = {{"family", others[0].second}, {"seconds", others[0].first}};
        print(out);
    } else {
        fmt::print("\n{} blocks, {} rounds, {} port{}: {}, {:.3f} times the bound\n", best.blocks, best.rounds,
            best.ports, best.ports == 1 ? "" : "s", show_time(least), least / bound);
        if (!others.empty())
            fmt::print("the best of the library: {}, {}, {:.2f} times as long\n", others[0].second,
                show_time(others[0].first), others[0].first / least);
        fmt::print("{}\n", proof.ok() ? fmt::format("proven for {} ranks", n) : "refuted: " + proof.text());
    }
    if (!proof.ok()) return refuted;
    if (!asked.output.empty()) {
        const std::string text = header_of(best, asked.type, "made by `" + asked.origin + "`");
        std::ofstream out(asked.output);
        out << text;
        if (!out.flush()) throw std::runtime_error("cannot write " + asked.output);
        if (!as_json) fmt::print("{} is in {}\n", asked.type, asked.output);
    }
    return good;
}

int place(const std::vector<entry>& schedules, const network& on, int n, double bytes, int tries, bool as_json) {
    json rows = json::array();
    bool any = false;
    for (const entry& e : schedules) {
        const subject s(e, on, n, bytes);
        if (!s.possible() || colls::is_scan(e.schedule.implements)) continue;
        any = true;
        progress shown;
        const std::string now = fmt::format("{} {}: exchanges", e.family, colls::name_of(e.schedule.implements));
        shown.say(now);
        // Where all ranks do the same, a simulation reads those of rank 0 alone.
        const double times = (tries + 2.0) / (s.options().symmetric ? n : 1);
        const sim::placement found =
            sim::place(watched(e.schedule, n, shown, now, times), n, on.topology, bytes, s.options(), tries);
        shown.say("");
        const std::string_view what = colls::name_of(e.schedule.implements);
        if (as_json)
            rows.push_back({{"family", e.family}, {"collective", what}, {"ranks", n}, {"bytes", bytes},
                {"before", found.before}, {"after", found.after}, {"places", found.places()}});
        else
            fmt::print("{:<20} {:<15} {:>12} {:>12} {:>6} times as fast\n", e.family, what, show_time(found.before),
                show_time(found.after), show_ratio(found.before, found.after));
        if (!as_json && schedules.size() == 1) fmt::print("places: {}\n", fmt::join(found.places(), " "));
    }
    if (!any)
        throw std::runtime_error(
            fmt::format("{} has nothing to place on {} ranks: it does not support so many, has too many steps, or is a "
                        "scan, whose ranks stay in order",
                schedules.front().family, n));
    if (as_json) print(rows);
    return good;
}

}  // namespace tool
