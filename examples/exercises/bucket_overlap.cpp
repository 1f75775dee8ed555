// The gradients of 7e9 parameters in bfloat16, all_reduced over 32 ranks at 200 GB/s: the whole at once, and in buckets
// that travel during the backward pass, by the cost model. What is not hidden is the exposed part.
//
// ranks: 2 0 0
#include "../common/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace {

struct timeline {
    double communication = 0, exposed = 0;
};

/// `count` equal buckets become ready evenly over the backward pass, and are all_reduced one after the other, each for
/// `seconds`. Exposed: from the end of the pass to the end of the last all_reduce.
timeline overlap(int count, double backward, double seconds) {
    double free = 0;
    for (int b = 1; b <= count; ++b) {
        const double ready = backward * b / count;
        free = std::max(free, ready) + seconds;
    }
    return {count * seconds, free - backward};
}

}  // namespace

int main(int argc, char** argv) {
    example::program program("The exposed part of a gradient all_reduce in buckets, by the cost model.");
    int n = 32;
    double parameters = 7e9, bandwidth = 200, alpha = 5, tokens = 4096, rate = 400;
    program.options.add("--group", n, "ranks", example::between(2, 1024));
    program.options.add("--parameters", parameters, "of the model, 2 bytes each", example::positive);
    program.options.add("--bandwidth", bandwidth, "GB/s of a rank", example::positive);
    program.options.add("--alpha", alpha, "microseconds a round", example::not_negative);
    program.options.add("--tokens", tokens, "of a rank in a step", example::positive);
    program.options.add("--rate", rate, "Tflop/s of a rank", example::positive);
    program.default_ranks(1);
    return program.run(argc, argv, [&](colls::communicator&, example::output& out) {
        const colls::model m{.alpha = alpha * 1e-6, .beta = 1e-9 / bandwidth};
        const double bytes = 2 * parameters, backward = 4 * parameters * tokens / (rate * 1e12);
        // The ring and circulant move the same bytes; the second takes 2 log2 n rounds instead of 2 (n-1).
        const colls::cost ring = colls::cost_of<colls::schedule_for<colls::ring, colls::collective::all_reduce>>(n);
        const colls::cost circulant =
            colls::cost_of<colls::schedule_for<colls::circulant<>, colls::collective::all_reduce>>(n);
        const double whole = ring.seconds(m, bytes), bound = 2 * bytes * (n - 1) / n * m.beta;
        out.print(
            "all_reduce of {:.3g} GB over {} ranks at {} GB/s: {:.1f} ms by the ring, of which bytes {:.1f} ms.\n"
            "Backward pass of {} tokens at {} Tflop/s: {:.1f} ms.\n",
            bytes / 1e9, n, bandwidth, whole * 1e3, bound * 1e3, tokens, rate, backward * 1e3);

        example::table table(
            {"bucket", "buckets", "ring: total", "exposed", "circulant: total", "exposed", "of one bucket's time"});
        example::plot chart("An all_reduce in buckets: the part that nothing hides",
            {.label = "size of a bucket", .logarithmic = true, .in = example::unit::bytes},
            {.label = "time from the end of the backward pass to the end of the last all_reduce",
                .logarithmic = true,
                .in = example::unit::seconds});
        bool closed = true, bounds = true;
        double least = HUGE_VAL, best_bucket = 0;
        const char* best_schedule = "";
        for (const double megabytes : {1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, bytes / 1e6}) {
            const int count = std::max(1, static_cast<int>(std::lround(bytes / 1e6 / megabytes)));
            const auto run = [&](const char* name, const colls::cost& c) {
                const double one = c.seconds(m, bytes / count);
                const timeline t = overlap(count, backward, one);
                // Either the wire waits for buckets, and the last one is exposed; or it never rests from the first on.
                const double expected = std::max(one, backward / count + count * one - backward);
                closed &= std::abs(t.exposed - expected) < 1e-9;
                bounds &= t.exposed >= one * (1 - 1e-9) && t.exposed <= t.communication * (1 + 1e-9);
                if (t.exposed < least) least = t.exposed, best_bucket = bytes / count, best_schedule = name;
                chart.add(name, bytes / count, t.exposed);
                return t;
            };
            const timeline r = run("ring", ring), c = run("circulant", circulant);
            const auto ms = [](double s) { return fmt::format("{:.2f} ms", s * 1e3); };
            table.add(fmt::format("{:.0f} MB", bytes / count / 1e6), count, ms(r.communication), ms(r.exposed),
                ms(c.communication), ms(c.exposed),
                fmt::format("{:.1f}", c.exposed / circulant.seconds(m, bytes / count)));
        }
        out.print(table);
        out.check("bytes alone take 2 S (n-1)/n over the bandwidth",
            std::abs(ring.seconds({.beta = m.beta}, bytes) - bound) < 1e-9 * bound);
        out.check("exposed: max(one bucket, what the wire is behind)", closed);
        out.check("at least one bucket is exposed, and at most all", bounds);
        out.check("the best bucket exposes less than a twentieth of the whole", least < whole / 20);
        const auto time = [](double s) { return example::shown(s, example::unit::seconds); };
        const std::string size = example::shown(best_bucket, example::unit::bytes);
        chart.says(
            fmt::format("Small buckets cost more rounds than they hide, large ones leave a long last bucket. Of these "
                        "sizes {} by {} is the best: {} stay exposed, where one all_reduce of everything takes {}.",
                size, best_schedule, time(least), time(whole)));
        chart.mark(best_bucket, least, fmt::format("{} in buckets of {}", time(least), size));
        out.draw(chart);
    });
}
