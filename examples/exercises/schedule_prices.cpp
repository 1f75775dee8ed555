// Which schedule is cheapest for which size: the families' costs in one group, in rounds, volume and predicted time.
// docs/choosing_a_schedule.md shows the tables.
//
// ranks: 2 0 0
#include "../common/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

using colls::collective;

/// A table of one collective: a line for each schedule, a column for each size; the least time of a column has a mark.
class prices {
public:
    prices(int n, const colls::model& m) : n_(n), model_(m) {}

    template <collective C, class Family>
    void add(const std::string& name, const Family& family) {
        const auto s = colls::schedule_of<C>(family);
        if (!colls::supports(s, n_)) return;
        const colls::cost c = colls::cost_of(s, n_);
        line l{name, c.rounds, static_cast<double>(c.critical_sent) / c.blocks, {}, c};
        for (const double bytes : sizes) l.seconds.push_back(c.seconds(model_, bytes));
        lines_.push_back(l);
    }

    std::string cheapest(double bytes) const {
        const auto column = static_cast<std::size_t>(std::ranges::find(sizes, bytes) - sizes.begin());
        return std::ranges::min(lines_, {}, [&](const line& l) { return l.seconds[column]; }).name;
    }

    example::table text() const {
        example::table t({"schedule", "rounds", "buffers sent", "8 B", "4 KB", "64 KB", "1 MB", "16 MB", "1 GB"});
        for (const line& l : lines_) {
            std::vector<std::string> cells;
            for (std::size_t i = 0; i < sizes.size(); ++i)
                cells.push_back(microseconds(l.seconds[i]) + (cheapest(sizes[i]) == l.name ? " *" : "  "));
            t.add(l.name, l.rounds, fmt::format("{:.3g}", l.buffers), cells[0], cells[1], cells[2], cells[3], cells[4],
                cells[5]);
        }
        return t;
    }

    void draw(example::plot& chart) const {
        for (const line& l : lines_)
            for (double bytes = 8; bytes <= 1.1e9; bytes *= 2)
                chart.add(l.name, bytes, l.counted.seconds(model_, bytes));
        // Where the cheapest one changes, between two sizes.
        const auto cheapest_of = [&](double bytes) -> const line& {
            return *std::ranges::min_element(
                lines_, {}, [&](const line& l) { return l.counted.seconds(model_, bytes); });
        };
        std::vector<example::plot::stretch> stretches{{8, 0, cheapest_of(8).name}};
        for (double bytes = 8; bytes <= 1.1e9; bytes *= 1.01) {
            const line& best = cheapest_of(bytes);
            stretches.back().to = bytes;
            if (best.name == stretches.back().line) continue;
            stretches.push_back({bytes, bytes, best.name});
            chart.mark(bytes, best.counted.seconds(model_, bytes),
                fmt::format("from {} on", example::shown(bytes, example::unit::binary_bytes)));
        }
        std::string says;
        for (const auto& s : stretches)
            says += fmt::format("{}{}{}", says.empty() ? "The fastest: " : ", ", s.line,
                &s == &stretches.back() ? std::string(" for larger ones.")
                                        : fmt::format(" up to {}", example::shown(s.to, example::unit::binary_bytes)));
        chart.says(stretches.size() == 1 ? stretches[0].line + " is the fastest at every size." : says);
        chart.band("fastest", stretches);
    }

    static inline const std::vector<double> sizes{8, 4096, 65536, 1 << 20, 16 << 20, 1e9};

private:
    struct line {
        std::string name;
        int rounds;
        double buffers;
        std::vector<double> seconds;
        colls::cost counted;
    };
    static std::string microseconds(double s) {
        return s < 10e-3 ? fmt::format("{:.0f} us", s * 1e6) : fmt::format("{:.0f} ms", s * 1e3);
    }
    int n_;
    colls::model model_;
    std::vector<line> lines_;
};

}  // namespace

int main(int argc, char** argv) {
    example::program program("Rounds, volume and predicted time of the families in one group, for several sizes.");
    int n = 64;
    double alpha = 5, beta = 0.1, gamma = 0.05;
    program.options.add("--group", n, "ranks", example::between(2, 512));
    program.options.add("--alpha", alpha, "microseconds a round", example::not_negative);
    program.options.add("--beta", beta, "nanoseconds a byte sent", example::not_negative);
    program.options.add("--gamma", gamma, "nanoseconds a byte reduced", example::not_negative);
    program.default_ranks(1);
    return program.run(argc, argv, [&](colls::communicator&, example::output& out) {
        const colls::model m{.alpha = alpha * 1e-6, .beta = beta * 1e-9, .gamma = gamma * 1e-9};
        out.print(
            "{} ranks, alpha {} us, beta {} ns/B, gamma {} ns/B; * the least of a column\n", n, alpha, beta, gamma);

        prices all_reduce(n, m);
        all_reduce.add<collective::all_reduce>("recursive_doubling", colls::recursive_doubling{});
        all_reduce.add<collective::all_reduce>("tree", colls::tree<>{});
        all_reduce.add<collective::all_reduce>("double_tree", colls::double_tree{});
        all_reduce.add<collective::all_reduce>("circulant", colls::circulant<>{});
        all_reduce.add<collective::all_reduce>("ring", colls::ring{});
        out.print("\nall_reduce\n");
        out.print(all_reduce.text());

        prices broadcast(n, m);
        broadcast.add<collective::broadcast>("tree", colls::tree<>{});
        broadcast.add<collective::broadcast>("double_tree", colls::double_tree{});
        broadcast.add<collective::broadcast>("pipeline of 16", colls::pipelined_broadcast{16});
        broadcast.add<collective::broadcast>("pipeline of 256", colls::pipelined_broadcast{256});
        out.print("\nbroadcast\n");
        out.print(broadcast.text());

        if (n == 64 && alpha == 5 && beta == 0.1 && gamma == 0.05) {
            out.check("small all_reduce: fewest rounds; large: least volume",
                all_reduce.cheapest(8) == "recursive_doubling" && all_reduce.cheapest(1e9) == "circulant");
            out.check("small broadcast: tree; large: pipeline",
                broadcast.cheapest(4096) != "pipeline of 256" && broadcast.cheapest(1e9) == "pipeline of 256");
        }
        example::plot chart(fmt::format("An all_reduce on {} ranks, predicted", n),
            {.label = "size", .logarithmic = true, .in = example::unit::binary_bytes},
            {.label = "time", .logarithmic = true, .in = example::unit::seconds});
        all_reduce.draw(chart);
        out.draw(chart);
    });
}
