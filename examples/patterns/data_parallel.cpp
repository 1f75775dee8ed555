// Data-parallel training: every rank has the whole network and a part of each batch; gradients are exchanged in buckets
// while back-propagation still runs (colls/patterns/gradient_buckets.hpp). Compares the weights with those of one rank,
// with accumulation, clipping, and ranks that run out of batches early; then sweeps the size of buckets, with and
// without overlap.
//
// ranks: 4 3 2
// Run: data_parallel [--ranks 2] [--plot FILE]; the figures of docs/measurements/data_parallel.md are those of
//      data_parallel --ranks 2 --rounds 15
#include "../common/difference.hpp"
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/pin.hpp"
#include "../common/program.hpp"

#include <colls/colls.hpp>
#include <colls/patterns/broadcast_spans.hpp>
#include <colls/patterns/clip.hpp>
#include <colls/patterns/gradient_buckets.hpp>

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace example;
using stopwatch = std::chrono::steady_clock;

double seconds_since(stopwatch::time_point begin) {
    return std::chrono::duration<double>(stopwatch::now() - begin).count();
}
/// Processor time of this thread so far: what it computes, also where others take turns on its core.
double processor_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double quantile_of(std::vector<double> x, double quantile) {
    if (x.empty()) return 0;
    const auto at = x.begin() + static_cast<std::ptrdiff_t>(static_cast<double>(x.size() - 1) * quantile);
    std::ranges::nth_element(x, at);
    return *at;
}

struct settings {
    std::string folder = "/usr/share/datasets/fashion-mnist";
    std::vector<int> widths{784, 256, 128, 10};
    int batch = 256, steps = 20, rounds = 5;
    std::vector<int> bucket_kb{16, 64, 128, 256, 512, 1024};
    int panel_kb = 64;
    bool progress_thread = false, pin = false;
    double quantile = 0.5;
};

/// Some samples as a batch.
template <class T>
struct batch {
    void read(const dataset& data, int first, int count) {
        samples.resize(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) samples[static_cast<std::size_t>(i)] = (first + i) % data.size();
        read_batch(data, samples, images);
        labels.clear();
        for (const int s : samples) labels.push_back(data.labels[static_cast<std::size_t>(s)]);
    }
    std::vector<int> samples;
    typename network<T>::matrix images;
    std::vector<std::uint8_t> labels;
};

constexpr auto nothing = [](std::size_t) {};

// The checks: in double, against the same steps by one rank.

constexpr double learning_rate = 0.1, momentum = 0.9;

double largest_difference(std::span<const double> a, std::span<const double> b) {
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = example::worse(most, std::abs(a[i] - b[i]));
    return most;
}

bool same_on_every_rank(colls::communicator& comm, std::span<const double> weights) {
    std::vector<double> least(weights.begin(), weights.end()), most = least;
    colls::all_reduce(comm, least, colls::min);
    colls::all_reduce(comm, most, colls::max);
    return least == most;
}

/// Each batch is cut over the ranks, and each rank's part into `passes` backward passes. Returns the weights.
std::vector<double> train_parallel(colls::communicator& comm, const settings& how, const dataset& data, int steps,
    int passes, double max_norm, std::size_t bucket_bytes = 64 * 1024) {
    const std::size_t panel = 2000;
    network<double> net(how.widths, 100 + static_cast<std::uint64_t>(comm.rank()));
    // example-begin broadcast
    colls::broadcast_spans(comm, std::vector{net.parameters()}, 0);  // every rank begins with rank 0's weights
    // example-end
    // example-begin register
    const std::vector<std::span<double>> gradients = net.gradients(panel);  // in the order of the forward pass
    // reproducible: the bits of the weights do not depend on how gradients are cut into buckets.
    colls::gradient_buckets exchange(
        comm, gradients, colls::sum, {.bucket_bytes = bucket_bytes}, colls::reproducible{});
    // example-end
    batch<double> part;
    for (int step = 0; step < steps; ++step) {
        const auto own = colls::block_of(static_cast<std::size_t>(how.batch), comm.size(), comm.rank());
        const auto pass = [&](int k) {
            const auto piece = colls::block_of(own.size, passes, k);
            part.read(
                data, step * how.batch + static_cast<int>(own.offset + piece.offset), static_cast<int>(piece.size));
            std::size_t next = gradients.size();
            net.backward(
                part.images, part.labels, how.batch, panel, [&](std::size_t) { exchange.ready(--next); }, k > 0);
            exchange.wait();
        };
        // example-begin accumulate
        for (int k = 0; k + 1 < passes; ++k) {
            const auto accumulating = exchange.no_sync();  // ready() and wait() exchange nothing while it lives
            pass(k);
        }
        pass(passes - 1);  // exchanges the sum of all passes
        // example-end
        // example-begin clip
        if (max_norm > 0) colls::clip_by_global_norm(comm, gradients, max_norm);
        // example-end
        net.update(learning_rate, momentum);
    }
    return {net.parameters().begin(), net.parameters().end()};
}
/// The same by one rank alone, without any of it.
std::vector<double> train_serial(const settings& how, const dataset& data, int steps, double max_norm) {
    network<double> net(how.widths, 100);
    batch<double> all;
    for (int step = 0; step < steps; ++step) {
        all.read(data, step * how.batch, how.batch);
        net.backward(all.images, all.labels, how.batch, net.gradient().size(), nothing);
        double squares = 0;
        for (const double g : net.gradient()) squares += g * g;
        if (max_norm > 0 && std::sqrt(squares) > max_norm)
            for (double& g : net.gradient()) g *= max_norm / std::sqrt(squares);
        net.update(learning_rate, momentum);
    }
    return {net.parameters().begin(), net.parameters().end()};
}

/// Rank r has r + 1 batches of its own; the average is over the ranks that still have one.
std::vector<double> train_uneven(colls::communicator& comm, const settings& how, const dataset& data, int size) {
    const std::size_t panel = 2000;
    network<double> net(how.widths, 100);
    const std::vector<std::span<double>> gradients = net.gradients(panel);
    batch<double> own;
    const int batches = comm.rank() + 1;
    // example-begin join
    colls::gradient_buckets exchange(comm, gradients, colls::avg, {.bucket_bytes = 64 * 1024, .uneven = true});
    for (int b = 0; b < batches; ++b) {
        own.read(data, (b * comm.size() + comm.rank()) * size, size);
        std::size_t next = gradients.size();
        net.backward(own.images, own.labels, size, panel, [&](std::size_t) { exchange.ready(--next); });
        exchange.wait();
        net.update(learning_rate, momentum);
    }
    exchange.join([&] { net.update(learning_rate, momentum); });  // until the last rank has no batch left
    // example-end
    return {net.parameters().begin(), net.parameters().end()};
}
std::vector<double> train_uneven_serial(int ranks, const settings& how, const dataset& data, int size) {
    network<double> net(how.widths, 100);
    batch<double> one;
    for (int b = 0; b < ranks; ++b) {
        const int taking_part = ranks - b;  // ranks b to ranks - 1
        for (int r = b; r < ranks; ++r) {
            one.read(data, (b * ranks + r) * size, size);
            net.backward(one.images, one.labels, size * taking_part, net.gradient().size(), nothing, r > b);
        }
        net.update(learning_rate, momentum);
    }
    return {net.parameters().begin(), net.parameters().end()};
}

void check_weights(colls::communicator& comm, output& out, const settings& how, const dataset& data) {
    const auto compare = [&](const std::string& what, const std::vector<double>& weights, auto serial) {
        const double off = comm.rank() == 0 ? largest_difference(weights, serial()) : 0;
        out.print("{}: weights differ from one rank's by {:.1e} at most\n", what, off);
        out.check("  the same as one rank", off < 1e-10);  // rounding is 1e-16 of weights below 1
        out.check("  the same bits on every rank", same_on_every_rank(comm, weights));
    };
    settings small = how;
    small.batch = 61;  // does not divide by the ranks
    const int steps = 5;
    const std::vector<double> weights = train_parallel(comm, small, data, steps, 1, 0);
    compare("a batch of 61 cut over the ranks", weights, [&] { return train_serial(small, data, steps, 0); });
    bool same = true;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{5000}, std::size_t{1} << 30})
        same = weights == train_parallel(comm, small, data, steps, 1, 0, bytes) && same;
    out.check("  the same bits in buckets of any size", same);
    compare("3 backward passes a step, clipped to norm 0.5", train_parallel(comm, small, data, steps, 3, 0.5),
        [&] { return train_serial(small, data, steps, 0.5); });
    compare("rank r has r + 1 batches", train_uneven(comm, small, data, 16),
        [&] { return train_uneven_serial(comm.size(), small, data, 16); });
}

// The measurement.

enum class overlap { none, without, with };  // none: no exchange at all

/// What the steps of one way to train have taken on this rank.
struct times {
    std::vector<double> steps, exposed, compute;  // seconds; exposed: within ready() and wait(); compute: outside
    std::vector<int> cores;                       // at the end of each backward pass
};

/// Steps of one group with buckets of one size.
class trainer {
public:
    trainer(colls::communicator& comm, const settings& how, const dataset& data, int bucket_kb)
        : comm_(comm),
          how_(how),
          data_(data),
          net_(how.widths, 1),
          panel_(static_cast<std::size_t>(how.panel_kb) * 1024 / sizeof(float)),
          gradients_(net_.gradients(panel_)),
          exchange_(comm, gradients_, colls::sum, {.bucket_bytes = static_cast<std::size_t>(bucket_kb) * 1024}) {}

    void step(overlap how, int number, times& to) {
        const auto begin = stopwatch::now();
        double compute = -processor_seconds(), exposed = 0;
        const auto timed = [&](auto f) {
            compute += processor_seconds();
            const auto from = stopwatch::now();
            f();
            exposed += seconds_since(from);
            compute -= processor_seconds();
        };
        const auto own = colls::block_of(static_cast<std::size_t>(how_.batch), comm_.size(), comm_.rank());
        part_.read(data_, number * how_.batch + static_cast<int>(own.offset), static_cast<int>(own.size));
        std::size_t next = gradients_.size();
        net_.backward(part_.images, part_.labels, how_.batch, panel_, [&](std::size_t) {
            if (how == overlap::with) timed([&] { exchange_.ready(--next); });
        });
        to.cores.push_back(sched_getcpu());
        if (how != overlap::none)
            timed([&] {
                while (next > 0) exchange_.ready(--next);
                exchange_.wait();
            });
        net_.update(0.01f, 0.9f);
        to.compute.push_back(compute + processor_seconds());
        to.steps.push_back(seconds_since(begin));
        to.exposed.push_back(exposed);
    }
    /// Seconds of one exchange with nothing beside it.
    double exchange_alone() {
        std::ranges::fill(net_.gradient(), 1.0f);  // in this core's cache, as back-propagation leaves it
        colls::barrier(comm_);
        const auto begin = stopwatch::now();
        for (std::size_t i = gradients_.size(); i-- > 0;) exchange_.ready(i);
        exchange_.wait();
        return seconds_since(begin);
    }
    std::size_t buckets() const { return exchange_.bucket_count(); }
    std::size_t bytes() { return net_.gradient().size_bytes(); }

private:
    colls::communicator& comm_;
    const settings& how_;
    const dataset& data_;
    network<float> net_;
    std::size_t panel_;
    std::vector<std::span<float>> gradients_;
    colls::gradient_buckets<float> exchange_;
    batch<float> part_;
};

struct row {
    double step, exposed, compute, alone, shared;
    std::size_t buckets;
};

/// The share of steps in which ranks were on one core although there are enough for all of them.
double share_of_shared_cores(colls::communicator& comm, const std::vector<int>& own) {
    std::vector<int> all(own.size() * static_cast<std::size_t>(comm.size()));
    colls::all_gather(comm, own, all);
    int shared = 0;
    for (std::size_t s = 0; s < own.size(); ++s) {
        std::set<int> cores;
        for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r) cores.insert(all[r * own.size() + s]);
        shared += static_cast<int>(cores.size()) < comm.size();
    }
    return own.empty() ? 0 : static_cast<double>(shared) / static_cast<double>(own.size());
}

/// All ways to train by the ranks of `comm`, in turns; [bucket][way].
std::vector<std::vector<row>> measure(colls::communicator& comm, const settings& how, const dataset& data) {
    std::optional<colls::progress_thread> helper;
    if (how.progress_thread) helper.emplace(comm);
    const std::vector ways = {overlap::none, overlap::without, overlap::with};
    std::vector<std::unique_ptr<trainer>> trainers;
    for (const int kb : how.bucket_kb) trainers.push_back(std::make_unique<trainer>(comm, how, data, kb));
    std::vector<std::vector<times>> all(trainers.size(), std::vector<times>(ways.size()));
    std::vector<std::vector<double>> alone(trainers.size());
    for (int round = 0; round < how.rounds; ++round)
        for (std::size_t b = 0; b < trainers.size(); ++b) {
            for (std::size_t w = 0; w < ways.size(); ++w) {
                colls::barrier(comm);
                times warm;
                trainers[b]->step(ways[w], 0, warm);
                for (int s = 0; s < how.steps; ++s) trainers[b]->step(ways[w], round * how.steps + s, all[b][w]);
            }
            for (int s = 0; s < how.steps; ++s) alone[b].push_back(trainers[b]->exchange_alone());
        }
    std::vector<std::vector<row>> rows(trainers.size());
    for (std::size_t b = 0; b < trainers.size(); ++b)
        for (std::size_t w = 0; w < ways.size(); ++w) {
            const times& t = all[b][w];
            const double q = how.quantile;
            double mean[] = {quantile_of(t.steps, q), quantile_of(t.exposed, q), quantile_of(t.compute, q),
                quantile_of(alone[b], q)};
            colls::all_reduce(comm, mean, colls::avg);
            rows[b].push_back(
                {mean[0], mean[1], mean[2], mean[3], share_of_shared_cores(comm, t.cores), trainers[b]->buckets()});
        }
    return rows;
}

void sweep(colls::communicator& comm, output& out, const settings& how, const dataset& data) {
    table shown({"ranks", "bucket KB", "buckets", "overlap", "step ms", "compute ms", "exchange alone ms", "exposed ms",
        "hidden ms", "images/s", "of linear", "of copies", "on one core"});
    plot chart("Data parallel: images a second by size of buckets", {"size of a bucket", true, unit::binary_bytes},
        {"images a second"});
    double fastest = 0;
    std::vector<int> sizes;
    for (int k = 1; k < comm.size(); k *= 2) sizes.push_back(k);
    sizes.push_back(comm.size());
    double one_rank = 0;
    for (const int ranks : sizes) {
        colls::communicator group = comm.split(comm.rank() < ranks ? 0 : -1, comm.rank());
        if (group.size() > 0) {
            const auto rows = measure(group, how, data);
            const auto rate = [&](double step) { return how.batch / step; };
            // Without an exchange the size of buckets does not matter: the median over all of them.
            std::vector<double> alone, computed;
            for (const auto& ways : rows) {
                alone.push_back(ways[0].step);
                computed.push_back(ways[0].compute);
            }
            const double copy = quantile_of(alone, 0.5), copies = rate(copy);
            if (ranks == 1) one_rank = copies;
            const auto of = [](double a, double b) { return fmt::format("{:.2f}", a / b); };
            shown.add(ranks, "-", "-", "no exchange", fmt::format("{:.2f}", copy * 1e3),
                fmt::format("{:.2f}", quantile_of(computed, 0.5) * 1e3), "", "", "", fmt::format("{:.0f}", copies),
                of(copies, one_rank * ranks), "1.00", fmt::format("{:.2f}", rows[0][0].shared));
            for (std::size_t b = 0; b < rows.size() && ranks > 1; ++b)
                for (const std::size_t w : {1u, 2u}) {
                    const row& r = rows[b][w];
                    shown.add(ranks, how.bucket_kb[b], r.buckets, w == 2 ? "with" : "without",
                        fmt::format("{:.2f}", r.step * 1e3), fmt::format("{:.2f}", r.compute * 1e3),
                        fmt::format("{:.3f}", r.alone * 1e3), fmt::format("{:.3f}", r.exposed * 1e3),
                        w == 2 ? fmt::format("{:.3f}", std::max(0.0, rows[b][1].exposed - r.exposed) * 1e3) : "",
                        fmt::format("{:.0f}", rate(r.step)), of(rate(r.step), one_rank * ranks),
                        of(rate(r.step), copies), fmt::format("{:.2f}", r.shared));
                    chart.add(fmt::format("{} ranks, {} overlap", ranks, w == 2 ? "with" : "without"),
                        1024.0 * how.bucket_kb[b], rate(r.step));
                    if (rate(r.step) > fastest) {
                        fastest = rate(r.step);
                        chart.says(
                            fmt::format("The most images a second, {:.0f}: {} ranks, {} overlap, buckets of {} KB.",
                                fastest, ranks, w == 2 ? "with" : "without", how.bucket_kb[b]));
                    }
                }
            if (ranks > 1) {
                trainer one(group, how, data, how.bucket_kb.front());
                const auto cost =
                    colls::cost_of<colls::schedule_for<colls::direct, colls::collective::all_reduce>>(ranks);
                const colls::model model = colls::model_of(group);
                const double bytes = static_cast<double>(one.bytes());
                out.print(
                    "{} ranks: each sends {:.0f} KB a step; the model of this machine predicts {:.3f} ms for it: "
                    "{:.1f} % "
                    "of {:.2f} ms of computation\n",
                    ranks, bytes * static_cast<double>(cost.blocks_sent) / cost.blocks / 1024,
                    cost.seconds(model, bytes) * 1e3, cost.seconds(model, bytes) / copy * 100, copy * 1e3);
            }
        }
        colls::barrier(comm);
    }
    out.print(shown);
    out.print(
        "  quantile {} of {} steps, each way in turns with the others. A batch is {} images of all ranks together.\n"
        "  compute: processor time, so that waiting for a core does not count; exchange alone: without computation\n"
        "  exposed: time within ready() and wait(), waiting for the slower rank included; hidden: what overlap takes\n"
        "  off that. of linear: of as many times one rank's images/s; of copies: of as many ranks that compute at the\n"
        "  same time and exchange nothing; on one core: the share of steps in which ranks were on the same core\n\n",
        how.quantile, how.rounds * how.steps, how.batch);
    out.draw(chart);
}

}  // namespace

int main(int argc, char** argv) {
    program program("Data-parallel training with buckets of gradients, compared with one rank, and measured.");
    settings how;
    auto& options = program.options;
    options.add("-b,--batch", how.batch, "images in a batch, of all ranks together", example::positive);
    options.add("--bucket-kb", how.bucket_kb, "sizes of buckets to measure, in KB", example::positive);
    options.add("--panel-kb", how.panel_kb, "a layer's gradient is ready in parts of this size", example::positive);
    options.add("--steps", how.steps, "steps of each way in each round", example::positive);
    options.add("--rounds", how.rounds, "rounds over all ways", example::positive);
    options.add("--quantile", how.quantile, "of the times to show: 0.5, or less where others use the machine",
        example::between(0.0, 1.0));
    options.add("--progress-thread", how.progress_thread, "a progress_thread beside each rank");
    options.add("--pin", how.pin, "bind each rank to a core");
    options.add("--data", how.folder, "folder of the dataset");
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        settings mine = how;
        if (out.quick()) {
            mine.widths = {784, 32, 16, 10};
            mine.bucket_kb = {8, 64};
            mine.panel_kb = 8;
            mine.batch = 64;
            mine.steps = 3;
            mine.rounds = 2;
        }
        static const dataset data = load_fashion_mnist(mine.folder, "t10k");
        if (mine.pin) pin_to_core(comm.rank());
        check_weights(comm, out, mine, data);
        sweep(comm, out, mine, data);
    });
}
