#include "network.hpp"

#include "products.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

namespace example {

template <class T>
network<T>::network(std::span<const int> widths, std::uint64_t seed) {
    Eigen::Index at = 0;
    for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
        layers_.push_back({at, widths[l], widths[l + 1]});
        at += widths[l + 1] * (widths[l] + 1);
    }
    parameters_ = gradient_ = velocity_ = vector::Zero(at);
    std::mt19937_64 random(seed);
    for (const layer& l : layers_) {
        // He et al. 2015. Drawn as double by hand: std::normal_distribution differs between libraries.
        const double scale = std::sqrt(2.0 / l.inputs);
        auto weights = parameters_.segment(l.begin, l.inputs * l.outputs);
        for (T& w : weights) {
            double sum = -6;
            for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
            w = static_cast<T>(scale * sum);
        }
    }
    activations_.resize(layers_.size());
    deltas_.resize(layers_.size());
}

template <class T>
std::vector<std::span<T>> network<T>::gradients(std::size_t panel) {
    std::vector<std::span<T>> parts;
    std::size_t end = gradient().size();
    for (std::size_t l = layers_.size(); l-- > 0;)
        for_panels(layers_[l], panel, [&](Eigen::Index begin, Eigen::Index) {
            const auto offset = static_cast<std::size_t>(layers_[l].begin + begin * layers_[l].outputs);
            parts.push_back(gradient().subspan(offset, end - offset));
            end = offset;
        });
    std::ranges::reverse(parts);
    return parts;
}

template <class T>
auto network<T>::forward(const matrix& x) -> const matrix& {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        const matrix& in = l == 0 ? x : activations_[l - 1];
        matrix& out = activations_[l];
        out.noalias() = weights(l) * in;
        out.colwise() += biases(l);
        if (l + 1 < layers_.size()) out = out.cwiseMax(T(0));
    }
    return activations_.back();
}

template <class T>
double network<T>::backward(const matrix& x, std::span<const std::uint8_t> labels, int batch, std::size_t panel,
    const std::function<void(std::size_t)>& ready, bool accumulate) {
    matrix& last = deltas_.back();
    last = forward(x);
    double loss = 0;
    for (Eigen::Index s = 0; s < last.cols(); ++s) {
        auto column = last.col(s);
        const auto label = labels[static_cast<std::size_t>(s)];
        column = (column.array() - column.maxCoeff()).exp();
        column /= column.sum();
        loss -= std::log(std::max(static_cast<double>(column(label)), 1e-30));
        column(label) -= T(1);
    }
    last /= static_cast<T>(batch);

    for (std::size_t l = layers_.size(); l-- > 0;) {
        const layer& at = layers_[l];
        const matrix& in = l == 0 ? x : activations_[l - 1];
        const matrix& delta = deltas_[l];
        auto bias = gradient_.segment(at.begin + at.inputs * at.outputs, at.outputs);
        if (!accumulate) bias.setZero();
        bias += delta.rowwise().sum();
        Eigen::Map<matrix> gradient(gradient_.data() + at.begin, at.outputs, at.inputs);
        for_panels(at, panel, [&](Eigen::Index begin, Eigen::Index end) {
            auto columns = gradient.middleCols(begin, end - begin);
            if (!accumulate) columns.setZero();
            columns.noalias() += delta * in.middleRows(begin, end - begin).transpose();
            ready(static_cast<std::size_t>(at.begin + begin * at.outputs));
        });
        if (l == 0) break;
        deltas_[l - 1].noalias() = weights(l).transpose() * delta;
        deltas_[l - 1] = (in.array() > T(0)).select(deltas_[l - 1], T(0));
    }
    return loss;
}

template <class T>
void network<T>::update(T learning_rate, T momentum) {
    for (Eigen::Index i = 0; i < parameters_.size(); ++i) {  // one pass over memory
        velocity_[i] = momentum * velocity_[i] + gradient_[i];
        parameters_[i] -= learning_rate * velocity_[i];
    }
}

template <class T>
int network<T>::count_correct(const matrix& x, std::span<const std::uint8_t> labels) {
    const matrix& logits = forward(x);
    int correct = 0;
    for (Eigen::Index s = 0; s < logits.cols(); ++s) {
        Eigen::Index best = 0;
        logits.col(s).maxCoeff(&best);
        correct += best == labels[static_cast<std::size_t>(s)];
    }
    return correct;
}

template <class T>
template <class F>
void network<T>::for_panels(const layer& of, std::size_t panel, F f) {
    const Eigen::Index width = std::max<Eigen::Index>(1, static_cast<Eigen::Index>(panel) / of.outputs);
    for (Eigen::Index end = of.inputs; end > 0;) {
        const Eigen::Index begin = std::max<Eigen::Index>(0, end - width);
        f(begin, end);
        end = begin;
    }
}

template <class T>
auto network<T>::weights(std::size_t l) const -> Eigen::Map<const matrix> {
    return {parameters_.data() + layers_[l].begin, layers_[l].outputs, layers_[l].inputs};
}

template <class T>
auto network<T>::biases(std::size_t l) const -> Eigen::Map<const vector> {
    return {parameters_.data() + layers_[l].begin + layers_[l].inputs * layers_[l].outputs, layers_[l].outputs};
}

template class network<float>;
template class network<double>;

}  // namespace example
