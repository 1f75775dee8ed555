// Ulysses (Jacobs et al. 2023): attention with all tokens of some heads on each rank.
#pragma once

#include "shards.hpp"

#include <colls/collectives.hpp>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace example {

/// Ulysses: all tokens of some heads on each rank. Tokens are contiguous blocks of the sequence.
class ulysses {
public:
    ulysses(colls::communicator& comm, const attention_shape& shape, Eigen::Index sequence)
        : comm_(comm), shape_(shape), sequence_(sequence), mine_(shape) {
        mine_.heads = static_cast<int>(heads_of(comm.rank()).size);
    }

    result run(const tokens& own) {
        result r;
        matrix stacked(3 * own.q.rows(), own.q.cols());
        stacked << own.q, own.kv;
        const matrix all = to_heads(stacked, 3, r), q = all.topRows(mine_.rows()),
                     kv = all.bottomRows(2 * mine_.rows());
        const std::vector<piece> everything = shard_of(sequence_, 1, 0, false);
        attention here(mine_, q, everything);
        here.forward(kv, everything, [] {});
        here.finish();
        r.output = to_tokens(here.output, 1, r);

        here.begin_backward(to_heads(own.gradient, 1, r));
        matrix dkv = matrix::Zero(kv.rows(), kv.cols()), gradients(3 * mine_.rows(), sequence_);
        here.backward(kv, everything, dkv, [] {});
        gradients << here.dq, dkv;
        const matrix back = to_tokens(gradients, 3, r);
        r.dq = back.topRows(own.q.rows()), r.dkv = back.bottomRows(own.kv.rows());
        r.work = here.work * mine_.heads / shape_.heads;
        r.held = static_cast<double>(2 * all.size() + gradients.size() + dkv.size());
        return r;
    }

private:
    colls::buffer_block heads_of(int rank) const {
        return colls::block_of(static_cast<std::size_t>(shape_.heads), comm_.size(), rank);
    }
    Eigen::Index tokens_at(int rank) const {
        return static_cast<Eigen::Index>(colls::block_of(static_cast<std::size_t>(sequence_), comm_.size(), rank).size);
    }
    /// Elements that this rank has of the heads of each rank, and of the tokens of each rank for its own heads.
    std::pair<std::vector<Eigen::Index>, std::vector<Eigen::Index>> counts(int parts) const {
        std::pair<std::vector<Eigen::Index>, std::vector<Eigen::Index>> c;
        for (int r = 0; r < comm_.size(); ++r) {
            c.first.push_back(
                parts * static_cast<Eigen::Index>(heads_of(r).size) * shape_.size * tokens_at(comm_.rank()));
            c.second.push_back(parts * mine_.rows() * tokens_at(r));
        }
        return c;
    }
    /// Calls f(block, rows) for each part of each rank's heads: the rows in a matrix of all heads, and the rows in the
    /// block for or from that rank, within `packed`.
    template <class F>
    void for_blocks(std::vector<double>& packed, Eigen::Index columns, int parts, F f) const {
        double* at = packed.data();
        for (int r = 0; r < comm_.size(); ++r) {
            const auto [offset, size] = heads_of(r);
            const Eigen::Index first = static_cast<Eigen::Index>(offset) * shape_.size,
                               rows = static_cast<Eigen::Index>(size) * shape_.size;
            Eigen::Map<matrix> block(at, parts * rows, columns);
            for (int part = 0; part < parts; ++part)
                f(block.middleRows(part * rows, rows), Eigen::seqN(part * shape_.rows() + first, rows));
            at += block.size();
        }
    }
    void exchange(std::span<double> in, std::span<double> out, const std::vector<Eigen::Index>& sent,
        const std::vector<Eigen::Index>& received, result& r) {
        const auto begin = stopwatch::now();
        colls::all_to_all_v(comm_, in, out, sent, received);
        r.waited += seconds_since(begin);
        r.sent +=
            static_cast<double>(in.size() - static_cast<std::size_t>(sent[static_cast<std::size_t>(comm_.rank())])) *
            sizeof(double);
    }

    // example-begin ulysses
    /// From the rows of all heads of own tokens to those of own heads of all tokens, `parts` of them over one another.
    matrix to_heads(const matrix& own, int parts, result& r) {
        const auto [by_heads, by_tokens] = counts(parts);
        std::vector<double> packed(static_cast<std::size_t>(own.size()));
        for_blocks(packed, own.cols(), parts, [&](auto block, auto rows) { block = own(rows, Eigen::all); });
        matrix all(parts * mine_.rows(), sequence_);
        exchange(packed, numbers(all), by_heads, by_tokens, r);
        return all;
    }
    /// The way back.
    matrix to_tokens(matrix all, int parts, result& r) {
        const auto [by_heads, by_tokens] = counts(parts);
        matrix own(parts * shape_.rows(), tokens_at(comm_.rank()));
        std::vector<double> packed(static_cast<std::size_t>(own.size()));
        exchange(numbers(all), packed, by_tokens, by_heads, r);
        for_blocks(packed, own.cols(), parts, [&](auto block, auto rows) { own(rows, Eigen::all) = block; });
        return own;
    }
    // example-end
    colls::communicator& comm_;
    attention_shape shape_;
    Eigen::Index sequence_;
    attention_shape mine_;  // that of the heads of this rank
};

}  // namespace example
