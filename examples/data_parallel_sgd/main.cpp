// Data-parallel training of a small network on Fashion-MNIST, with ranks as threads: each rank computes the gradient of
// its shard of a batch, the gradients are summed bucket by bucket while back-propagation still runs, and every rank
// makes the same update. Checks that several ranks compute the same as one, and compares schedules.
//
// Build and run: scripts/demo [OPTION...], which installs what is missing; scripts/demo --help lists the options. Or
//     cmake --preset release -B build && cmake --build build --target data_parallel_sgd
//     build/examples/data_parallel_sgd/data_parallel_sgd [OPTION...]
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/options.hpp"
#include "../common/pin.hpp"
#include "../common/plot.hpp"
#include "methods.hpp"
#include "train.hpp"

#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace example;

/// Prints progress: one line that is rewritten on a terminal, one line an epoch elsewhere.
class progress_line {
public:
    progress_line(const settings& how, int steps) : how_(how), steps_(steps) {}

    void operator()(const state& now) {
        ++done_;
        samples_ += now.samples;
        const auto time = stopwatch::now();
        const bool last = done_ == steps_, epoch_ends = now.step + 1 == now.steps_an_epoch;
        if (!last && !(terminal_ ? epoch_ends || time - shown_ > std::chrono::milliseconds(100) : epoch_ends)) return;
        shown_ = time;
        const double rate = static_cast<double>(samples_) / seconds(time - begin_).count();
        fmt::print("{}epoch {}/{}  batch {:>3}/{}  loss {:.4f}  {:>7.0f} images/s{}", terminal_ ? "\r" : "",
            now.epoch + 1, how_.epochs, now.step + 1, now.steps_an_epoch, now.loss, rate,
            !terminal_ || epoch_ends || last ? "\n" : "");
        std::fflush(stdout);
    }

private:
    const settings& how_;
    int steps_, done_ = 0;
    long samples_ = 0;
    bool terminal_ = isatty(STDOUT_FILENO) != 0;
    stopwatch::time_point begin_ = stopwatch::now(), shown_{};
};

/// A schedule's predicted and measured costs of exchanging the gradient of one step, with no computation beside it.
struct table_row {
    std::string name, proof;
    int rounds = 0;
    double bytes_sent = 0, predicted = 0, measured = 0;  // of one step: by the busiest rank; seconds
};

/// The loss over the epochs: the mean of rank 0's images, in ten parts of each epoch.
class loss_curve {
public:
    void operator()(const state& now) {
        if (now.step == 0) before_ = {};
        const int part = std::max(1, now.steps_an_epoch / 10), done = now.step + 1;
        if (done % part != 0 && done != now.steps_an_epoch) return;
        const sum here{done, now.loss * done};  // state has the mean since the epoch began
        points_.emplace_back(now.epoch + static_cast<double>(done) / now.steps_an_epoch,
            (here.loss - before_.loss) / (here.steps - before_.steps));
        before_ = here;
    }
    const std::vector<std::pair<double, double>>& points() const { return points_; }

private:
    struct sum {
        int steps = 0;
        double loss = 0;
    };
    sum before_;
    std::vector<std::pair<double, double>> points_;  // epochs and loss
};

/// Measurements and results of a training run.
struct outcome {
    double step = 0, exchange = 0, accuracy = 0;  // seconds a step, of which in the exchange
    std::size_t bytes = 0, buckets = 0;
    bool identical = false;
    std::vector<table_row> rows;
    std::vector<std::pair<double, double>> losses;  // epochs and loss
};

/// Numbers of gradient in a part that back-propagation finishes at a time: a bucket's.
template <class T>
std::size_t panel_of(const settings& how) {
    return std::max<std::size_t>(1, how.bucket_bytes / sizeof(T));
}

/// FNV-1a of the bit patterns.
std::uint64_t hash_of(std::span<const float> numbers) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::byte b : std::as_bytes(numbers)) hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
    return hash;
}

bool same_on_every_rank(colls::communicator& comm, std::span<const float> weights) {
    const std::uint64_t own = hash_of(weights);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()));
    colls::all_gather(comm, std::span(&own, 1), all);
    return std::ranges::all_of(all, [&](std::uint64_t hash) { return hash == own; });
}

/// Seconds of one exchange of all gradients: the median of several.
double timed(colls::communicator& comm, const settings& how, std::span<float> gradient,
    const std::vector<std::span<float>>& parts, make_exchange<float> make) {
    auto exchange = make(comm, parts, how.bucket_bytes);
    std::vector<double> times;
    for (int i = 0; i < 41; ++i) {
        std::ranges::fill(gradient, 1.0f);  // brings it into this core's cache, as back-propagation does
        colls::barrier(comm);
        const auto begin = stopwatch::now();
        for (std::size_t p = parts.size(); p-- > 0;) exchange.ready(p);
        exchange.wait();
        times.push_back(seconds(stopwatch::now() - begin).count());
    }
    std::ranges::nth_element(times, times.begin() + 20);
    return times[20];
}

/// One row for each schedule that works for this many ranks.
std::vector<table_row> compare(colls::communicator& comm, const settings& how, network<float>& net) {
    const std::span<float> gradient = net.gradient();
    const auto parts = net.gradients(panel_of<float>(how));
    const std::size_t bytes = gradient.size_bytes();
    const colls::model model = colls::model_of(comm);
    const auto promised = [&](const method& m, std::string name) {
        const colls::cost cost = m.cost(comm.size());
        table_row row{
            .name = std::move(name), .proof = m.prove(comm.size()).ok() ? "proven" : "REJECTED", .rounds = cost.rounds};
        row.bytes_sent = static_cast<double>(cost.blocks_sent) * static_cast<double>(bytes) / cost.blocks;
        for (std::size_t at = 0; at < bytes; at += how.bucket_bytes)
            row.predicted += cost.seconds(model, static_cast<double>(std::min(how.bucket_bytes, bytes - at)));
        return row;
    };
    std::vector<table_row> rows;
    const std::string chosen = colls::chosen(comm, colls::collective::all_reduce, std::min(bytes, how.bucket_bytes));
    for (const method& m : methods) {
        if (!m.supports(comm.size())) continue;
        if (m.name == chosen) {
            rows.insert(rows.begin(), promised(m, "automatic: " + chosen));
            rows.front().measured = timed(comm, how, gradient, parts, automatic.exchange);
        }
        rows.push_back(promised(m, std::string(m.name)));
        rows.back().measured = timed(comm, how, gradient, parts, m.exchange);
    }
    return rows;
}

const method& method_named(std::string_view name) {
    for (const method& m : methods)
        if (m.name == name) return m;
    return automatic;
}

int steps_of(const settings& how, const dataset& training) {
    return how.epochs * ((training.size() + how.batch - 1) / how.batch);
}

/// Trains on `how.ranks` threads, then tests, and compares the schedules.
outcome run(const settings& how, const std::string& schedule, const dataset& training, const dataset& test) {
    outcome result;
    const int steps = steps_of(how, training);
    colls::threads::run(how.ranks, [&](colls::communicator& comm) {
        network<float> net(how.widths, how.seed);
        const std::size_t panel = panel_of<float>(how);
        if (how.pin) pin_to_core(comm.rank());
        auto exchange = method_named(schedule).exchange(comm, net.gradients(panel), how.bucket_bytes);
        seconds spent{};
        progress_line line(how, steps);
        loss_curve curve;
        const auto begin = stopwatch::now();
        train(comm, how, training, steps, net, panel, exchange, [&](const state& now) {
            spent = now.exchange;
            if (comm.rank() != 0) return;
            line(now);
            curve(now);
        });
        const double took = seconds(stopwatch::now() - begin).count();
        const bool identical = same_on_every_rank(comm, net.parameters());
        const double share = accuracy(comm, net, test);
        auto rows = compare(comm, how, net);
        if (comm.rank() == 0)
            result = {took / steps, spent.count() / steps, share, net.gradient().size_bytes(), exchange.bucket_count(),
                identical, std::move(rows), curve.points()};
    });
    return result;
}

/// Seconds that a step takes, from a few of them.
template <class T>
double seconds_a_step(const settings& how, const std::string& schedule, const dataset& training) {
    constexpr int steps = 7;  // of which the first does not count: it touches memory for the first time
    double took = 0;
    colls::threads::run(how.ranks, [&](colls::communicator& comm) {
        network<T> net(how.widths, how.seed);
        const std::size_t panel = panel_of<T>(how);
        if (how.pin) pin_to_core(comm.rank());
        const method& m = method_named(schedule);
        auto exchange = [&] {
            if constexpr (std::is_same_v<T, float>)
                return m.exchange(comm, net.gradients(panel), how.bucket_bytes);
            else
                return m.exchange_double(comm, net.gradients(panel), how.bucket_bytes);
        }();
        int done = 0;
        auto begin = stopwatch::now();
        train(comm, how, training, steps, net, panel, exchange, [&](const state&) {
            if (++done == 1) begin = stopwatch::now();
            if (done == steps && comm.rank() == 0) took = seconds(stopwatch::now() - begin).count() / (steps - 1);
        });
    });
    return took;
}

/// Seconds that this machine will need for the whole run, in which `check_steps` steps are compared with one rank's.
double expected_seconds(const settings& how, const std::string& schedule, int check_steps, const dataset& training) {
    double sum = steps_of(how, training) * seconds_a_step<float>(how, schedule, training);
    if (check_steps > 0) {
        settings alone = how;
        alone.ranks = 1;
        sum += check_steps *
               (seconds_a_step<double>(alone, "automatic", training) + seconds_a_step<double>(how, schedule, training));
    }
    return sum;
}

std::string duration(double s) {
    return s < 90 ? fmt::format("{:.0f} s", std::max(1.0, s)) : fmt::format("{:.1f} min", s / 60);
}

/// What a training run shows.
plot chart_of(const settings& how, const outcome& o) {
    plot chart(fmt::format("{} ranks learn Fashion-MNIST", how.ranks), {"epochs"}, {"loss on the training images"});
    for (const auto& [epochs, loss] : o.losses) chart.add("loss", epochs, loss);
    if (o.losses.empty()) return chart;
    chart.says(
        fmt::format("The loss falls from {:.2f} to {:.2f}; then the network names {:.1f} % of images right that it "
                    "has never seen.",
            o.losses.front().second, o.losses.back().second, o.accuracy * 100));
    chart.mark(o.losses.back().first, o.losses.back().second, fmt::format("{:.2f}", o.losses.back().second));
    return chart;
}

/// The weights after a few steps, in double.
std::vector<double> weights_after(
    const settings& how, const std::string& schedule, int steps, const dataset& training) {
    std::vector<double> weights;
    colls::threads::run(how.ranks, [&](colls::communicator& comm) {
        network<double> net(how.widths, how.seed);
        const std::size_t panel = panel_of<double>(how);
        auto exchange = method_named(schedule).exchange_double(comm, net.gradients(panel), how.bucket_bytes);
        train(comm, how, training, steps, net, panel, exchange, [](const state&) {});
        if (comm.rank() == 0) weights.assign(net.parameters().begin(), net.parameters().end());
    });
    return weights;
}

void print(const settings& how, const outcome& o) {
    fmt::print(
        "\n{} ranks, {} parameters, gradient {:.0f} KB in {} buckets; one step {:.2f} ms, of which {:.2f} ms in the "
        "exchange (waiting for the other ranks included)\n\n",
        how.ranks, o.bytes / sizeof(float), static_cast<double>(o.bytes) / 1024, o.buckets, o.step * 1e3,
        o.exchange * 1e3);
    fmt::print("  {:<24} {:>8} {:>7} {:>14} {:>14} {:>14}\n", "schedule", "proof", "rounds", "KB sent", "predicted ms",
        "measured ms");
    for (const auto& row : o.rows)
        fmt::print("  {:<24} {:>8} {:>7} {:>14.0f} {:>14.3f} {:>14.3f}\n", row.name, row.proof, row.rounds,
            row.bytes_sent / 1024, row.predicted * 1e3, row.measured * 1e3);
    fmt::print(
        "\n  a step's exchange with nothing else running; sent: by the busiest rank; rounds: of each bucket\n\n");
}

}  // namespace

int main(int argc, char** argv) {
    settings how;
    std::string folder = "/usr/share/datasets/fashion-mnist", schedule = "automatic", plot_file;
    int check_steps = 40;
    std::vector<std::string> names{"automatic"};
    for (const auto& m : methods) names.emplace_back(m.name);

    example::options options(
        "Trains a small network on Fashion-MNIST by several ranks (threads), which all-reduce their gradients.");
    options.add("-r,--ranks", how.ranks, "ranks that share each batch", example::between(1, 64));
    options.add("-e,--epochs", how.epochs, "times through the training set", example::positive);
    options.add("-b,--batch", how.batch, "images in a batch, of all ranks together", example::positive);
    options.add("--bucket", how.bucket_bytes, "bytes of gradient to reduce at a time", example::positive);
    options.add("-s,--schedule", schedule, "what reduces the gradients", names);
    options.add("--check", check_steps, "steps of the comparison with one rank", example::not_negative);
    options.add("--pin", how.pin, "bind each rank to a core");
    options.add("--seed", how.seed, "of the weights and of the order of the images");
    options.add("--data", folder, "folder of the dataset");
    options.add("--plot", plot_file, "the SVG file to draw the loss to");
    int status = 0;
    if (!options.parse(argc, argv, status)) return status;

    try {
        const dataset training = load_fashion_mnist(folder, "train"), test = load_fashion_mnist(folder, "t10k");
        fmt::print(
            "{} ranks share each batch of images and sum their gradients: watch the loss fall as that of one "
            "learner.\n",
            how.ranks);
        const double expected = expected_seconds(how, schedule, check_steps, training);
        const auto begin = stopwatch::now();
        fmt::print(
            "{} images to learn from, {} to test with; schedule {}; about {} on the {} cores of this machine\n\n",
            training.size(), test.size(), schedule, duration(expected), std::thread::hardware_concurrency());
        std::fflush(stdout);

        double difference = 0;
        if (check_steps > 0) {
            settings alone = how;
            alone.ranks = 1;
            const auto one = weights_after(alone, "automatic", check_steps, training),
                       many = weights_after(how, schedule, check_steps, training);
            for (std::size_t i = 0; i < one.size(); ++i) difference = std::max(difference, std::abs(one[i] - many[i]));
            fmt::print("{} steps by {} ranks and by one, on the same batches: weights differ by {:.1e} at most\n",
                check_steps, how.ranks, difference);
        }
        const bool equal = difference < 1e-9;  // in double, whose rounding is 1e-16 of weights below 1

        const outcome o = run(how, schedule, training, test);
        fmt::print("\n{}", chart_of(how, o).text());
        print(how, o);
        fmt::print("the same as one rank: {}\nthe same bits on every rank: {}\ntest accuracy: {:.2f} %\n",
            equal ? "yes" : "NO", o.identical ? "yes" : "NO", o.accuracy * 100);
        fmt::print("it took {}\n", duration(seconds(stopwatch::now() - begin).count()));
        if (!plot_file.empty()) {
            chart_of(how, o).write(plot_file);
            fmt::print("wrote {}\n", plot_file);
        }
        return equal && o.identical ? 0 : 1;
    } catch (const std::exception& e) {
        fmt::print(stderr, "data_parallel_sgd: {}\n", e.what());
        return 2;
    }
}
