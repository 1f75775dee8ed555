// A table of rows with Adagrad, in one piece and spread over the ranks.
#pragma once

#include <colls/patterns/token_exchange.hpp>

#include <fmt/format.h>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace example {

using matrix = Eigen::MatrixXd;
using column = Eigen::VectorXd;

inline std::span<double> numbers(matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }

/// A number that follows from its arguments alone (splitmix64), so that every rank computes the same.
inline std::uint64_t hash_of(std::uint64_t a, std::uint64_t b) {
    std::uint64_t z = a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u + 0x8cb92ba72f3d8dd7u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
inline column initial_row(std::uint64_t seed, int id, int width) {
    column row(width);
    for (int k = 0; k < width; ++k)
        row(k) = (static_cast<double>(
                      hash_of(hash_of(seed, static_cast<std::uint64_t>(id)), static_cast<std::uint64_t>(k)) >> 11) *
                         0x1p-53 -
                     0.5) /
                 width;
    return row;
}

/// Rows with Adagrad (Duchi et al. 2011). It divides by the root of all squared gradients of the past, so the gradients
/// of a row must be summed before they are applied, wherever they come from.
struct adagrad_rows {
    matrix rows, squares;  // one column a row of the table

    void update(int at, const column& gradient, double rate) {
        squares.col(at) += gradient.cwiseAbs2();
        rows.col(at).array() -= rate * gradient.array() / (squares.col(at).array().sqrt() + 1e-8);
    }
};

/// The table in one piece, for comparison.
class whole_embedding {
public:
    whole_embedding(int vocabulary, int width, std::uint64_t seed) {
        table.rows.resize(width, vocabulary);
        for (int id = 0; id < vocabulary; ++id) table.rows.col(id) = initial_row(seed, id, width);
        table.squares = matrix::Zero(width, vocabulary);
    }
    matrix lookup(std::span<const int> ids) {
        ids_.assign(ids.begin(), ids.end());
        return table.rows(Eigen::all, ids_);
    }
    void update(const matrix& gradient, double rate) {
        std::map<int, column> sums;
        for (std::size_t i = 0; i < ids_.size(); ++i) {
            auto [sum, first] = sums.try_emplace(ids_[i], column::Zero(gradient.rows()));
            sum->second += gradient.col(static_cast<Eigen::Index>(i));
        }
        for (const auto& [id, sum] : sums) table.update(id, sum, rate);
    }
    adagrad_rows table;

private:
    std::vector<int> ids_;
};

/// The table over the ranks: rank id % n has row id, at place id / n. Frequent words have low ids, so that all ranks
/// have some.
class sharded_embedding {
public:
    /// `unique`: whether each different id of a lookup is sent once.
    sharded_embedding(colls::communicator& comm, int vocabulary, int width, std::uint64_t seed, bool unique = true)
        : comm_(comm), vocabulary_(vocabulary), width_(width), unique_(unique) {
        const int n = comm.size();
        table.rows.resize(width, (vocabulary - comm.rank() + n - 1) / n);
        for (Eigen::Index at = 0; at < table.rows.cols(); ++at)
            table.rows.col(at) = initial_row(seed, static_cast<int>(at) * n + comm.rank(), width);
        table.squares = matrix::Zero(width, table.rows.cols());
    }

    // example-begin lookup
    /// Collective: the rows of these ids, one column each. Throws on all ranks where one has an id out of range.
    matrix lookup(std::span<const int> ids) {
        sent_.assign(ids.begin(), ids.end());
        if (unique_) {
            std::ranges::sort(sent_);
            sent_.erase(std::unique(sent_.begin(), sent_.end()), sent_.end());
        }
        place_.resize(ids.size());
        for (std::size_t i = 0; i < ids.size(); ++i)
            place_[i] = unique_ ? std::ranges::lower_bound(sent_, ids[i]) - sent_.begin() : static_cast<long>(i);
        std::string refusal;
        std::vector<int> owners;
        for (const int id : sent_) {
            if (id < 0 || id >= vocabulary_)
                refusal = fmt::format("id {} is out of range: the table has rows 0 to {}", id, vocabulary_ - 1);
            owners.push_back(id % comm_.size());
        }
        exchange_.emplace(comm_, owners, refusal);

        asked_.resize(exchange_->received());
        exchange_->dispatch(sent_, asked_, 1);
        for (int& id : asked_) id /= comm_.size();  // its place here
        matrix answers = table.rows(Eigen::all, asked_), rows(width_, std::ssize(sent_));
        exchange_->collect(numbers(answers), numbers(rows), static_cast<std::size_t>(width_));
        return rows(Eigen::all, place_);
    }
    // example-end

    // example-begin update
    /// Collective: takes the gradients of the rows of the last lookup to their owners, which sum and apply them: first
    /// each rank its own, in the order of its ids, then the owner those of all ranks, in rank order.
    void update(const matrix& gradient, double rate) {
        matrix own = matrix::Zero(width_, std::ssize(sent_)), all(width_, std::ssize(asked_));
        for (std::size_t i = 0; i < place_.size(); ++i)
            own.col(place_[i]) += gradient.col(static_cast<Eigen::Index>(i));
        exchange_->dispatch(numbers(own), numbers(all), static_cast<std::size_t>(width_));
        std::map<int, column> sums;
        for (std::size_t i = 0; i < asked_.size(); ++i) {
            auto [sum, first] = sums.try_emplace(asked_[i], column::Zero(width_));
            sum->second += all.col(static_cast<Eigen::Index>(i));
        }
        for (const auto& [at, sum] : sums) table.update(at, sum, rate);
    }
    // example-end

    /// Bytes that the last lookup and its update sent to other ranks.
    double bytes() const {
        const std::size_t to_itself = exchange_->sent_counts()[static_cast<std::size_t>(comm_.rank())];
        const double ids = static_cast<double>(exchange_->sent() - to_itself);
        const double rows = static_cast<double>(exchange_->received() - to_itself);
        return ids * sizeof(int) + (rows + ids) * width_ * sizeof(double);
    }
    std::size_t ids_sent() const { return sent_.size(); }

    adagrad_rows table;

private:
    colls::communicator& comm_;
    int vocabulary_, width_;
    bool unique_;
    std::vector<int> sent_, asked_;  // ids that this rank asks for; places here that ranks ask for
    std::vector<long> place_;        // of each id of the lookup in sent_
    std::optional<colls::token_exchange> exchange_;
};

}  // namespace example
