// A layer of experts that are spread over the ranks, with top-k routing, a capacity and a loss of balance.
#pragma once

#include <colls/patterns/token_exchange.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace example {

using matrix = Eigen::MatrixXd;

inline std::span<double> numbers(matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }

/// Weights with what SGD with momentum needs.
struct parameter {
    matrix value, gradient, velocity;

    /// He et al. 2015; the same seed gives the same weights everywhere.
    parameter(Eigen::Index rows, Eigen::Index columns, std::uint64_t seed, double scale = 1) : value(rows, columns) {
        std::mt19937_64 random(seed);
        for (double& w : numbers(value)) {
            w = -6;
            for (int i = 0; i < 12; ++i) w += static_cast<double>(random() >> 11) * 0x1p-53;
            w *= scale * std::sqrt(2.0 / static_cast<double>(columns));
        }
        gradient = velocity = matrix::Zero(rows, columns);
    }
    void update(double rate, double momentum) {
        velocity = momentum * velocity + gradient;
        value -= rate * velocity;
        gradient.setZero();
    }
};

/// Which tokens share an expert's capacity.
enum class capacity_rule {
    all_ranks,  // those of all ranks, in rank order: any number of ranks drops the same tokens
    own_rank    // each rank's own (GShard's groups): what is dropped depends on how tokens are spread over ranks
};

struct moe_options {
    int width = 32, hidden = 64, experts = 8;
    int top_k = 1;
    double capacity_factor = 1.25;  // an expert takes at most this much of what it would have with equal shares
    capacity_rule rule = capacity_rule::all_ranks;
    double balance = 0;  // the weight of the loss of balance
};

class moe_layer {
public:
    moe_layer(colls::communicator& comm, const moe_options& options, std::uint64_t seed)
        : gate(options.experts, options.width, seed, 0.5), comm_(comm), o_(options) {
        const auto mine = experts_of(comm.rank());
        first_ = static_cast<int>(mine.offset);
        for (int e = first_; e < first_ + static_cast<int>(mine.size); ++e) {
            const auto own_seed = seed + 1000 + 2 * static_cast<std::uint64_t>(e);
            experts.push_back({{o_.hidden, o_.width, own_seed}, {o_.width, o_.hidden, own_seed + 1, 0.5}});
        }
    }

    /// Collective: x + the weighted outputs of the experts of each token, a column each. A token whose experts are all
    /// full passes as it is.
    matrix forward(const matrix& x) {
        x_ = x;
        const Eigen::Index tokens = x.cols();
        route();

        // example-begin exchange
        exchange_.emplace(comm_, destinations_);  // of each token and choice the expert's rank, or none: dropped
        std::vector<int> expert_of(exchange_->received());
        exchange_->dispatch(chosen_, expert_of, 1);
        matrix copies(o_.width, tokens * o_.top_k), arrived(o_.width, std::ssize(expert_of));
        for (Eigen::Index a = 0; a < copies.cols(); ++a) copies.col(a) = x.col(a / o_.top_k);
        exchange_->dispatch(numbers(copies), numbers(arrived), width());

        for (expert& e : experts) e.rows.clear();
        for (std::size_t i = 0; i < expert_of.size(); ++i)
            experts[static_cast<std::size_t>(expert_of[i] - first_)].rows.push_back(static_cast<long>(i));
        matrix answers(o_.width, arrived.cols());
        for (expert& e : experts) answers(Eigen::all, e.rows) = e.forward(arrived(Eigen::all, e.rows));

        outputs_ = matrix::Zero(o_.width, copies.cols());
        exchange_->collect(numbers(answers), numbers(outputs_), width());
        // example-end
        matrix y = x;
        for (Eigen::Index a = 0; a < outputs_.cols(); ++a) y.col(a / o_.top_k) += weight_(a) * outputs_.col(a);
        return y;
    }

    // example-begin backward
    /// Collective: from the gradient of the output that of the input. Adds to the gradients of the gate, of which this
    /// rank's part, still to be summed over the ranks, and of the experts here, which are complete.
    matrix backward(const matrix& dy) {
        matrix sent(o_.width, outputs_.cols()), arrived(o_.width, static_cast<Eigen::Index>(exchange_->received()));
        Eigen::VectorXd dweight(outputs_.cols());
        for (Eigen::Index a = 0; a < sent.cols(); ++a) {
            sent.col(a) = weight_(a) * dy.col(a / o_.top_k);
            dweight(a) = outputs_.col(a).dot(dy.col(a / o_.top_k));  // 0 where it was dropped
        }
        exchange_->dispatch(numbers(sent), numbers(arrived), width());  // as collect went, in reverse
        matrix answers(o_.width, arrived.cols()), returned = matrix::Zero(o_.width, sent.cols());
        for (expert& e : experts) answers(Eigen::all, e.rows) = e.backward(arrived(Eigen::all, e.rows));
        exchange_->collect(numbers(answers), numbers(returned), width());

        const matrix dlogits = gate_gradient(dweight);
        gate.gradient += dlogits * x_.transpose();
        matrix dx = dy + gate.value.transpose() * dlogits;
        for (Eigen::Index a = 0; a < returned.cols(); ++a) dx.col(a / o_.top_k) += returned.col(a);
        return dx;
    }
    // example-end

    /// What the last forward pass found: the loss of balance of all tokens (Fedus et al. 2021), the same on every rank;
    /// the tokens of all ranks that chose each expert; assignments that this rank dropped; bytes that this rank sends
    /// to others in a forward and a backward pass.
    double balance_loss() const {
        double sum = 0;
        for (int e = 0; e < o_.experts; ++e) sum += part_(e) * mean_probability_(e);
        return o_.balance * o_.experts * sum;
    }
    const std::vector<int>& chose() const { return chose_; }
    long dropped() const { return std::ranges::count(destinations_, colls::none); }
    double bytes() const {
        const std::size_t to_itself = exchange_->sent_counts()[static_cast<std::size_t>(comm_.rank())];
        const auto there = static_cast<double>(exchange_->sent() - to_itself);
        const auto back = static_cast<double>(exchange_->received() - to_itself);
        return there * sizeof(int) + 2 * (there + back) * o_.width * sizeof(double);
    }

    struct expert {
        parameter in, out;  // ReLU between them
        std::vector<long> rows{};
        matrix x{}, hidden{};

        matrix forward(const matrix& tokens) {
            x = tokens;
            hidden = (in.value * x).cwiseMax(0.0);
            return out.value * hidden;
        }
        matrix backward(const matrix& dy) {
            out.gradient += dy * hidden.transpose();
            const matrix passed = out.value.transpose() * dy;
            const matrix dhidden = (hidden.array() > 0).select(passed, 0.0);
            in.gradient += dhidden * x.transpose();
            return in.value.transpose() * dhidden;
        }
    };

    parameter gate;               // on every rank
    std::vector<expert> experts;  // of this rank

private:
    std::size_t width() const { return static_cast<std::size_t>(o_.width); }
    colls::buffer_block experts_of(int rank) const {
        return colls::block_of(static_cast<std::size_t>(o_.experts), comm_.size(), rank);
    }
    int owner_of(int e) const {
        int rank = 0;
        while (static_cast<int>(experts_of(rank).offset + experts_of(rank).size) <= e) ++rank;
        return rank;
    }

    /// Fills, for each token and each of its k choices in turn: chosen_, weight_, destinations_.
    void route() {
        const int tokens = static_cast<int>(x_.cols()), k = o_.top_k, experts_ = o_.experts;
        probability_ = gate.value * x_;
        for (auto column : probability_.colwise()) {
            column = (column.array() - column.maxCoeff()).exp();
            column /= column.sum();
        }
        chosen_.assign(static_cast<std::size_t>(tokens * k), 0);
        weight_.resize(tokens * k);
        std::vector<int> order(static_cast<std::size_t>(experts_));
        for (int t = 0; t < tokens; ++t) {
            std::iota(order.begin(), order.end(), 0);
            std::ranges::partial_sort(order, order.begin() + k, [&](int a, int b) {
                return probability_(a, t) > probability_(b, t) || (probability_(a, t) == probability_(b, t) && a < b);
            });
            std::copy_n(order.begin(), k, chosen_.begin() + t * k);
            for (int j = 0; j < k; ++j) weight_(t * k + j) = probability_(order[static_cast<std::size_t>(j)], t);
            // One choice keeps its probability, so that the gate has a gradient; several are scaled to a sum of 1.
            if (k > 1) weight_.segment(t * k, k) /= weight_.segment(t * k, k).sum();
        }

        // example-begin capacity
        // How often each rank's tokens chose each expert, as first choice, second choice, ..., and the rank's tokens.
        const int kinds = k * experts_, n = comm_.size();
        std::vector<int> counts(static_cast<std::size_t>(kinds + 1)), all(static_cast<std::size_t>((kinds + 1) * n));
        for (int a = 0; a < tokens * k; ++a)
            ++counts[static_cast<std::size_t>(a % k * experts_ + chosen_[static_cast<std::size_t>(a)])];
        counts.back() = tokens;
        colls::all_gather(comm_, counts, all);

        // Places at an expert go to all first choices, then to second choices; within these by rank and token.
        std::vector<int> place(static_cast<std::size_t>(kinds));
        chose_.assign(static_cast<std::size_t>(experts_), 0);
        all_tokens_ = 0;
        int sharing = 0;  // tokens that share the capacity
        const auto shares = [&](int rank) { return o_.rule == capacity_rule::all_ranks || rank == comm_.rank(); };
        for (int r = 0; r < n; ++r) {
            const int* const of_rank = all.data() + r * (kinds + 1);
            all_tokens_ += of_rank[kinds];
            if (shares(r)) sharing += of_rank[kinds];
            for (int i = 0; i < kinds; ++i) {
                chose_[static_cast<std::size_t>(i % experts_)] += of_rank[i];
                for (int later = i; later < kinds && shares(r); later += experts_)
                    if (later > i || r < comm_.rank()) place[static_cast<std::size_t>(later)] += of_rank[i];
            }
        }
        const int capacity = static_cast<int>(std::ceil(o_.capacity_factor * k * sharing / experts_));
        destinations_.resize(chosen_.size());
        for (int a = 0; a < tokens * k; ++a) {
            const int e = chosen_[static_cast<std::size_t>(a)];
            const bool fits = place[static_cast<std::size_t>(a % k * experts_ + e)]++ < capacity;
            destinations_[static_cast<std::size_t>(a)] = fits ? owner_of(e) : colls::none;
        }
        // example-end

        part_.resize(experts_);
        for (int e = 0; e < experts_; ++e) part_(e) = chose_[static_cast<std::size_t>(e)] / double(k) / all_tokens_;
        mean_probability_ = probability_.rowwise().sum() / all_tokens_;
        colls::all_reduce(comm_, std::span(mean_probability_.data(), static_cast<std::size_t>(experts_)), colls::sum);
    }

    /// The gradient of the gate's logits, from that of the weights of the choices, and of the loss of balance.
    matrix gate_gradient(const Eigen::VectorXd& dweight) const {
        const int k = o_.top_k;
        matrix d = (o_.balance * o_.experts / all_tokens_ * part_).replicate(1, probability_.cols());
        for (Eigen::Index t = 0; t < d.cols(); ++t) {
            double sum = 0, along = 0;
            for (Eigen::Index a = t * k; a < t * k + k; ++a) {
                sum += probability_(chosen_[static_cast<std::size_t>(a)], t);
                along += dweight(a) * weight_(a);
            }
            for (Eigen::Index a = t * k; a < t * k + k; ++a)
                d(chosen_[static_cast<std::size_t>(a)], t) += k == 1 ? dweight(a) : (dweight(a) - along) / sum;
            d.col(t) =
                probability_.col(t).cwiseProduct((d.col(t).array() - probability_.col(t).dot(d.col(t))).matrix());
        }
        return d;
    }

    colls::communicator& comm_;
    moe_options o_;
    int first_ = 0, all_tokens_ = 0;
    matrix x_, probability_, outputs_;
    Eigen::VectorXd weight_, part_, mean_probability_;
    std::vector<int> chosen_, destinations_, chose_;
    std::optional<colls::token_exchange> exchange_;
};

}  // namespace example
