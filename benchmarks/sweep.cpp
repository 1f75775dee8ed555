// Times collectives over many sizes, by the library's own choice and by every schedule that can be forced, and lists
// the sizes at which the time jumps, and those at which the choice is bad.
//
// Sizes and choices are measured in random order, in several passes, so that what disturbs the machine hits all alike.
// A suspect is measured again, and counted only if it repeats.
#include "../examples/common/plot.hpp"
#include "cliffs.hpp"
#include "sides.hpp"
#include "variants.hpp"

#include <colls/colls.hpp>
#include <colls/detail/choose/explanation.hpp>
#include <colls/detail/support/machine.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

namespace {

using bench::job;
namespace internal = colls::detail;

using bench::automatic, bench::eager, bench::variants, bench::variant_name;

struct settings {
    std::vector<int> ranks{2, 4};
    std::vector<std::string> jobs{"all_reduce"};
    std::string transport = "threads", json, plots, folder, mpirun = "mpirun";
    std::size_t first = 8, last = std::size_t{64} << 20, offset = 0;
    double factor = 1.19, seconds = 0.003, hopeless = 2.5;
    int passes = 7;
    unsigned seed = 1;
    bool back_to_back = false, only_automatic = false, neighbours = false;
};

/// The ranks of one group: a side of our own, which side_colls runs.
class group {
public:
    group(const settings& s, int ranks, double ticks_per_ns) : s_(s), sides_(ranks, ticks_per_ns) {
        std::vector<std::string> command{s.folder + "side_colls"};
        if (s.transport == "mpi")
            command = {s.mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
                std::to_string(ranks), s.folder + "side_colls_mpi"};
        std::vector<std::string> more{
            s.transport, fmt::format("off={}", s.offset), s.neighbours ? "neighbours" : "dealt"};
        if (s.back_to_back) more.emplace_back("runs");
        // Sizes are multiples of the number of ranks, so that the last may be larger than was asked for.
        side_ = sides_.start(command, s.last * 5 / 4 + 4096, more);
    }
    /// One turn: the median time of a call in ns.
    double turn(job what, std::size_t bytes, std::uint32_t variant) {
        return sides_.turn(side_, what, bytes, variant, s_.seconds) /
               (s_.back_to_back ? bench::calls_in_run(bytes) : 1);
    }
    std::string chosen() { return sides_.chosen(side_); }

private:
    const settings& s_;
    bench::sides sides_;
    int side_;
};

struct measured_size {
    std::size_t bytes = 0;
    std::string chosen;
    std::array<double, variants> ns{};  ///< 0: not measured
};

/// All sizes of one collective on one group, by all choices.
class curve {
public:
    curve(const settings& s, group& g, job what, int ranks) : s_(s), group_(g), what_(what) {
        const bool blocks = what != job::all_reduce && what != job::all_reduce_in_place && what != job::broadcast;
        const std::size_t unit = sizeof(float) * (blocks ? static_cast<std::size_t>(ranks) : 1);
        const auto list = internal::all_candidates_of(bench::collective_of(what));
        for (const std::size_t bytes : bench::sweep_sizes(s.first, s.last, s.factor, unit)) {
            measured_size size;
            size.bytes = bytes;
            sizes.push_back(size);
            std::vector<std::uint32_t> choices{automatic};
            const std::size_t posted = what == job::all_gather ? bytes / static_cast<std::size_t>(ranks) : bytes;
            if (!s.only_automatic && s.transport != "tcp" && s.transport != "mpi" && posted <= internal::eager_capacity)
                choices.push_back(eager);
            for (std::uint32_t v = bench::first_family; v < variants && !s.only_automatic; ++v)
                for (int i = 0; i < list.count; ++i)
                    if (list.first[i].name == variant_name(v) && list.first[i].schedule.supports(ranks))
                        choices.push_back(v);
            choices_.push_back(choices);
        }
        std::vector<std::size_t> all(sizes.size());
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
        sizes = measure(all, s.seed);
    }

    std::vector<measured_size> sizes;

    static std::vector<bench::sweep_point> points(const std::vector<measured_size>& sizes) {
        std::vector<bench::sweep_point> made;
        for (const measured_size& s : sizes) {
            bench::sweep_point p{s.bytes, s.ns[automatic], 0};
            for (std::uint32_t v = eager; v < variants; ++v)
                if (s.ns[v] > 0 && (p.best_fixed == 0 || s.ns[v] < p.best_fixed)) p.best_fixed = s.ns[v];
            made.push_back(p);
        }
        return made;
    }

    /// The violations that repeat; `suspects` is set to how many there were before the second measurement.
    std::vector<bench::violation> violations(std::size_t& suspects) {
        const std::vector<bench::violation> found = bench::find_violations(points(sizes));
        suspects = found.size();
        std::vector<std::size_t> again;
        for (const bench::violation& v : found) again.insert(again.end(), {v.from, v.to});
        std::ranges::sort(again);
        again.erase(std::ranges::unique(again).begin(), again.end());
        const std::vector<bench::sweep_point> second = points(measure(again, s_.seed + 1));
        std::vector<bench::violation> confirmed;
        for (bench::violation v : found)
            if (bench::repeats(v, second[v.from], second[v.to])) confirmed.push_back(v);
        return confirmed;
    }

private:
    /// Measures those sizes by all their choices. A choice that is hopeless at a size in the first pass is left out of
    /// the passes that follow.
    std::vector<measured_size> measure(const std::vector<std::size_t>& which, unsigned seed) {
        struct visit {
            std::size_t size;
            std::uint32_t variant;
        };
        std::vector<visit> order;
        for (const std::size_t i : which)
            for (const std::uint32_t v : choices_[i]) order.push_back({i, v});
        std::mt19937 random(seed);
        std::vector<measured_size> made = sizes;
        std::vector<std::array<std::vector<double>, variants>> seen(sizes.size());
        for (int pass = 0; pass < s_.passes; ++pass) {
            std::ranges::shuffle(order, random);
            for (const visit& at : order) {
                seen[at.size][at.variant].push_back(group_.turn(what_, made[at.size].bytes, at.variant));
                if (at.variant == automatic) made[at.size].chosen = group_.chosen();
            }
            if (pass > 0) continue;
            std::erase_if(order, [&](const visit& at) {
                double best = seen[at.size][automatic].front();
                for (const std::uint32_t v : choices_[at.size]) best = std::min(best, seen[at.size][v].front());
                return at.variant != automatic && seen[at.size][at.variant].front() > s_.hopeless * best;
            });
        }
        for (const std::size_t i : which)
            for (const std::uint32_t v : choices_[i]) made[i].ns[v] = bench::quantile(seen[i][v], 0.25);
        return made;
    }

    const settings& s_;
    group& group_;
    job what_;
    std::vector<std::vector<std::uint32_t>> choices_;  // by size
};

/// Automatic as a thick line, at most five other choices that are the best somewhere, and circles at violations.
void draw(const std::string& file, const std::string& title, const std::vector<measured_size>& sizes,
    const std::vector<bench::violation>& violations) {
    example::plot chart(title, {"size", true, example::unit::binary_bytes}, {"time", true, example::unit::seconds});
    std::array<int, variants> best_at{};
    for (const measured_size& s : sizes) {
        std::uint32_t best = automatic;
        for (std::uint32_t v = eager; v < variants; ++v)
            if (s.ns[v] > 0 && (best == automatic || s.ns[v] < s.ns[best])) best = v;
        ++best_at[best];
    }
    std::vector<std::uint32_t> drawn;
    for (std::uint32_t v = eager; v < variants; ++v)
        if (best_at[v] > 0) drawn.push_back(v);
    std::ranges::sort(drawn, [&](std::uint32_t a, std::uint32_t b) { return best_at[a] > best_at[b]; });
    if (drawn.size() > 5) drawn.resize(5);
    drawn.insert(drawn.begin(), automatic);
    for (const std::uint32_t v : drawn) {
        const std::string name(variant_name(v));
        for (const measured_size& s : sizes)
            if (s.ns[v] > 0) chart.add(name, static_cast<double>(s.bytes), s.ns[v] / 1e9);
        if (v != automatic) chart.thin(name);
    }
    std::vector<double> ratios;  // of what the library chooses to the best that was measured
    for (const measured_size& s : sizes) {
        double best = s.ns[automatic];
        for (std::uint32_t v = eager; v < variants; ++v)
            if (s.ns[v] > 0) best = std::min(best, s.ns[v]);
        ratios.push_back(s.ns[automatic] / best);
    }
    if (!ratios.empty())
        chart.says(
            fmt::format("What the library chooses (automatic) takes {:.2f} times the time of the best choice at the "
                        "median of the sizes, {:.2f} times at the worst.",
                bench::median(ratios), std::ranges::max(ratios)));
    for (const bench::violation& v : violations)
        chart.mark(static_cast<double>(sizes[v.to].bytes), sizes[v.to].ns[automatic] / 1e9,
            fmt::format("{} {:.2f}", name_of(v.kind), v.ratio));
    chart.write(file);
}

/// The fastest forced choice at a size, and "" where none was measured.
std::string_view best_name(const measured_size& s) {
    std::uint32_t best = automatic;
    for (std::uint32_t v = eager; v < variants; ++v)
        if (s.ns[v] > 0 && (best == automatic || s.ns[v] < s.ns[best])) best = v;
    return best == automatic ? "" : variant_name(best);
}

nlohmann::json sweep(const settings& s) {
    const double ticks_per_ns = bench::measure_ticks_per_ns();
    nlohmann::json rows = nlohmann::json::array();
    for (const int n : s.ranks) {
        group g(s, n, ticks_per_ns);
        for (const std::string& name : s.jobs) {
            const auto what = static_cast<job>(
                std::find(std::begin(bench::job_names), std::end(bench::job_names), name) - bench::job_names);
            curve c(s, g, what, n);
            std::size_t suspects = 0;
            const auto found = c.violations(suspects);
            const auto points = curve::points(c.sizes);
            const double line = internal::cores() > 1 ? bench::line_latency(0, 1, ticks_per_ns) : 0;
            double worst = 0;  // what exceeded the limit once only is left out
            for (const auto& p : points)
                if (bench::choice_ratio(p) <= bench::sweep_limits{}.worst)
                    worst = std::max(worst, bench::choice_ratio(p));
            for (const auto& v : found)
                if (v.kind == bench::violation_kind::choice) worst = std::max(worst, v.ratio);
            fmt::print(
                "{}, {} ranks, {}, buffers off by {} bytes, {}: {} of {} suspects repeat; automatic over the best "
                "fixed choice: median {:.2f}, worst {:.2f} (a line takes {:.0f} ns)\n",
                name, n, s.transport, s.offset, s.back_to_back ? "back to back" : "fresh data", found.size(), suspects,
                bench::typical_choice_ratio(points), worst, line);
            nlohmann::json violations = nlohmann::json::array(), sizes = nlohmann::json::array();
            for (const auto& v : found) {
                const measured_size &from = c.sizes[v.from], &to = c.sizes[v.to];
                fmt::print("  {:<7} {:>9} -> {:>9} B  {:>10.2f} -> {:>10.2f} us  {:>5.2f}  {} -> {}{}\n",
                    name_of(v.kind), from.bytes, to.bytes, from.ns[automatic] / 1e3, to.ns[automatic] / 1e3, v.ratio,
                    from.chosen, to.chosen,
                    v.kind == bench::violation_kind::choice ? fmt::format(", best {}", best_name(to)) : "");
                violations.push_back({{"kind", name_of(v.kind)}, {"from", from.bytes}, {"to", to.bytes},
                    {"ratio", v.ratio}, {"chosen", to.chosen}});
            }
            std::fflush(stdout);
            for (const measured_size& at : c.sizes) {
                nlohmann::json fixed;
                for (std::uint32_t v = eager; v < variants; ++v)
                    if (at.ns[v] > 0) fixed[std::string(variant_name(v))] = at.ns[v] / 1e3;
                sizes.push_back({{"bytes", at.bytes}, {"chosen", at.chosen}, {"us", at.ns[automatic] / 1e3},
                    {"best", best_name(at)}, {"fixed_us", fixed}});
            }
            rows.push_back({{"collective", name}, {"ranks", n}, {"transport", s.transport}, {"offset", s.offset},
                {"back_to_back", s.back_to_back}, {"suspects", suspects},
                {"median_choice", bench::typical_choice_ratio(points)}, {"worst_choice", worst},
                {"violations", violations}, {"sizes", sizes}});
            if (!s.plots.empty()) {
                std::filesystem::create_directories(s.plots);
                draw(fmt::format("{}/sweep_{}_{}_{}.svg", s.plots, s.transport, name, n),
                    fmt::format("{}, {} ranks, {}", name, n, s.transport), c.sizes, found);
            }
        }
    }
    return rows;
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app{
        "Times collectives over many sizes, by the library's choice and by each schedule that can be forced.\n\n"
        "A line is printed for each of these that repeats in a second measurement:\n"
        "  falls   a larger size takes less than 0.9 of the time of a smaller one\n"
        "  jumps   a size takes more than twice the time of the size before it\n"
        "  choice  the library's choice takes more than 1.5 times the time of the best forced one\n"
        "The ratio is that of the second measurement, the times are those of the first.\n"
        "Time: the median of the calls of a turn, and of the turns the lower quartile."};
    app.option_defaults()->always_capture_default();
    app.add_option("-n,--ranks", s.ranks, "group sizes")->delimiter(',')->check(CLI::Range(1, bench::max_ranks));
    app.add_option("-c,--collectives", s.jobs, "collectives")
        ->delimiter(',')
        ->check(
            CLI::IsMember(std::vector<std::string>(std::begin(bench::job_names), std::begin(bench::job_names) + 6)));
    app.add_option("--transport", s.transport,
           "threads; shm: processes, buffers from allocate(); staged: processes, ordinary buffers; tcp; mpi")
        ->check(CLI::IsMember({"threads", "shm", "staged", "tcp", "mpi"}));
    app.add_option("--first", s.first, "smallest size in bytes")->check(CLI::Range(4, 1 << 30));
    app.add_option("--last", s.last, "largest size in bytes")->check(CLI::Range(4, 1 << 30));
    app.add_option("--factor", s.factor, "a size over the one before it")->check(CLI::Range(1.01, 1000.0));
    app.add_option("--offset", s.offset, "bytes by which buffers are off a page: a multiple of 4")
        ->check(CLI::IsMember({0, 4, 8, 12, 16, 32, 60, 64}));
    app.add_option("--passes", s.passes, "turns of each choice at each size")->check(CLI::PositiveNumber);
    app.add_option("--seconds", s.seconds, "length of a turn")->check(CLI::PositiveNumber);
    app.add_option("--hopeless", s.hopeless, "a choice this many times slower than the best has one turn only");
    app.add_option("--seed", s.seed, "of the random order");
    app.add_flag("--back-to-back", s.back_to_back,
        "calls in a row instead of single ones between which every rank rewrites its input and reads its output");
    app.add_flag("--neighbours", s.neighbours,
        "where ranks outnumber cores, neighbouring ranks share a core; without it they are dealt round");
    app.add_flag("--only-automatic", s.only_automatic, "no forced choices");
    app.add_option("--json", s.json, "write all times to this file");
    app.add_option("--plots", s.plots, "write a chart for each collective and group size into this folder");
    app.add_option("--mpirun", s.mpirun, "the mpirun that starts the ranks over MPI");
    CLI11_PARSE(app, argc, argv);
    s.folder = std::filesystem::canonical("/proc/self/exe").parent_path().string() + "/";
    try {
        if (s.last < s.first) throw std::runtime_error("--last is smaller than --first: there is no size between them");
        if (s.back_to_back && std::ranges::find(s.jobs, "all_reduce_in_place") != s.jobs.end())
            throw std::runtime_error("all_reduce_in_place needs fresh data for each call: leave out --back-to-back");
        unsetenv("COLLS_SCHEDULE");
        const nlohmann::json rows = sweep(s);
        if (!s.json.empty()) {
            std::ofstream out(s.json);
            out << rows.dump(1) << "\n";
            if (!out.flush()) throw std::runtime_error("cannot write " + s.json);
        }
    } catch (const std::exception& e) {
        fmt::print(stderr, "sweep: {}\n", e.what());
        return 2;
    }
}
