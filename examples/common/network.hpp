// A multilayer perceptron: ReLU between the layers, softmax and cross entropy at the end, SGD with momentum.
//
// Parameters lie in one vector, layer by layer, each layer its weights (outputs x inputs, column-major) and then its
// biases. Back-propagation finishes the gradient from the end of that vector to its beginning and says so as it goes,
// so that a caller can send what is final while the rest is computed.
#pragma once

#include <Eigen/Core>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace example {

/// T: float or double, for which network.cpp compiles it.
template <class T>
class network {
public:
    using matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
    using vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

    /// widths: of the input, of each hidden layer, of the output. The same seed gives the same weights everywhere.
    network(std::span<const int> widths, std::uint64_t seed);

    std::span<T> parameters() { return {parameters_.data(), static_cast<std::size_t>(parameters_.size())}; }
    std::span<T> gradient() { return {gradient_.data(), static_cast<std::size_t>(gradient_.size())}; }

    /// gradient() in the parts in which backward finishes it with this `panel`; it finishes the last one first.
    std::vector<std::span<T>> gradients(std::size_t panel);

    /// The logits, one column a sample.
    const matrix& forward(const matrix& x);

    /// Forward and backward over one shard of a batch of `batch` samples. Leaves in gradient() the shard's part of the
    /// gradient of the batch's mean loss, and returns the shard's summed loss. `ready(offset)` is called whenever all
    /// of gradient() from `offset` on is final; a layer's weights come in panels of about `panel` numbers.
    /// With `accumulate` it adds to gradient() instead.
    double backward(const matrix& x, std::span<const std::uint8_t> labels, int batch, std::size_t panel,
        const std::function<void(std::size_t)>& ready, bool accumulate = false);

    void update(T learning_rate, T momentum);
    /// What update() keeps from step to step.
    std::span<T> velocity() { return {velocity_.data(), static_cast<std::size_t>(velocity_.size())}; }

    int count_correct(const matrix& x, std::span<const std::uint8_t> labels);

private:
    struct layer {
        Eigen::Index begin;
        int inputs, outputs;
    };
    /// Calls f(begin, end) for the panels of columns of a layer's weights, from the last to the first.
    template <class F>
    static void for_panels(const layer& of, std::size_t panel, F f);
    Eigen::Map<const matrix> weights(std::size_t l) const;
    Eigen::Map<const vector> biases(std::size_t l) const;

    std::vector<layer> layers_;
    std::vector<matrix> activations_, deltas_;
    vector parameters_, gradient_, velocity_;
};

extern template class network<float>;
extern template class network<double>;

}  // namespace example
