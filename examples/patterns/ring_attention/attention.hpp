// Attention of some tokens to others, tile by tile, forward and backward; and all at once, for comparison.
//
// Each column of a matrix is a token, and its rows are those of head 0, of head 1, and so on.
#pragma once

#include <colls/blocks.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace example {

using matrix = Eigen::MatrixXd;

struct attention_shape {
    int heads, size;  // size: numbers a head
    bool causal;      // a token sees itself and those before it
    int rows() const { return heads * size; }
    double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
};

/// Consecutive tokens of a shard.
struct piece {
    Eigen::Index position, column, count;  // in the sequence, in the shard
};

/// The tokens of a rank, cut into pieces of at most 32. Contiguous: one block of the sequence. Zigzag: blocks r and
/// 2n - 1 - r of 2n, so that with a causal mask all ranks have about the same work (Brandon et al. 2023).
inline std::vector<piece> shard_of(Eigen::Index tokens, int n, int rank, bool zigzag) {
    std::vector<piece> pieces;
    Eigen::Index column = 0;
    const int parts = zigzag ? 2 * n : n;
    for (const int part : {rank, parts - 1 - rank}) {
        const auto block = colls::block_of(static_cast<std::size_t>(tokens), parts, part);
        const auto size = static_cast<Eigen::Index>(block.size);
        for (Eigen::Index at = 0; at < size; at += 32) {
            pieces.push_back(
                {static_cast<Eigen::Index>(block.offset) + at, column, std::min<Eigen::Index>(32, size - at)});
            column += pieces.back().count;
        }
        if (!zigzag) break;
    }
    return pieces;
}
inline Eigen::Index tokens_of(const std::vector<piece>& shard) {
    return shard.empty() ? 0 : shard.back().column + shard.back().count;
}

/// Whether no query of q sees a key of k, so that the tile is left out.
inline bool unseen(const attention_shape& s, const piece& q, const piece& k) {
    return s.causal && k.position > q.position + q.count - 1;
}
/// The scores of one tile, a column a query; those that the mask hides are minus infinity.
inline matrix scores(const attention_shape& s, const auto& queries, const auto& keys, const piece& q, const piece& k) {
    matrix score = s.scale() * keys.transpose() * queries;
    for (Eigen::Index j = 0; s.causal && j < q.count; ++j)
        for (Eigen::Index i = std::max<Eigen::Index>(0, q.position + j - k.position + 1); i < k.count; ++i)
            score(i, j) = -std::numeric_limits<double>::infinity();
    return score;
}

/// Attention of the queries of one shard to the keys and values of one shard after the other, by the online softmax
/// (Milakov and Gimelshein 2018): output so far, largest score so far, and sum of exp(score - largest) so far.
class attention {
private:
    static auto head_of(auto& m, int size, Eigen::Index h, const piece& p) {
        return m.block(h * size, p.column, size, p.count);
    }
    auto head(const matrix& m, Eigen::Index h, const piece& p) const { return head_of(m, shape.size, h, p); }
    auto head(matrix& m, Eigen::Index h, const piece& p) const { return head_of(m, shape.size, h, p); }

public:
    attention(const attention_shape& s, const matrix& q, const std::vector<piece>& shard)
        : shape(s),
          q_(q),
          shard_(shard),
          output(matrix::Zero(s.rows(), q.cols())),
          largest_(matrix::Constant(s.heads, q.cols(), -std::numeric_limits<double>::infinity())),
          sum_(matrix::Zero(s.heads, q.cols())) {}

    // example-begin forward
    /// Adds keys and values: rows() rows of keys, then rows() rows of values. Calls `between` after each tile.
    void forward(const matrix& kv, const std::vector<piece>& keys, const std::function<void()>& between) {
        for_each_tile(keys, [&](Eigen::Index h, const piece& q, const piece& k) {
            const auto values = kv.block(shape.rows() + h * shape.size, k.column, shape.size, k.count);
            matrix p = scores(shape, head(q_, h, q), head(kv, h, k), q, k);
            for (Eigen::Index j = 0; j < q.count; ++j) {
                double &top = largest_(h, q.column + j), &sum = sum_(h, q.column + j);
                const double before = std::exchange(top, std::max(top, p.col(j).maxCoeff()));
                if (std::isinf(top)) continue;  // it sees no key yet
                p.col(j) = (p.col(j).array() - top).exp();
                const double scale = std::exp(before - top);
                sum = sum * scale + p.col(j).sum();
                auto out = head(output, h, q).col(j);
                out = out * scale + values * p.col(j);
            }
            between();
        });
    }
    // example-end
    /// After the last keys: output becomes the result.
    void finish() {
        for (Eigen::Index h = 0; h < shape.heads; ++h)
            output.middleRows(h * shape.size, shape.size).array().rowwise() /= sum_.row(h).array();
    }

    /// From the gradient of the output: what the backward passes need.
    void begin_backward(const matrix& gradient) {
        gradient_ = gradient;
        dq = matrix::Zero(output.rows(), output.cols());
        along_.resize(shape.heads, output.cols());
        for (Eigen::Index h = 0; h < shape.heads; ++h)
            along_.row(h) = gradient.cwiseProduct(output).middleRows(h * shape.size, shape.size).colwise().sum();
    }
    /// Adds to dq, and to the gradient of these keys and values.
    void backward(const matrix& kv, const std::vector<piece>& keys, matrix& dkv, const std::function<void()>& between) {
        for_each_tile(keys, [&](Eigen::Index h, const piece& q, const piece& k) {
            const Eigen::Index value_row = shape.rows() + h * shape.size;
            const auto values = kv.block(value_row, k.column, shape.size, k.count);
            const auto dout = head(gradient_, h, q);
            const auto of_queries = [&](const matrix& m) {
                return m.block(h, q.column, 1, q.count).replicate(k.count, 1).array();
            };
            const matrix p =
                ((scores(shape, head(q_, h, q), head(kv, h, k), q, k).array() - of_queries(largest_)).exp() /
                    of_queries(sum_))
                    .matrix();
            const matrix ds =
                shape.scale() * (p.array() * ((values.transpose() * dout).array() - of_queries(along_))).matrix();
            dkv.block(value_row, k.column, shape.size, k.count) += dout * p.transpose();
            head(dkv, h, k) += head(q_, h, q) * ds.transpose();
            head(dq, h, q) += head(kv, h, k) * ds;
            between();
        });
    }

    attention_shape shape;

private:
    template <class Tile>
    void for_each_tile(const std::vector<piece>& keys, Tile tile) {
        for (const piece& k : keys)
            for (const piece& q : shard_) {
                if (unseen(shape, q, k)) continue;
                for (Eigen::Index h = 0; h < shape.heads; ++h) tile(h, q, k);
                work += static_cast<double>(q.count * k.count);
            }
    }
    const matrix& q_;
    std::vector<piece> shard_;

public:
    matrix output, dq;
    double work = 0;  // pairs of query and key computed, forward and backward

private:
    matrix largest_, sum_, along_, gradient_;
};

/// All at once on one rank, with the whole matrix of scores: output, and the gradients of queries and of keys and
/// values.
struct whole_attention {
    matrix output, dq, dkv;

    whole_attention(const attention_shape& s, const matrix& q, const matrix& kv, const matrix& gradient)
        : output(q.rows(), q.cols()), dq(q.rows(), q.cols()), dkv(kv.rows(), kv.cols()) {
        for (Eigen::Index h = 0; h < s.heads; ++h) {
            const auto rows = [&](auto& m, Eigen::Index from = 0) { return m.middleRows(from + h * s.size, s.size); };
            matrix p = s.scale() * rows(kv).transpose() * rows(q);
            for (Eigen::Index j = 0; s.causal && j < p.cols(); ++j)
                p.col(j).tail(p.rows() - 1 - j).setConstant(-std::numeric_limits<double>::infinity());
            for (auto column : p.colwise()) {
                column = (column.array() - column.maxCoeff()).exp();
                column /= column.sum();
            }
            rows(output) = rows(kv, s.rows()) * p;
            matrix ds = rows(kv, s.rows()).transpose() * rows(gradient);
            for (Eigen::Index j = 0; j < ds.cols(); ++j)
                ds.col(j) = s.scale() * p.col(j).cwiseProduct((ds.col(j).array() - p.col(j).dot(ds.col(j))).matrix());
            rows(dkv, s.rows()) = rows(gradient) * p.transpose();
            rows(dkv) = rows(q) * ds.transpose();
            rows(dq) = rows(kv) * ds;
        }
    }
};

}  // namespace example
