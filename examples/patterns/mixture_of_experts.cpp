// A mixture of experts: a gate sends each token to k of several networks, the experts, which are spread over the ranks
// (Shazeer et al. 2017; Lepikhin et al. 2020, GShard; Fedus et al. 2021, Switch). Tokens are the 16 patches of images
// of Fashion-MNIST, which the model classifies. See docs/patterns/mixture_of_experts.md.
//
// ranks: 3 5 4
#include "../common/fashion_mnist.hpp"
#include "../common/program.hpp"
#include "mixture_of_experts/layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace example;

constexpr int patches = 16, patch_side = 7, sides = 4;

/// The patches of images of 28 x 28 pixels, a column each.
matrix patches_of(const matrix& images) {
    matrix tokens(patch_side * patch_side, images.cols() * patches);
    for (Eigen::Index i = 0; i < tokens.cols(); ++i) {
        const Eigen::Index row = i % patches / sides * patch_side, column = i % sides * patch_side;
        for (Eigen::Index y = 0; y < patch_side; ++y)
            tokens.col(i).segment(y * patch_side, patch_side) =
                images.col(i / patches).segment((row + y) * 28 + column, patch_side);
    }
    return tokens;
}

/// The layer on one rank, without any exchange: token by token.
matrix serial_forward(const moe_layer& all, const moe_options& o, const matrix& x) {
    std::vector<std::vector<std::pair<double, int>>> ranked(static_cast<std::size_t>(x.cols()));
    for (Eigen::Index t = 0; t < x.cols(); ++t) {
        const Eigen::VectorXd logits = all.gate.value * x.col(t);
        const double sum = (logits.array() - logits.maxCoeff()).exp().sum();
        for (int e = 0; e < o.experts; ++e)
            ranked[static_cast<std::size_t>(t)].emplace_back(-std::exp(logits(e) - logits.maxCoeff()) / sum, e);
        std::ranges::sort(ranked[static_cast<std::size_t>(t)]);
    }
    matrix y = x;
    std::vector<int> taken(static_cast<std::size_t>(o.experts));
    for (std::size_t j = 0; j < static_cast<std::size_t>(o.top_k); ++j)
        for (Eigen::Index t = 0; t < x.cols(); ++t) {
            const auto& choices = ranked[static_cast<std::size_t>(t)];
            const auto [p, e] = choices[j];
            if (++taken[static_cast<std::size_t>(e)] >
                std::ceil(o.capacity_factor * o.top_k * static_cast<double>(x.cols()) / o.experts))
                continue;
            double sum = 0;
            for (int i = 0; i < o.top_k; ++i) sum -= choices[static_cast<std::size_t>(i)].first;
            const auto& expert = all.experts[static_cast<std::size_t>(e)];
            const Eigen::VectorXd hidden = (expert.in.value * x.col(t)).cwiseMax(0.0);
            y.col(t) += (o.top_k == 1 ? -p : -p / sum) * (expert.out.value * hidden);
        }
    return y;
}

struct comparison {
    double result, slope;  // sums of differences: std::max would lose a NaN
    long dropped;          // of the assignments of all tokens
};

/// Compares the layer on all ranks with itself on one rank, with the serial loop and with finite differences.
comparison compare(colls::communicator& comm, moe_options o, const matrix& x, const matrix& weights) {
    const auto [offset, size] = colls::block_of(static_cast<std::size_t>(x.cols()), comm.size(), comm.rank());
    const auto own = [&, from = static_cast<Eigen::Index>(offset), count = static_cast<Eigen::Index>(size)](
                         const matrix& of_all) -> matrix { return of_all.middleCols(from, count); };
    moe_layer layer(comm, o, 5);
    const matrix y = layer.forward(own(x)), dx = layer.backward(own(weights));
    matrix gate_gradient = layer.gate.gradient;
    colls::all_reduce(comm, numbers(gate_gradient), colls::sum);

    colls::communicator alone = comm.split(comm.rank(), 0);
    moe_layer one(alone, o, 5);
    matrix one_y(x.rows(), x.cols()), one_dx = one_y;
    long one_dropped = 0;
    // Capacity for each rank's own tokens: one rank does the same where it takes them shard by shard.
    for (const auto& shard : colls::blocks_of(x.cols(), o.rule == capacity_rule::own_rank ? comm.size() : 1)) {
        const auto from = static_cast<Eigen::Index>(shard.offset), count = static_cast<Eigen::Index>(shard.size);
        one_y.middleCols(from, count) = one.forward(x.middleCols(from, count));
        one_dx.middleCols(from, count) = one.backward(weights.middleCols(from, count));
        one_dropped += one.dropped();
    }
    long dropped = layer.dropped();
    colls::all_reduce(comm, std::span(&dropped, 1), colls::sum);
    double sum = (y - own(one_y)).norm() + (dx - own(one_dx)).norm() + (gate_gradient - one.gate.gradient).norm() +
                 static_cast<double>(std::abs(dropped - one_dropped));
    if (o.rule == capacity_rule::all_ranks) sum += (serial_forward(one, o, x) - one_y).norm();
    const std::size_t first = colls::block_of(static_cast<std::size_t>(o.experts), comm.size(), comm.rank()).offset;
    for (std::size_t e = 0; e < layer.experts.size(); ++e) {
        sum += (layer.experts[e].in.gradient - one.experts[first + e].in.gradient).norm();
        sum += (layer.experts[e].out.gradient - one.experts[first + e].out.gradient).norm();
    }

    // Slopes: of a weight of the gate, on every rank; of weights of experts, and of inputs, each where it lies.
    matrix input = own(x);
    const auto loss = [&] {
        double all = layer.forward(input).cwiseProduct(own(weights)).sum();
        colls::all_reduce(comm, std::span(&all, 1), colls::sum);
        return all + layer.balance_loss();
    };
    double slopes = 0;
    const auto try_slope = [&](double* weight, double slope) {
        colls::all_reduce(comm, std::span(&slope, 1), colls::sum);
        double unused = 0, &w = weight ? *weight : unused, before = w;
        w = before + 1e-6;
        const double up = loss();
        w = before - 1e-6;
        slopes += std::abs((up - loss()) / 2e-6 - slope);
        w = before;
    };
    const matrix dgate = layer.gate.gradient;
    for (int i = 0; i < 4; ++i) {
        const Eigen::Index at = 37 * i % dgate.size();
        try_slope(layer.gate.value.data() + at, dgate.data()[at]);
        for (int r = 0; r < comm.size(); ++r) {
            const bool here = r == comm.rank();
            const bool expert = here && !layer.experts.empty(), token = here && input.cols() > i;
            auto* const p = expert ? i % 2 ? &layer.experts.back().in : &layer.experts.back().out : nullptr;
            try_slope(p ? p->value.data() + at : nullptr, p ? p->gradient.data()[at] : 0);
            try_slope(token ? &input(i, i) : nullptr, token ? dx(i, i) : 0);
        }
    }
    return {sum, slopes, dropped};
}

void compare_with_one_rank(colls::communicator& comm, output& out, const matrix& images) {
    moe_options o;
    o.width = 24, o.hidden = 20, o.experts = 7;
    const matrix all = parameter(o.width, patch_side * patch_side, 9).value * patches_of(images);
    for (const auto& [tokens, k, factor, balance] :
        {std::tuple{301, 1, 1.0, 0.1}, {301, 2, 1.25, 0.0}, {301, 2, 0.3, 0.1}, {3, 1, 1.0, 0.1}})
        for (const auto rule : {capacity_rule::all_ranks, capacity_rule::own_rank}) {
            o.top_k = k, o.capacity_factor = factor, o.rule = rule;
            o.balance = rule == capacity_rule::all_ranks ? balance : 0;  // one rank's shards know no common balance
            const auto found = compare(comm, o, all.leftCols(tokens), parameter(o.width, tokens, 3).value);
            out.check(
                fmt::format("{:>3} tokens, {} of {} experts, capacity {} of {}, {} dropped: as one rank", tokens, k,
                    o.experts, factor, rule == capacity_rule::all_ranks ? "all ranks" : "each rank", found.dropped),
                found.result < 1e-9);
            out.check("  gradients as finite differences", found.slope < 1e-4);
        }
}

/// Patches are embedded, pass the layer, and are averaged; a linear layer classifies the average.
struct classifier {
    parameter patch, place, head;
    moe_layer moe;
    matrix tokens, pooled;

    classifier(colls::communicator& comm, const moe_options& o)
        : patch(o.width, patch_side * patch_side, 1),
          place(o.width, patches, 2, 0.1),
          head(10, o.width, 3),
          moe(comm, o, 4) {}

    matrix forward(const matrix& images) {
        tokens = patches_of(images);
        matrix x = patch.value * tokens;
        for (Eigen::Index t = 0; t < x.cols(); ++t) x.col(t) += place.value.col(t % patches);
        const matrix y = moe.forward(x);
        pooled = matrix::Zero(y.rows(), images.cols());
        for (Eigen::Index t = 0; t < y.cols(); ++t) pooled.col(t / patches) += y.col(t) / patches;
        return head.value * pooled;
    }
    void backward(const matrix& dlogits) {
        head.gradient += dlogits * pooled.transpose();
        const matrix dpooled = head.value.transpose() * dlogits;
        matrix dy(dpooled.rows(), tokens.cols());
        for (Eigen::Index t = 0; t < dy.cols(); ++t) dy.col(t) = dpooled.col(t / patches) / patches;
        const matrix dx = moe.backward(dy);
        for (Eigen::Index t = 0; t < dx.cols(); ++t) place.gradient.col(t % patches) += dx.col(t);
        patch.gradient += dx * tokens.transpose();
    }
    /// What every rank has is summed over the ranks; experts have their whole gradient already.
    void update(colls::communicator& comm, double rate) {
        for (parameter* p : {&patch, &place, &head, &moe.gate}) {
            colls::all_reduce(comm, numbers(p->gradient), colls::sum);
            p->update(rate, 0.9);
        }
        for (auto& expert : moe.experts)
            for (parameter* p : {&expert.in, &expert.out}) p->update(rate, 0.9);
    }
};

/// Trains, and adds a row to the table.
void train(colls::communicator& comm, output& out, const dataset& data, const moe_options& o, int batch, int steps,
    table& results, plot& chart) {
    const std::string name = fmt::format("{} of {}, balance {}", o.top_k, o.experts, o.balance);
    double last = 0;
    classifier model(comm, o);
    std::vector<double> sums(5), chose(static_cast<std::size_t>(o.experts));  // loss, correct, dropped, bytes, samples
    for (int step = 0; step < steps; ++step) {
        const auto [offset, size] = colls::block_of(static_cast<std::size_t>(batch), comm.size(), comm.rank());
        std::vector<int> picked(size);
        for (std::size_t i = 0; i < size; ++i)
            picked[i] = static_cast<int>((static_cast<std::size_t>(step * batch) + offset + i) % data.labels.size());
        matrix logits = model.forward(batch_of<double>(data, picked));
        for (Eigen::Index s = 0; s < logits.cols(); ++s) {
            auto column = logits.col(s);
            const auto label = data.labels[static_cast<std::size_t>(picked[static_cast<std::size_t>(s)])];
            sums[1] += column(label) == column.maxCoeff();
            column = (column.array() - column.maxCoeff()).exp();
            column /= column.sum();
            sums[0] -= std::log(column(label));
            column(label) -= 1;
        }
        model.backward(logits / batch);
        model.update(comm, 0.05);
        sums[2] += static_cast<double>(model.moe.dropped());
        sums[3] += model.moe.bytes();
        sums[4] += static_cast<double>(size);
        for (std::size_t e = 0; e < chose.size(); ++e) chose[e] += model.moe.chose()[e];

        const int window = std::max(1, steps / 10);
        if ((step + 1) % window != 0) continue;
        colls::all_reduce(comm, sums, colls::sum);
        const double assigned = sums[4] * patches * o.top_k, busiest = std::ranges::max(chose) / assigned * o.experts;
        chart.add(name, step + 1, busiest);
        last = busiest;
        if (step + 1 + window > steps) {
            std::string shares;
            for (const double c : chose) shares += fmt::format("{:4.0f}", 100 * c / assigned);
            results.add(name, shares, fmt::format("{:.2f}", busiest), fmt::format("{:.1f} %", 100 * sums[2] / assigned),
                fmt::format("{:.0f}", sums[3] / window / 1e3), fmt::format("{:.3f}", sums[0] / sums[4]),
                fmt::format("{:.1f} %", 100 * sums[1] / sums[4]));
        } else if ((step + 1) % (4 * window) == 0) {
            out.print("{}, step {} of {}: loss {:.3f}, dropped {:.1f} %\n", name, step + 1, steps, sums[0] / sums[4],
                100 * sums[2] / assigned);
        }
        std::ranges::fill(sums, 0.0);
        std::ranges::fill(chose, 0.0);
    }
    if (last > 0 && (o.top_k == 1) == (o.balance == 0))  // the ends that differ most
        chart.mark(steps / std::max(1, steps / 10) * std::max(1, steps / 10), last, fmt::format("{:.2f}", last));
}

}  // namespace

int main(int argc, char** argv) {
    program program("Trains a mixture of experts that are spread over the ranks.");
    std::string folder = "/usr/share/datasets/fashion-mnist";
    int batch = 96, steps = 200;
    moe_options o;
    double balance = 0.05;
    program.options.add("--data", folder, "folder of Fashion-MNIST");
    program.options.add("--batch", batch, "images a step", example::between(1, 10'000));
    program.options.add("--steps", steps, "training steps", example::between(1, 100'000));
    program.options.add("--experts", o.experts, "experts over all ranks", example::between(2, 1024));
    program.options.add(
        "--capacity", o.capacity_factor, "tokens that an expert takes, 1: of equal shares", example::positive);
    program.options.add("--balance", balance, "weight of the loss of balance", example::not_negative);
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        const dataset data = load_fashion_mnist(folder, out.quick() ? "t10k" : "train");
        std::vector<int> first(20);
        std::iota(first.begin(), first.end(), 0);
        compare_with_one_rank(comm, out, batch_of<double>(data, first));

        table results({"experts a token", "tokens that chose each expert, %", "busiest / mean", "dropped", "KB a step",
            "loss", "right"});
        plot chart("Tokens of the busiest expert", {"step"}, {"times the mean of all experts"});
        chart.says(
            "Without a loss of balance the busiest expert keeps far more tokens than the others; with it all "
            "experts come near the mean, 1.");
        for (const int k : {1, 2})
            for (const double weight : {0.0, balance}) {
                moe_options with = o;
                with.top_k = k, with.balance = weight;
                train(comm, out, data, with, out.quick() ? 24 : batch, out.quick() ? 10 : steps, results, chart);
            }
        out.print(results);
        out.draw(chart);
    });
}
