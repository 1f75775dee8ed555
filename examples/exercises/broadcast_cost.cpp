// A broadcast of 5e8 and of 5e10 parameters to 256 actors, by the cost model: one by one, by a tree, in a pipeline; and
// beside it the gather of what the actors send back.
//
// ranks: 2 0 0
#include "../common/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace {

using colls::collective;

/// Seconds of s by the model; every round takes as long as its busiest rank needs to receive. (cost::seconds counts
/// what ranks send: a gather's rounds take as long as the root receives.)
template <class S>
double seconds_of_receiving(const S& s, int n, const colls::model& m, double bytes) {
    const colls::cost c = colls::cost_of(s, n);
    return m.alpha * c.rounds + m.beta * static_cast<double>(c.critical_received) * bytes / c.blocks;
}

/// The number of segments that makes (k + L - 1) (alpha + beta D / k) least, L = ceil(log2 n).
int best_segments(int n, const colls::model& m, double bytes) {
    return std::max(1, static_cast<int>(std::lround(std::sqrt((colls::log2_ceil(n) - 1) * m.beta * bytes / m.alpha))));
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

std::string text_of(double seconds) {
    return seconds < 1 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

}  // namespace

int main(int argc, char** argv) {
    example::program program(
        "A broadcast to 256 actors by the cost model: linear, tree, pipelined; and the gather back.");
    int n = 256;
    double alpha = 5, beta = 0.1, gathered = 1e6;
    program.options.add("--actors", n, "ranks, the root among them", example::between(2, 4096));
    program.options.add("--alpha", alpha, "microseconds a message", example::positive);
    program.options.add("--beta", beta, "nanoseconds a byte", example::positive);
    program.options.add("--gathered", gathered, "bytes that each actor sends back", example::positive);
    program.default_ranks(1);
    return program.run(argc, argv, [&](colls::communicator&, example::output& out) {
        // example-begin cost
        const colls::model m{.alpha = alpha * 1e-6, .beta = beta * 1e-9};
        const auto seconds = [&](const auto& family, int ranks, double bytes) {
            return colls::cost_of(colls::schedule_of<collective::broadcast>(family), ranks).seconds(m, bytes);
        };
        // example-end
        const int levels = colls::log2_ceil(n);
        bool right = true;
        example::table table({"parameters", "broadcast", "rounds", "time", "closed form"});
        for (const double parameters : {5e8, 5e10}) {
            const double bytes = parameters * 4;
            const int k = best_segments(n, m, bytes);
            const auto row = [&](const std::string& name, const auto& family, int ranks, const char* form,
                                 double closed) {
                const auto s = colls::schedule_of<collective::broadcast>(family);
                const double predicted = seconds(family, ranks, bytes);
                right &= near(predicted, closed);
                table.add(fmt::format("{:g}", parameters), name, s.rounds(ranks), text_of(predicted), form);
            };
            const double once = m.beta * bytes;
            row("one by one, the root apart", colls::direct{}, n + 1, "K D beta", m.alpha + n * once);
            row("one by one, the root an actor", colls::direct{}, n, "(K-1) D beta", m.alpha + (n - 1) * once);
            row("tree", colls::tree<>{}, n, "L (alpha + D beta)", levels * (m.alpha + once));
            row("scatter, all_gather",
                colls::compose<colls::schedule_for<colls::tree<>, collective::scatter>,
                    colls::schedule_for<colls::ring, collective::all_gather>>{},
                n, "about 2 D beta", (levels + n - 1) * m.alpha + 2 * once * (n - 1) / n);
            row(fmt::format("pipeline of {} segments", k), colls::pipelined_broadcast{k}, n,
                "(k+L-1) (alpha + D beta/k)", (k + levels - 1) * (m.alpha + once / k));
        }
        out.print("{} actors, alpha {} us, beta {} ns/B, 4 bytes a parameter, L = {}:\n", n, alpha, beta, levels);
        out.print(table);

        const double back =
            seconds_of_receiving(colls::schedule_of<collective::gather>(colls::direct{}), n + 1, m, gathered * (n + 1));
        const double tree = seconds(colls::tree<>{}, n, 2e9),
                     pipeline = seconds(colls::pipelined_broadcast{best_segments(n, m, 2e9)}, n, 2e9);
        out.print(
            "Gather of {:g} bytes from each actor: {}. The broadcast of 5e8 parameters is {:.0f} times that by a\n"
            "tree, {:.0f} times in a pipeline: the parameters are the bottleneck.\n",
            gathered, text_of(back), tree / back, pipeline / back);
        out.check("times equal the closed forms", right);
        out.check("gather: K n beta and one latency", near(back, m.alpha + n * gathered * m.beta));
        out.check("the pipeline takes little more than one message, D beta",
            pipeline >= m.beta * 2e9 && (n > 1024 || pipeline < 1.1 * m.beta * 2e9));

        example::plot chart(fmt::format("A broadcast to {} actors, predicted", n),
            {.label = "parameters, 4 bytes each", .logarithmic = true},
            {.label = "time", .logarithmic = true, .in = example::unit::seconds});
        chart.says(fmt::format(
            "One by one, the root sends {} times. A tree takes {} rounds of the whole buffer. A pipeline takes "
            "little longer than one message, however many actors there are.",
            n - 1, levels));
        for (double parameters = 1e5; parameters <= 1e11; parameters *= 10) {
            const double bytes = parameters * 4;
            chart.add("one by one", parameters, seconds(colls::direct{}, n, bytes));
            chart.add("tree", parameters, seconds(colls::tree<>{}, n, bytes));
            chart.add("pipeline", parameters,
                seconds(colls::pipelined_broadcast{std::min(best_segments(n, m, bytes), 5000)}, n, bytes));
            chart.add("one message", parameters, m.alpha + m.beta * bytes);
        }
        const double one_by_one = seconds(colls::direct{}, n, 2e9);
        chart.mark(5e8, one_by_one, "500M parameters one by one: " + text_of(one_by_one));
        chart.mark(5e8, pipeline, "in a pipeline: " + text_of(pipeline));
        out.draw(chart);
    });
}
