// A transformer whose blocks are cut over the ranks of a tensor-parallel group: forward, and backward by hand.
//
// A matrix of activations has one column a token; sequence b has columns b * length to (b + 1) * length - 1.
#pragma once

#include "account.hpp"
#include "tensor_group.hpp"

#include <colls/colls.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace example {

struct transformer_shape {
    int width, heads, hidden;  // of a token in the residual stream; of the attention; of the perceptron
    int blocks, length;        // length: tokens of a sequence
    static constexpr int vocabulary = 256;

    int head_width() const { return width / heads; }
    /// Throws std::invalid_argument where there can be no such transformer.
    void check() const {
        if (heads < 1 || width < 1 || width % heads != 0)
            throw std::invalid_argument("a width of " + std::to_string(width) + " cannot be cut into " +
                                        std::to_string(heads) + " heads: give a multiple of the heads");
    }
};

/// The weights of a block, and behind those of all blocks the ends of the model.
enum weight {
    norm1_scale,
    norm1_shift,
    qkv,  // for each head its rows for queries, keys and values
    qkv_bias,
    project,
    project_bias,
    norm2_scale,
    norm2_shift,
    up,
    up_bias,
    down,
    down_bias,
    block_weights
};
enum end_weight { embedding, position, unembedding, end_weights };

/// One rank's part of a transformer.
class transformer {
public:
    /// @param comm   the tensor-parallel group. Heads, hidden units and tokens need not divide by its size; ranks may
    ///               have none of them.
    /// @param batch  sequences in a call of backward; the same on every rank of the group
    /// The same seed gives the same weights for any number of ranks.
    transformer(
        colls::communicator& comm, const transformer_shape& shape, parallelism how, int batch, std::uint64_t seed)
        : shape_(shape),
          batch_(batch),
          group_(comm, shape.heads, shape.hidden, shape.width, batch * shape.length, how) {
        shape.check();
        std::mt19937_64 random(seed);
        for (std::size_t i = 0; i < size(); ++i) {
            const auto [rows, columns] = whole_size(i);
            matrix whole(rows, columns);
            for (double& w : whole.reshaped()) {
                double sum = -6;  // about normal
                for (int k = 0; k < 12; ++k) sum += static_cast<double>(random() >> 11) * 0x1p-53;
                w = 0.1 * sum + (in_block(i, norm1_scale) || in_block(i, norm2_scale) ? 1 : 0);
            }
            weights.push_back(part_of(whole, i));
            gradients.push_back(matrix::Zero(weights[i].rows(), weights[i].cols()));
        }
    }

    /// The number of weight matrices.
    std::size_t size() const { return static_cast<std::size_t>(shape_.blocks * block_weights + end_weights); }
    /// This rank's part of weight matrix i, or of its gradient, given the whole.
    matrix part_of(const matrix& whole, std::size_t i) const {
        const cut c = cut_of(i);
        const auto begin = static_cast<Eigen::Index>(c.units.offset) * c.each;
        const auto length = static_cast<Eigen::Index>(c.units.size) * c.each;
        switch (c.along) {
            case cut::rows:
                return whole.middleRows(begin, length);
            case cut::columns:
                return whole.middleCols(begin, length);
            default:
                return whole;
        }
    }

    /// Forward and backward over `batch` sequences of length + 1 tokens each, in which each token predicts the next.
    /// Leaves the gradients of the loss, which is the sum over the tokens over `total`; returns this rank's part of the
    /// loss. Collective over the group.
    double backward(std::span<const std::uint8_t> text, double total) {
        matrix x = embed(text);
        std::vector<saved_block> saved;
        for (int b = 0; b < shape_.blocks; ++b) x = forward(b, x, saved.emplace_back());
        matrix delta;
        const double loss = predict(text, x, total, delta);
        for (int b = shape_.blocks; b-- > 0;) {
            delta = backward(b, delta, saved.back());
            saved.pop_back();
        }
        unembed(text, delta);
        if (group_.cuts_tokens()) sum_replicated();
        return group_.cuts_tokens() ? loss : loss / group_.comm.size();
    }

    const tensor_group& group() const { return group_; }
    /// The memory of the activations that forward keeps for backward.
    const memory_account& memory() const { return memory_; }

    std::vector<matrix> weights, gradients;

private:
    /// An activation that is kept from forward to backward.
    class kept {
    public:
        kept() = default;
        kept(memory_account& memory, const matrix& m)
            : data_(memory, "activations", static_cast<std::size_t>(m.size())), rows_(m.rows()), columns_(m.cols()) {
            Eigen::Map<matrix>(data_.data(), rows_, columns_) = m;
        }
        matrix get() const { return Eigen::Map<const matrix>(data_.data(), rows_, columns_); }

    private:
        counted<double> data_;
        Eigen::Index rows_ = 0, columns_ = 0;
    };
    struct saved_block {
        kept x, y1, qkv, probabilities, context, r, y2, hidden_in, hidden_out;
    };

    /// How weight matrix i is cut: every rank has all of it, or `each` rows or columns for each of its units.
    struct cut {
        enum { nothing, rows, columns } along = nothing;
        colls::buffer_block units{};
        Eigen::Index each = 1;
    };
    cut cut_of(std::size_t i) const {
        if (in_block(i, qkv) || in_block(i, qkv_bias)) return {cut::rows, group_.heads, 3 * shape_.head_width()};
        if (in_block(i, project)) return {cut::columns, group_.heads, shape_.head_width()};
        if (in_block(i, up) || in_block(i, up_bias)) return {cut::rows, group_.hidden, 1};
        if (in_block(i, down)) return {cut::columns, group_.hidden, 1};
        return {};
    }
    bool in_block(std::size_t i, weight w) const {
        const auto of_block = static_cast<std::size_t>(block_weights);
        return i < static_cast<std::size_t>(shape_.blocks) * of_block && i % of_block == static_cast<std::size_t>(w);
    }
    std::pair<Eigen::Index, Eigen::Index> whole_size(std::size_t i) const {
        const Eigen::Index d = shape_.width, f = shape_.hidden;
        const auto blocks = static_cast<std::size_t>(shape_.blocks * block_weights);
        if (i == blocks + embedding) return {d, shape_.vocabulary};
        if (i == blocks + position) return {d, shape_.length};
        if (i == blocks + unembedding) return {shape_.vocabulary, d};
        if (in_block(i, qkv)) return {3 * d, d};
        if (in_block(i, qkv_bias)) return {3 * d, 1};
        if (in_block(i, project)) return {d, d};
        if (in_block(i, up)) return {f, d};
        if (in_block(i, up_bias)) return {f, 1};
        if (in_block(i, down)) return {d, f};
        return {d, 1};
    }
    matrix& of(std::vector<matrix>& all, int b, weight w) {
        return all[static_cast<std::size_t>(b * block_weights + w)];
    }
    const matrix& value(int b, weight w) { return of(weights, b, w); }
    matrix& gradient(int b, weight w) { return of(gradients, b, w); }
    matrix& end(std::vector<matrix>& all, end_weight w) {
        return all[static_cast<std::size_t>(shape_.blocks * block_weights + w)];
    }

    // The first and the last layer, of this rank's tokens.
    static std::size_t at(int i) { return static_cast<std::size_t>(i); }
    template <class F>
    void each_token(F f) const {  // f(column, place in the text, place in the sequence)
        const auto [offset, size] = group_.tokens();
        for (int c = 0; c < static_cast<int>(size); ++c) {
            const int token = static_cast<int>(offset) + c, b = token / shape_.length, t = token % shape_.length;
            f(c, at(b * (shape_.length + 1) + t), t);
        }
    }
    matrix embed(std::span<const std::uint8_t> text) {
        matrix x(shape_.width, static_cast<Eigen::Index>(group_.tokens().size));
        each_token([&](int c, std::size_t place, int t) {
            x.col(c) = end(weights, embedding).col(text[place]) + end(weights, position).col(t);
        });
        return x;
    }
    double predict(std::span<const std::uint8_t> text, const matrix& x, double total, matrix& delta) {
        const matrix& last = end(weights, unembedding);
        matrix p = last * x;
        double loss = 0;
        each_token([&](int c, std::size_t place, int) {
            p.col(c) = (p.col(c).array() - p.col(c).maxCoeff()).exp();
            p.col(c) /= p.col(c).sum();
            loss -= std::log(p(text[place + 1], c)) / total;
            p(text[place + 1], c) -= 1;
        });
        p /= total;
        end(gradients, unembedding) = p * x.transpose();
        delta = last.transpose() * p;
        return loss;
    }
    void unembed(std::span<const std::uint8_t> text, const matrix& delta) {
        end(gradients, embedding).setZero();
        end(gradients, position).setZero();
        each_token([&](int c, std::size_t place, int t) {
            end(gradients, embedding).col(text[place]) += delta.col(c);
            end(gradients, position).col(t) += delta.col(c);
        });
    }

    // example-begin block
    /// A block, from the residual stream of this rank's tokens to the same after it.
    matrix forward(int b, const matrix& x, saved_block& saved) {
        const matrix y1 = norm(x, value(b, norm1_scale), value(b, norm1_shift));
        const matrix in1 = group_.enter(y1);
        const matrix z = (value(b, qkv) * in1).colwise() + value(b, qkv_bias).col(0);  // this rank's heads
        matrix probabilities;
        const matrix context = attention(z, probabilities);
        const matrix r = x + (group_.leave(value(b, project) * context).colwise() + value(b, project_bias).col(0));

        const matrix y2 = norm(r, value(b, norm2_scale), value(b, norm2_shift));
        const matrix in2 = group_.enter(y2);
        const matrix u = (value(b, up) * in2).colwise() + value(b, up_bias).col(0);  // this rank's hidden units
        const matrix g = u.unaryExpr([](double v) { return v * normal_distribution(v); });
        const bool whole = group_.keeps_inputs();
        saved = {keep(x), keep(whole ? in1 : y1), keep(z), keep(probabilities), keep(context), keep(r),
            keep(whole ? in2 : y2), keep(u), keep(g)};
        return r + (group_.leave(value(b, down) * g).colwise() + value(b, down_bias).col(0));
    }
    /// From the gradient by the block's output to that by its input.
    matrix backward(int b, const matrix& delta, const saved_block& saved) {
        const matrix all = group_.leave_backward(delta), u = saved.hidden_in.get();
        gradient(b, down) = all * saved.hidden_out.get().transpose();
        gradient(b, down_bias) = delta.rowwise().sum();
        const matrix du = (value(b, down).transpose() * all).cwiseProduct(u.unaryExpr([](double v) {
            return normal_distribution(v) + v * std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
        }));
        gradient(b, up) = du * input(saved.y2).transpose();
        gradient(b, up_bias) = du.rowwise().sum();
        const matrix dy2 = group_.enter_backward(value(b, up).transpose() * du);
        const matrix dr = delta + norm_backward(dy2, saved.r.get(), b, norm2_scale, norm2_shift);

        const matrix all_r = group_.leave_backward(dr);
        gradient(b, project) = all_r * saved.context.get().transpose();
        gradient(b, project_bias) = dr.rowwise().sum();
        const matrix dz =
            attention_backward(value(b, project).transpose() * all_r, saved.qkv.get(), saved.probabilities.get());
        gradient(b, qkv) = dz * input(saved.y1).transpose();
        gradient(b, qkv_bias) = dz.rowwise().sum();
        const matrix dy1 = group_.enter_backward(value(b, qkv).transpose() * dz);
        return dr + norm_backward(dy1, saved.x.get(), b, norm1_scale, norm1_shift);
    }
    // example-end
    kept keep(const matrix& m) { return {memory_, m}; }
    /// The input of a column-parallel layer, of all tokens.
    matrix input(const kept& y) { return group_.keeps_inputs() ? y.get() : group_.enter(y.get()); }

    static double normal_distribution(double v) { return 0.5 * std::erfc(-v / std::numbers::sqrt2); }

    // Layer normalisation of each column.
    static constexpr double epsilon = 1e-5;
    static matrix standardised(const matrix& x, Eigen::RowVectorXd& deviation) {
        const matrix centred = x.rowwise() - x.colwise().mean();
        deviation = (centred.cwiseAbs2().colwise().mean().array() + epsilon).sqrt();
        return centred.array().rowwise() / deviation.array();
    }
    static matrix norm(const matrix& x, const matrix& scale, const matrix& shift) {
        Eigen::RowVectorXd deviation;
        return (standardised(x, deviation).array().colwise() * scale.col(0).array()).matrix().colwise() + shift.col(0);
    }
    matrix norm_backward(const matrix& dy, const matrix& x, int b, weight scale, weight shift) {
        Eigen::RowVectorXd deviation;
        const matrix s = standardised(x, deviation);
        gradient(b, scale) = dy.cwiseProduct(s).rowwise().sum();
        gradient(b, shift) = dy.rowwise().sum();
        const matrix ds = dy.array().colwise() * value(b, scale).col(0).array();
        const Eigen::RowVectorXd mean = ds.colwise().mean(), along = ds.cwiseProduct(s).colwise().mean();
        matrix dx = ds.rowwise() - mean;
        dx -= (s.array().rowwise() * along.array()).matrix();
        return dx.array().rowwise() / deviation.array();
    }

    /// Calls f(rows of q, sequence's first column, columns of this head and sequence among the probabilities).
    template <class F>
    void each_head(F f) const {
        Eigen::Index pair = 0;
        for (Eigen::Index h = 0; h < static_cast<Eigen::Index>(group_.heads.size); ++h)
            for (Eigen::Index b = 0; b < batch_; ++b, ++pair)
                f(h * shape_.head_width(), b * shape_.length, pair * shape_.length);
    }
    /// Causal attention: column t of a head's probabilities is over the tokens 0 to t of its sequence.
    matrix attention(const matrix& z, matrix& probabilities) const {
        const Eigen::Index w = shape_.head_width(), s = shape_.length;
        probabilities.setZero(s, static_cast<Eigen::Index>(group_.heads.size) * batch_ * s);
        matrix context(static_cast<Eigen::Index>(group_.heads.size) * w, z.cols());
        each_head([&](Eigen::Index row, Eigen::Index column, Eigen::Index at) {
            const auto q = z.block(3 * row, column, w, s), k = z.block(3 * row + w, column, w, s),
                       v = z.block(3 * row + 2 * w, column, w, s);
            auto p = probabilities.middleCols(at, s);
            p.noalias() = k.transpose() * q / std::sqrt(static_cast<double>(w));
            for (Eigen::Index t = 0; t < s; ++t) {
                auto seen = p.col(t).head(t + 1);
                seen = (seen.array() - seen.maxCoeff()).exp();
                seen /= seen.sum();
                p.col(t).tail(s - t - 1).setZero();
            }
            context.block(row, column, w, s).noalias() = v * p;
        });
        return context;
    }
    matrix attention_backward(const matrix& dcontext, const matrix& z, const matrix& probabilities) const {
        const Eigen::Index w = shape_.head_width(), s = shape_.length;
        matrix dz(z.rows(), z.cols());
        each_head([&](Eigen::Index row, Eigen::Index column, Eigen::Index at) {
            const auto q = z.block(3 * row, column, w, s), k = z.block(3 * row + w, column, w, s),
                       v = z.block(3 * row + 2 * w, column, w, s), dc = dcontext.block(row, column, w, s);
            const auto p = probabilities.middleCols(at, s);
            const matrix dp = v.transpose() * dc;
            const Eigen::RowVectorXd along = p.cwiseProduct(dp).colwise().sum();
            const matrix ds = p.cwiseProduct(matrix(dp.rowwise() - along)) / std::sqrt(static_cast<double>(w));
            dz.block(3 * row, column, w, s).noalias() = k * ds;
            dz.block(3 * row + w, column, w, s).noalias() = q * ds.transpose();
            dz.block(3 * row + 2 * w, column, w, s).noalias() = dc * p.transpose();
        });
        return dz;
    }

    /// Where tokens are cut, the gradients of the weights that every rank has whole are parts of a sum.
    void sum_replicated() {
        std::vector<double> all;
        std::vector<matrix*> replicated;
        for (std::size_t i = 0; i < size(); ++i)
            if (cut_of(i).along == cut::nothing) replicated.push_back(&gradients[i]);
        for (matrix* m : replicated) all.insert(all.end(), m->data(), m->data() + m->size());
        colls::all_reduce(group_.comm, all, colls::sum);
        const double* from = all.data();
        for (matrix* m : replicated) {
            std::copy(from, from + m->size(), m->data());
            from += m->size();
        }
    }

    transformer_shape shape_;
    int batch_;
    tensor_group group_;
    memory_account memory_;
};

}  // namespace example
