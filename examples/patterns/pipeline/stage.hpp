// The layers of a network that one rank of a pipeline has, and their forward and backward passes.
#pragma once

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace example {

using matrix = Eigen::MatrixXd;
using vector = Eigen::VectorXd;

/// The layers of one rank. Parameters lie as in example::network: of each layer the weights, then the biases.
class stage {
public:
    /// Layers first to first + count - 1 of the network, of whose parameters `all` has a copy.
    stage(std::span<const int> widths, int first, int count, std::span<const double> all) {
        long skipped = 0, at = 0;
        for (int l = 0; l < first + count; ++l) {
            const int in = widths[static_cast<std::size_t>(l)], out = widths[static_cast<std::size_t>(l) + 1];
            if (l < first)
                skipped += out * (in + 1);
            else
                layers_.push_back({at, in, out, static_cast<std::size_t>(l) + 2 < widths.size()}), at += out * (in + 1);
        }
        parameters = vector::Map(all.data() + skipped, at);
        gradient_ = velocity_ = vector::Zero(at);
    }

    /// The output for a microbatch, which stays with the inputs of its layers until backward() of that microbatch.
    const matrix& forward(int microbatch, matrix x) {
        std::vector<matrix>& kept = kept_[microbatch];
        kept.push_back(std::move(x));
        for (const layer& l : layers_) {
            matrix out = (weights(l) * kept.back()).colwise() + biases(l);
            if (l.relu) out = out.cwiseMax(0.0);
            kept.push_back(std::move(out));
        }
        if (static_cast<int>(kept_.size()) > most_kept) {
            most_kept = static_cast<int>(kept_.size());
            most_bytes = 0;
            for (const auto& [number, all] : kept_)
                for (const matrix& one : all) most_bytes += static_cast<double>(one.size()) * sizeof(double);
        }
        return kept.back();
    }

    /// Adds the microbatch's part to the gradient, from the gradient of its output; returns that of its input.
    matrix backward(int microbatch, matrix delta) {
        const std::vector<matrix>& kept = kept_[microbatch];
        for (std::size_t i = layers_.size(); i-- > 0;) {
            const layer& l = layers_[i];
            if (l.relu) delta = (kept[i + 1].array() > 0).select(delta, 0.0);
            Eigen::Map<matrix>(gradient_.data() + l.begin, l.out, l.in).noalias() += delta * kept[i].transpose();
            gradient_.segment(l.begin + l.in * l.out, l.out) += delta.rowwise().sum();
            const matrix passed = weights(l).transpose() * delta;
            delta = passed;
        }
        kept_.erase(microbatch);
        return delta;
    }

    void update(double learning_rate, double momentum) {
        velocity_ = momentum * velocity_ + gradient_;
        parameters -= learning_rate * velocity_;
        gradient_.setZero();
    }

    const matrix& output(int microbatch) const { return kept_.at(microbatch).back(); }
    double gradient(Eigen::Index i) const { return gradient_(i); }

    vector parameters;
    int most_kept = 0;  // microbatches whose activations were kept at once, and their bytes
    double most_bytes = 0;

private:
    struct layer {
        long begin;
        int in, out;
        bool relu;
    };
    Eigen::Map<const matrix> weights(const layer& l) const { return {parameters.data() + l.begin, l.out, l.in}; }
    Eigen::Map<const vector> biases(const layer& l) const {
        return {parameters.data() + l.begin + l.in * l.out, l.out};
    }
    std::vector<layer> layers_;
    std::map<int, std::vector<matrix>> kept_;
    vector gradient_, velocity_;
};

inline std::span<const double> numbers(const matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }
inline std::span<double> numbers(matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }

struct batch {
    matrix x;
    std::vector<std::uint8_t> labels;
};

/// Makes of the logits of some of the batch's samples the gradient of the batch's mean cross entropy. Returns their
/// summed loss.
inline double cross_entropy(matrix& logits, std::span<const std::uint8_t> labels, std::size_t samples) {
    double loss = 0;
    for (Eigen::Index s = 0; s < logits.cols(); ++s) {
        auto column = logits.col(s);
        column = (column.array() - column.maxCoeff()).exp();
        column /= column.sum();
        double& right = column(labels[static_cast<std::size_t>(s)]);
        loss -= std::log(right);
        right -= 1;
    }
    logits /= static_cast<double>(samples);
    return loss;
}

/// The sum of the errors of a one-rank gradient against central differences of the loss, over some parameters.
inline double gradient_error(std::span<const int> widths, const batch& data, const std::vector<double>& weights) {
    const int layers = static_cast<int>(widths.size()) - 1;
    const auto samples = data.labels.size();
    const auto loss_at = [&](const std::vector<double>& w, stage* kept) {
        stage all(widths, 0, layers, w);
        matrix out = all.forward(0, data.x);
        const double loss = cross_entropy(out, data.labels, samples) / static_cast<double>(samples);
        if (kept) all.backward(0, out), *kept = all;
        return loss;
    };
    stage with_gradient(widths, 0, 0, weights);
    loss_at(weights, &with_gradient);
    double sum = 0;
    for (std::size_t i = 3; i < weights.size(); i += weights.size() / 40) {
        std::vector<double> up = weights, down = weights;
        up[i] += 1e-5, down[i] -= 1e-5;
        const double slope = (loss_at(up, nullptr) - loss_at(down, nullptr)) / 2e-5;
        sum += std::abs(slope - with_gradient.gradient(static_cast<Eigen::Index>(i)));
    }
    return sum;
}

}  // namespace example
