// Data-parallel training on Fashion-MNIST, with the gradients exchanged as float, bfloat16, int8, two kinds of fp8, and
// the largest 1 % of the values: for each the bytes that a rank sends in a step, the time of a step and of its
// exchange, the loss and the accuracy. What rounding loses is kept and sent later (error feedback).
//
// Run: examples/patterns/compressed_gradients [--epochs 8] [--seeds 4] [--ranks 4] [--transport tcp] [--plot FILE]
// The gain is in time where the link is slow: see docs/measurements/compressed.md.
// ranks: 3 2 2
#include "../common/difference.hpp"
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/program.hpp"

#include <colls/patterns/compressed.hpp>
#include <colls/patterns/top_k.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace example;
using stopwatch = std::chrono::steady_clock;

struct settings {
    int epochs = 8, seeds = 4, batch = 256, samples = 0;
    std::vector<int> widths{784, 128, 10};
    double learning_rate = 0.05, momentum = 0.9;
    std::string folder = "/usr/share/datasets/fashion-mnist";
};

/// A way to sum gradients over the ranks.
struct exchange {
    std::function<void(colls::communicator&, std::span<float>)> sum;
    double bytes_sent = 0;         // by a rank in a step
    double error_bound = 0;        // of a value, as a part of the ranks' largest magnitudes; top-k: none
    bool brings_momentum = false;  // then the update has none
};
struct method {
    std::string name;
    std::function<exchange(std::size_t count, int ranks)> make;
};

// example-begin methods
template <class Element>
exchange compressed(std::size_t count, int ranks) {
    using all_reduce = colls::compressed_all_reduce<Element>;
    const auto held = std::make_shared<all_reduce>(count);
    return {[held](colls::communicator& comm, std::span<float> x) { (*held)(comm, x); }, held->bytes_sent(ranks),
        all_reduce::error_bound(ranks)};
}

exchange largest_values(std::size_t count, std::size_t k, double momentum, int ranks) {
    const auto held = std::make_shared<colls::top_k_all_reduce>(count, k, static_cast<float>(momentum));
    return {
        [held](colls::communicator& comm, std::span<float> x) { (*held)(comm, x); }, held->bytes_sent(ranks), 0, true};
}
// example-end

exchange as_floats(std::size_t count, int ranks) {
    return {
        [](colls::communicator& comm, std::span<float> x) { colls::all_reduce<colls::direct>(comm, x, colls::sum); },
        2.0 * (ranks - 1) / ranks * static_cast<double>(count * sizeof(float)), 1e-6};
}

std::vector<method> methods(const settings& how) {
    using colls::quantized;
    return {{"float", as_floats}, {"bfloat16", compressed<colls::bfloat16>},
        {"int8", compressed<quantized<std::int8_t>>}, {"fp8 e4m3", compressed<quantized<colls::fp8_e4m3>>},
        {"fp8 e5m2", compressed<quantized<colls::fp8_e5m2>>},
        {"top 1 %", [&how](std::size_t count, int ranks) {
             return largest_values(count, std::max<std::size_t>(1, count / 100), how.momentum, ranks);
         }}};
}

/// Ranks share each batch.
std::span<const int> shard(std::span<const int> batch, int rank, int ranks) {
    const colls::buffer_block mine = colls::block_of(batch.size(), ranks, rank);
    return batch.subspan(mine.offset, mine.size);
}
std::vector<std::uint8_t> labels_of(const dataset& data, std::span<const int> samples) {
    std::vector<std::uint8_t> labels;
    for (const int s : samples) labels.push_back(data.labels[static_cast<std::size_t>(s)]);
    return labels;
}

/// What a training run brings: the loss of each epoch, the accuracy, and the seconds of a step and of its exchange.
struct outcome {
    std::vector<double> losses;
    double accuracy = 0, step = 0, exchanging = 0;
    std::vector<float> weights;
};

/// Trains with the shards of `ranks` ranks, of which this is one. The order of the samples depends on the seed alone.
outcome train(const settings& how, const dataset& data, unsigned seed, int steps, int rank, int ranks, bool momentum,
    const std::function<void(std::span<float>)>& sum) {
    network<float> net(how.widths, seed);
    std::vector<int> order(how.samples > 0 ? static_cast<std::size_t>(how.samples) : data.labels.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(seed);
    const auto batch = static_cast<std::size_t>(how.batch);
    outcome result;
    std::chrono::duration<double> exchanging{};
    double loss = 0;
    std::size_t seen = 0, first = order.size();
    const auto begin = stopwatch::now();
    for (int step = 0; step < steps; ++step) {
        if (first >= order.size()) {
            for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
            first = seen = 0;
            loss = 0;
        }
        const auto whole = std::span(order).subspan(first, std::min(batch, order.size() - first));
        const auto mine = shard(whole, rank, ranks);
        loss += net.backward(batch_of<float>(data, mine), labels_of(data, mine), static_cast<int>(whole.size()),
            net.gradient().size(), [](std::size_t) {});
        seen += mine.size();
        first += batch;
        const auto before = stopwatch::now();
        sum(net.gradient());
        exchanging += stopwatch::now() - before;
        const double left = 1.0 - static_cast<double>(step) / steps;
        net.update(static_cast<float>(how.learning_rate * left), static_cast<float>(momentum ? how.momentum : 0));
        if (first >= order.size() || step + 1 == steps)
            result.losses.push_back(loss / static_cast<double>(std::max<std::size_t>(seen, 1)));
    }
    result.step = std::chrono::duration<double>(stopwatch::now() - begin).count() / steps;
    result.exchanging = exchanging.count() / steps;
    result.weights.assign(net.parameters().begin(), net.parameters().end());
    return result;
}

/// The share of the test set that these weights get right; each rank tests a part.
double accuracy(
    colls::communicator& comm, const settings& how, const std::vector<float>& weights, const dataset& test) {
    network<float> net(how.widths, 0);
    std::ranges::copy(weights, net.parameters().begin());
    std::vector<int> all(test.labels.size());
    std::iota(all.begin(), all.end(), 0);
    const auto mine = shard(all, comm.rank(), comm.size());
    long correct = mine.empty() ? 0 : net.count_correct(batch_of<float>(test, mine), labels_of(test, mine));
    colls::all_reduce(comm, std::span(&correct, 1), colls::sum);
    return static_cast<double>(correct) / test.size();
}

bool same_on_every_rank(colls::communicator& comm, const std::vector<float>& weights) {
    std::vector<float> of_root = weights;
    colls::broadcast(comm, of_root, 0);
    return std::memcmp(of_root.data(), weights.data(), weights.size() * sizeof(float)) == 0;
}

/// The largest error of a sum of random values, as a part of what the proof's count allows; at most 1.
double error_share(colls::communicator& comm, const exchange& by, std::size_t count) {
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& v : x) v = normal(random);
    std::vector<double> exact(x.begin(), x.end());
    double largest = std::abs(*std::ranges::max_element(x, {}, [](float v) { return std::abs(v); }));
    colls::all_reduce(comm, exact, colls::sum);
    colls::all_reduce(comm, std::span(&largest, 1), colls::sum);
    by.sum(comm, x);
    double worst = 0;
    for (std::size_t i = 0; i < count; ++i) worst = example::worse(worst, std::abs(x[i] - exact[i]));
    return worst / (largest * by.error_bound);
}

void run(const settings& how, colls::communicator& comm, output& out) {
    const dataset training = load_fashion_mnist(how.folder, "train"), test = load_fashion_mnist(how.folder, "t10k");
    const int samples = how.samples > 0 ? how.samples : training.size();
    const int steps = how.epochs * ((samples + how.batch - 1) / how.batch);
    const auto all = methods(how);
    plot chart(
        "Training with compressed gradients", {"epoch"}, {.label = "loss on the training images", .from_zero = false});
    double worst_dense = 0;
    table results(
        {"exchanged as", "KB a step", "of float", "step ms", "exchange ms", "loss", "accuracy %", "to float"});
    bool identical = true, within_bound = true, loss_close = true, accuracy_close = true;
    outcome floats;
    double kilobytes = 0, last_kilobytes = 1;
    for (const method& m : all) {
        outcome mean;
        double bytes = 0;
        for (int s = 0; s < how.seeds; ++s) {
            const std::size_t count = network<float>(how.widths, 0).parameters().size();
            const exchange by = m.make(count, comm.size());
            bytes = by.bytes_sent / 1024;
            outcome o = train(how, training, static_cast<unsigned>(s + 1), steps, comm.rank(), comm.size(),
                !by.brings_momentum, [&](std::span<float> x) { by.sum(comm, x); });
            identical = same_on_every_rank(comm, o.weights) && identical;
            const double share = accuracy(comm, how, o.weights, test);
            // Each rank knows the loss of its own shards.
            colls::all_reduce(comm, o.losses, colls::avg);
            mean.losses.resize(o.losses.size());
            for (std::size_t e = 0; e < o.losses.size(); ++e) mean.losses[e] += o.losses[e] / how.seeds;
            mean.accuracy += share / how.seeds;
            mean.step += o.step / how.seeds;
            mean.exchanging += o.exchanging / how.seeds;
            if (s == 0 && by.error_bound > 0) {
                const exchange fresh = m.make(count, comm.size());
                within_bound = error_share(comm, fresh, count) <= 1 && within_bound;
            }
            if (s == 0 && m.name == "float") {
                const outcome alone = train(how, training, 1, std::min(steps, 20), 0, 1, true, [](std::span<float>) {});
                const outcome many = train(how, training, 1, std::min(steps, 20), comm.rank(), comm.size(), true,
                    [&](std::span<float> x) { by.sum(comm, x); });
                double difference = 0;
                for (std::size_t i = 0; i < count; ++i)
                    difference = example::worse(difference, double{std::abs(alone.weights[i] - many.weights[i])});
                out.print("20 steps of all ranks and of one: weights differ by {:.1e} at most\n", difference);
                out.check("floats: the same as one rank", difference < 1e-3);
            }
            out.print("{:<9} seed {}: loss {:.4f}, accuracy {:.2f} %\n", m.name, s + 1, o.losses.back(), share * 100);
        }
        if (m.name == "float") floats = mean, kilobytes = bytes;
        last_kilobytes = bytes;
        const bool dense = m.name != "top 1 %";
        for (std::size_t e = 0; e < mean.losses.size(); ++e) {
            chart.add(m.name, static_cast<double>(e + 1), mean.losses[e]);
            if (dense) worst_dense = std::max(worst_dense, mean.losses[e] / floats.losses[e] - 1);
            // Sparse gradients arrive late, most of all in the first epochs.
            loss_close = loss_close && mean.losses[e] < floats.losses[e] * (dense ? 1.02 : 1.5);
        }
        if (dense) accuracy_close = accuracy_close && mean.accuracy > floats.accuracy - 0.002;
        results.add(m.name, fmt::format("{:.1f}", bytes), fmt::format("1/{:.2f}", kilobytes / bytes),
            fmt::format("{:.2f}", mean.step * 1e3), fmt::format("{:.2f}", mean.exchanging * 1e3),
            fmt::format("{:.4f}", mean.losses.back()), fmt::format("{:.2f}", mean.accuracy * 100),
            fmt::format("{:+.2f}", (mean.accuracy - floats.accuracy) * 100));
    }
    out.print(results);
    chart.says(
        fmt::format("Gradients of 8 and of 16 bits train as floats do, within {:.1f} % of the loss of each epoch; "
                    "the largest values alone, of {} times fewer bytes, lag behind.",
            std::max(0.1, worst_dense * 100), std::lround(kilobytes / last_kilobytes)));
    out.draw(chart);
    out.check("the same bits on every rank", identical);
    out.check("errors of a sum within the bound that the proof's count gives", within_bound);
    out.check("the loss of each epoch at most 1.02 times float's (top 1 %: 1.5 times)", loss_close);
    if (!out.quick()) out.check("bfloat16, int8 and fp8: accuracy at most 0.2 points below float's", accuracy_close);
}

}  // namespace

int main(int argc, char** argv) {
    example::program program(
        "Trains a network on Fashion-MNIST with gradients exchanged as float, bfloat16, int8, fp8, and their largest 1 "
        "%.");
    settings how;
    program.options.add("-e,--epochs", how.epochs, "times through the training set", example::positive);
    program.options.add("--seeds", how.seeds, "runs of each kind, whose results are averaged", example::positive);
    program.options.add("-b,--batch", how.batch, "images in a batch, of all ranks", example::positive);
    program.options.add("--rate", how.learning_rate, "learning rate at the start; it falls to 0");
    program.options.add("--data", how.folder, "folder of the dataset");
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        settings mine = how;
        if (out.quick()) mine.epochs = 2, mine.seeds = 1, mine.samples = 6000, mine.widths = {784, 32, 10};
        run(mine, comm, out);
    });
}
