// A skip-gram model with negative sampling (Mikolov et al. 2013): its samples, its loss and its gradient.
#pragma once

#include "../../common/texts.hpp"
#include "embedding.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace example {

/// A batch of a skip-gram model: of each centre a context, and words that are none.
struct samples {
    std::vector<int> centres, targets;  // 1 + negatives targets for each centre, the context first
};
constexpr int negatives = 5;

/// Samples first to first + count - 1 of all; they follow from the text and their number alone.
inline samples samples_at(const corpus& words, std::size_t first, std::size_t count) {
    samples s;
    const std::size_t length = words.text.size();
    for (std::size_t i = first; i < first + count; ++i) {
        const std::size_t at = hash_of(1, i) % length;
        const std::size_t offsets[] = {1, 2, length - 1, length - 2};
        s.centres.push_back(words.text[at]);
        s.targets.push_back(words.text[(at + offsets[hash_of(2, i) % 4]) % length]);
        for (std::uint64_t k = 0; k < negatives; ++k) s.targets.push_back(words.text[hash_of(3 + k, i) % length]);
    }
    return s;
}

/// The summed loss of some samples, and its gradients: -log sigmoid(u v) of the context, -log sigmoid(-u v) of others.
inline double skip_gram(
    const matrix& centres, const matrix& targets, matrix& centre_gradient, matrix& target_gradient) {
    double loss = 0;
    centre_gradient = matrix::Zero(centres.rows(), centres.cols());
    target_gradient.resize(targets.rows(), targets.cols());
    for (Eigen::Index i = 0; i < targets.cols(); ++i) {
        const Eigen::Index c = i / (1 + negatives);
        const double label = i % (1 + negatives) == 0 ? 1 : 0;
        const double likely = 1 / (1 + std::exp(-centres.col(c).dot(targets.col(i))));
        loss -= std::log(label == 1 ? likely : 1 - likely);
        target_gradient.col(i) = (likely - label) * centres.col(c);
        centre_gradient.col(c) += (likely - label) * targets.col(i);
    }
    return loss;
}

/// One step: two lookups, the gradient, two updates. Returns the summed loss of these samples.
template <class Embedding>
double train_step(Embedding& centres, Embedding& targets, const samples& s, double rate) {
    const matrix v = centres.lookup(s.centres), u = targets.lookup(s.targets);
    matrix dv, du;
    const double loss = skip_gram(v, u, dv, du);
    centres.update(dv, rate);
    targets.update(du, rate);
    return loss;
}

/// Sum of the differences of the gradient from finite differences.
inline double gradient_error() {
    matrix v = matrix::Random(7, 3), u = matrix::Random(7, 3 * (1 + negatives)), dv, du, unused;
    skip_gram(v, u, dv, du);
    double sum = 0;
    for (auto [m, gradient] : {std::pair{&v, &dv}, {&u, &du}})
        for (Eigen::Index i = 0; i < m->size(); ++i) {
            const double x = m->data()[i];
            const auto loss_at = [&](double y) {
                m->data()[i] = y;
                matrix a, b;
                return skip_gram(v, u, a, b);
            };
            sum += std::abs((loss_at(x + 1e-5) - loss_at(x - 1e-5)) / 2e-5 - gradient->data()[i]);
            m->data()[i] = x;
        }
    return sum;
}

}  // namespace example
