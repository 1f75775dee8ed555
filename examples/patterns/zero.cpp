// ZeRO, stages 1 to 3 (Rajbhandari et al. 2020): what each rank of a data-parallel training holds and sends when the
// optimizer's state, the gradients and the parameters are sharded one after the other.
//
// ranks: 3 2 4
#include "sharded_training.hpp"

#include "../common/difference.hpp"
#include "../common/fashion_mnist.hpp"
#include "../common/program.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using example::double_precision;
using example::mixed_precision;
using example::sharded_settings;
using example::sharded_training;

constexpr std::array stage_names{"0 (all replicated)", "1 (optimizer)", "2 (and gradients)", "3 (and parameters)"};

/// This rank's shard of the batch of a step, the same batch for any number of ranks. Shards may differ by one sample.
template <class T>
struct batch_shard {
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic> images;
    std::vector<std::uint8_t> labels;

    batch_shard(const example::dataset& data, int step, int batch, int rank, int ranks) {
        std::mt19937_64 random(static_cast<std::uint64_t>(step) + 17);
        std::vector<int> samples(static_cast<std::size_t>(batch));
        for (int& s : samples) s = static_cast<int>(random() % static_cast<std::uint64_t>(data.size()));
        const auto [offset, size] = colls::block_of(samples.size(), ranks, rank);
        const auto mine = std::span(samples).subspan(offset, size);
        images = example::batch_of<T>(data, mine);
        for (const int s : mine) labels.push_back(data.labels[static_cast<std::size_t>(s)]);
    }
};

template <class Precision>
double step(sharded_training<Precision>& training, colls::communicator& comm, const example::dataset& data, int number,
    int batch) {
    const batch_shard<typename Precision::high> mine(data, number, batch, comm.rank(), comm.size());
    return training.step(mine.images, mine.labels, batch);
}

/// The mean loss of a batch by the layers written out plainly, for the check of the gradient.
double loss_of(const std::vector<double>& weights, const std::vector<int>& widths, const batch_shard<double>& batch) {
    Eigen::MatrixXd x = batch.images;
    const double* at = weights.data();
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
        const Eigen::Map<const Eigen::MatrixXd> w(at, widths[l + 1], widths[l]);
        const Eigen::Map<const Eigen::VectorXd> b(at + w.size(), widths[l + 1]);
        x = ((w * x).colwise() + b).eval();
        if (l + 2 < widths.size()) x = x.cwiseMax(0.0).eval();
        at += w.size() + b.size();
    }
    x *= *at;
    double loss = 0;
    for (Eigen::Index s = 0; s < x.cols(); ++s)
        loss += std::log(x.col(s).array().exp().sum()) - x(batch.labels[static_cast<std::size_t>(s)], s);
    return loss / static_cast<double>(x.cols());
}

/// The largest relative difference of the gradient from central differences, in some elements of each layer.
double gradient_error(colls::communicator& alone, const std::vector<int>& widths, const example::dataset& data) {
    sharded_training<double_precision> training(alone, widths, {.stage = 0});
    std::vector<double> weights = training.weights();
    const batch_shard<double> batch(data, 0, 12, 0, 1);
    training.step(batch.images, batch.labels, 12);
    std::mt19937_64 random(3);
    double worst = 0;
    for (std::size_t l = 0; l < training.layers(); ++l)
        for (int k = 0; k < 20; ++k) {
            const colls::buffer_block unit = training.layout().unit(l);
            const std::size_t i = random() % unit.size;
            double& w = weights[unit.offset + i];
            const double before = w, h = 1e-5;
            w = before + h;
            const double above = loss_of(weights, widths, batch);
            w = before - h;
            const double below = loss_of(weights, widths, batch);
            w = before;
            const double expected = (above - below) / (2 * h);
            worst = example::worse(
                worst, std::abs(training.gradient(l)[i] - expected) / std::max(1e-3, std::abs(expected)));
        }
    return worst;
}

template <class Precision>
std::vector<typename Precision::high> train(colls::communicator& comm, const std::vector<int>& widths,
    const sharded_settings& how, const example::dataset& data, int steps, int batch) {
    sharded_training<Precision> training(comm, widths, how);
    for (int s = 0; s < steps; ++s) step(training, comm, data, s, batch);
    return training.weights();
}

/// In double precision: the gradient against finite differences, n ranks against one, and the stages against each
/// other. Layers of 17 and 7 outputs and a layer of one parameter leave shards uneven, and some empty.
void compare_with_one_rank(colls::communicator& comm, example::output& out, const example::dataset& data) {
    const std::vector<int> widths{784, 17, 7, 10};
    const int steps = 6, batch = 47;
    std::vector<double> expected;
    colls::communicator alone = comm.split(comm.rank() == 0 ? 0 : -1, 0);
    double error = 0;
    if (comm.rank() == 0) {
        error = gradient_error(alone, widths, data);
        expected = train<double_precision>(alone, widths, {.stage = 0}, data, steps, batch);
    }
    out.print("  gradient: relative difference {:.1e} from finite differences\n", error);
    out.check("the gradient agrees with finite differences", error < 1e-5);
    std::vector<double> stage0;
    for (int stage = 0; stage < 4; ++stage)
        for (const bool overlap : {false, true}) {
            const auto weights =
                train<double_precision>(comm, widths, {.stage = stage, .overlap = overlap}, data, steps, batch);
            double difference = 0;
            if (comm.rank() == 0)
                for (std::size_t i = 0; i < expected.size(); ++i)
                    difference = example::worse(difference, std::abs(weights[i] - expected[i]));
            const std::string name =
                fmt::format("stage {}{}", stage, overlap ? (stage == 3 ? ", prefetch" : ", overlap") : "");
            if (stage0.empty()) stage0 = weights;
            out.print("  {}: weights differ by at most {:.1e} from one rank's\n", name, difference);
            out.check(name + ": the same as one rank", weights.size() == stage0.size() && difference < 1e-8);
            out.check(name + ": the same bits as stage 0", weights == stage0);
        }
}

/// What this rank holds at most, in bytes: for each purpose, by the sizes of the layers; and by the paper's formula, of
/// the first three together.
struct memory_formula {
    std::size_t parameters, gradients, optimizer, gathered, in_flight;
    double paper;

    memory_formula(const colls::sharded& layout, int stage, bool overlap, int ranks) {
        constexpr std::size_t low = sizeof(mixed_precision::low), k = 3 * sizeof(mixed_precision::high);
        const std::size_t all = layout.size(), own = layout.local_size();
        parameters = low * (stage < 3 ? all : own);
        gradients = low * (stage < 2 ? all : own);
        optimizer = k * (stage < 1 ? all : own);
        const auto psi = static_cast<double>(all), shard = psi / ranks;
        paper = (stage < 3 ? psi : shard) * low + (stage < 2 ? psi : shard) * low + (stage < 1 ? psi : shard) * k;
        std::size_t one = layout.unit(0).size, two = 0;  // the largest layer, and the largest two neighbours
        for (std::size_t l = 1; l < layout.units(); ++l) {
            one = std::max(one, layout.unit(l).size);
            two = std::max(two, layout.unit(l - 1).size + layout.unit(l).size);
        }
        gathered = stage < 3 ? 0 : low * (overlap ? two : one);
        in_flight = stage < 2 ? 0 : low * (overlap ? two : one);
    }
};

/// The peaks of a training's memory: parameters, gradients, optimizer state, gathered layers, gradients in flight, and
/// float copies.
std::array<std::size_t, 6> peaks(const example::memory_account& memory) {
    return {memory.peak("parameters"), memory.peak("gradients"), memory.peak("optimizer state"),
        memory.peak("gathered layers"), memory.peak("gradients in flight"), memory.peak("copies of a layer")};
}

/// Compares a training's memory with the formula on this rank; adds the busiest rank's to the table.
bool add_memory(example::table& table, colls::communicator& comm, const sharded_training<mixed_precision>& training,
    int stage, bool overlap) {
    const memory_formula formula(training.layout(), stage, overlap, comm.size());
    auto peak = peaks(training.memory());
    const bool same = peak[0] == formula.parameters && peak[1] == formula.gradients && peak[2] == formula.optimizer &&
                      peak[3] == formula.gathered && peak[4] == formula.in_flight;
    colls::all_reduce(comm, peak, colls::max);
    const auto kb = [](auto bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1000); };
    table.add(stage_names[static_cast<std::size_t>(stage)], overlap ? "yes" : "no", kb(peak[0]), kb(peak[1]),
        kb(peak[2]), kb(peak[0] + peak[1] + peak[2]), kb(formula.paper), kb(peak[3]), kb(peak[4]), kb(peak[5]));
    return same;
}

/// Memory of each stage in groups of 1 to n ranks, after one step.
void draw_memory(
    colls::communicator& comm, example::output& out, const std::vector<int>& widths, const example::dataset& data) {
    example::plot chart("ZeRO: memory of a rank, measured", {"ranks"}, {"bytes for each parameter"});
    std::array<double, 4> last{};
    for (int ranks = 1; ranks <= comm.size(); ++ranks) {
        colls::communicator part = comm.split(comm.rank() < ranks ? 0 : -1, comm.rank());
        if (part.size() == 0) continue;
        for (int stage = 0; stage < 4; ++stage) {
            sharded_training<mixed_precision> training(part, widths, {.stage = stage});
            step(training, part, data, 0, 32);
            const auto peak = peaks(training.memory());
            double& now = last[static_cast<std::size_t>(stage)];
            now = static_cast<double>(std::accumulate(peak.begin(), peak.begin() + 5, std::size_t{0})) /
                  static_cast<double>(training.layout().size());
            chart.add("stage " + std::string(stage_names[static_cast<std::size_t>(stage)]), ranks, now);
        }
    }
    chart.says(fmt::format(
        "Each stage shards one thing more: on {} ranks a rank holds {:.1f} bytes for each parameter where all "
        "is replicated, {:.1f} where optimizer, gradients and parameters are sharded.",
        comm.size(), last[0], last[3]));
    for (const double bytes : {last[0], last[3]}) chart.mark(comm.size(), bytes, fmt::format("{:.1f} B", bytes));
    out.draw(chart);
}

/// The share of the test set that the network gets right, each rank testing a part in one forward pass.
double accuracy(sharded_training<mixed_precision>& training, colls::communicator& comm, const example::dataset& test) {
    const auto [offset, size] = colls::block_of(test.labels.size(), comm.size(), comm.rank());
    std::vector<int> mine(size);
    std::iota(mine.begin(), mine.end(), static_cast<int>(offset));
    int correct =
        training.count_correct(example::batch_of<float>(test, mine), std::span(test.labels).subspan(offset, size));
    colls::all_reduce(comm, std::span(&correct, 1), colls::sum);
    return static_cast<double>(correct) / test.size();
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values.empty() ? 0 : values[values.size() / 2];
}

/// One training of the comparison below, and what its steps took.
struct contestant {
    int stage;
    bool overlap;
    std::unique_ptr<sharded_training<mixed_precision>> training;
    std::vector<double> seconds{}, exposed{};
    std::size_t bytes_sent = 0;
};

/// In mixed precision, all stages side by side: losses and weights to the bit, memory, bytes and time.
void compare_stages(colls::communicator& comm, example::output& out, const std::vector<int>& widths,
    const example::dataset& data, const example::dataset& test, int steps, int batch, double link) {
    std::vector<contestant> all;
    for (int stage = 0; stage < 4; ++stage)
        for (const bool overlap : {true, false}) {
            const sharded_settings how{.stage = stage, .overlap = overlap, .link = link};
            all.push_back({stage, overlap, std::make_unique<sharded_training<mixed_precision>>(comm, widths, how)});
        }
    const colls::sharded& layout = all[0].training->layout();
    out.print("\n{} parameters in {} layers, bfloat16 with float master weights and moments, {} ranks\n", layout.size(),
        layout.units(), comm.size());

    bool same_loss = true;
    double first = 0, loss = 0;
    for (int s = 0; s < steps; ++s) {
        for (contestant& c : all) {
            colls::barrier(comm);
            const double exposed = c.training->traffic().exposed();
            const auto begin = std::chrono::steady_clock::now();
            const double own = step(*c.training, comm, data, s, batch) / batch;
            c.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
            c.exposed.push_back(c.training->traffic().exposed() - exposed);
            c.bytes_sent = c.training->traffic().bytes_sent();
            if (&c == &all[0]) loss = own;
            same_loss = same_loss && own == loss;
        }
        colls::all_reduce(comm, std::span(&loss, 1), colls::sum);
        if (s == 0) first = loss;
        if (s % 10 == 0 || s + 1 == steps) out.print("  step {:4}: loss {:.4f}\n", s, loss);
    }
    out.check("every stage has the same loss in each step, to the bit", same_loss);
    out.check("the loss has fallen", loss < first || steps < 2);

    example::table memory({"stage", "overlap", "parameters", "gradients", "optimizer", "together", "paper",
        "layers gathered", "gradients in flight", "float copies"});
    example::table traffic({"stage", "bytes sent a step", "formula", "in psi (n-1)/n"});
    example::table time({"stage", "overlap", "ms a step", "of these in calls"});
    const double right = accuracy(*all[0].training, comm, test);
    bool memory_agrees = true, traffic_agrees = true, weights_agree = true, tests_agree = true;
    const auto weights = all[0].training->weights();
    for (contestant& c : all) {
        const auto name = stage_names[static_cast<std::size_t>(c.stage)];
        memory_agrees = add_memory(memory, comm, *c.training, c.stage, c.overlap) && memory_agrees;
        weights_agree = weights_agree && c.training->weights() == weights;
        tests_agree = accuracy(*c.training, comm, test) == right && tests_agree;

        const std::size_t n = layout.counts(0).size(), times = c.stage < 3 ? 2 : 3;
        const std::size_t formula = times * sizeof(mixed_precision::low) * layout.size() * (n - 1);  // of all ranks
        std::size_t sent = c.bytes_sent;
        colls::all_reduce(comm, std::span(&sent, 1), colls::sum);
        sent /= static_cast<std::size_t>(steps);
        traffic_agrees = traffic_agrees && sent == formula;
        if (c.overlap) traffic.add(name, sent / n, formula / n, times);

        std::array medians{median(c.seconds), median(c.exposed)};
        colls::all_reduce(comm, medians, colls::max);
        time.add(name, c.overlap ? "yes" : "no", fmt::format("{:.1f}", 1e3 * medians[0]),
            fmt::format("{:.1f}", 1e3 * medians[1]));
    }
    out.print("\nMemory of the busiest rank, KB ('paper': 2 + 2 + 12 bytes a parameter, what is cut over n)");
    out.print(memory);
    out.check("memory is what the formulas say, on every rank and for each purpose", memory_agrees);
    out.print("\nSent by a rank, on average");
    out.print(traffic);
    out.check("bytes sent are what the formulas say", traffic_agrees);
    out.check("every stage has the same weights, to the bit", weights_agree);
    out.print("{:.2f}% of the test set are right\n", 100 * right);
    out.check("every stage gets the same number of them right", tests_agree);
    out.print("\nTime of the slowest rank, medians over {} interleaved steps, {}", steps,
        link > 0 ? fmt::format("over an emulated network of {:.0f} Mb/s a rank", link * 8e-6) : "no network emulated");
    out.print(time);
}

}  // namespace

int main(int argc, char** argv) {
    example::program program(
        "Trains a network on Fashion-MNIST with Adam, sharded over the ranks as ZeRO's stages do, and compares memory, "
        "bytes sent and time.");
    std::string folder = "/usr/share/datasets/fashion-mnist";
    double megabits = 500;
    int steps = 60, batch = 256, width = 256, hidden = 8;
    program.options.add("--data", folder, "folder of the data set's files");
    program.options.add("--steps", steps, "training steps of each stage", example::between(1, 1000000));
    program.options.add("--batch", batch, "samples a step, over all ranks", example::between(1, 60000));
    program.options.add("--width", width, "outputs of a hidden layer", example::between(1, 10000));
    program.options.add(
        "--link", megabits, "Mb/s of the emulated network between ranks; 0: none", example::not_negative);
    program.options.add("--hidden", hidden, "hidden layers", example::between(0, 1000));
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        const bool quick = out.quick();
        const auto data = example::load_fashion_mnist(folder, quick ? "t10k" : "train");
        std::vector<int> widths(static_cast<std::size_t>(quick ? 3 : hidden), quick ? 65 : width);
        widths.insert(widths.begin(), data.pixels());
        widths.push_back(10);
        compare_with_one_rank(comm, out, data);
        compare_stages(comm, out, widths, data, quick ? data : example::load_fashion_mnist(folder, "t10k"),
            quick ? 5 : steps, batch, quick ? 0 : megabits * 1e6 / 8);
        draw_memory(comm, out, widths, data);
    });
}
