// Summing gradients over the ranks while back-propagation still runs.
#pragma once

#include <colls/colls.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace example {

using seconds = std::chrono::duration<double>;
using stopwatch = std::chrono::steady_clock;

/// Starts the sum over all ranks of one bucket, in place.
template <class Comm, class T>
using starter = colls::operation (*)(Comm&, std::span<T>);

/// Cuts a gradient into buckets, from its end (back-propagation finishes it from there), and sums each over the ranks
/// as soon as it is complete.
template <class Comm, class T>
class gradient_exchange {
public:
    gradient_exchange(Comm& comm, std::span<T> gradient, std::size_t bucket_bytes, starter<Comm, T> start)
        : comm_(comm),
          gradient_(gradient),
          bucket_(std::max<std::size_t>(1, bucket_bytes / sizeof(T))),
          start_(start),
          unsent_(gradient.size()) {}

    std::size_t bucket() const { return bucket_; }
    std::size_t buckets() const { return (gradient_.size() + bucket_ - 1) / bucket_; }

    // example-begin overlap
    /// All of the gradient from `offset` on is final: starts the buckets that became complete.
    void ready(std::size_t offset) {
        const auto begin = stopwatch::now();
        while (unsent_ > offset && (unsent_ - offset >= bucket_ || offset == 0)) {
            const std::size_t count = std::min(bucket_, unsent_);
            unsent_ -= count;
            in_flight_.push_back(start_(comm_, gradient_.subspan(unsent_, count)));
        }
        for (colls::operation& sum : in_flight_) sum.test();  // lets it progress
        spent_ += stopwatch::now() - begin;
    }

    /// Waits until the whole gradient is summed.
    void finish() {
        const auto begin = stopwatch::now();
        for (colls::operation& sum : in_flight_) sum.wait();
        in_flight_.clear();
        unsent_ = gradient_.size();
        spent_ += stopwatch::now() - begin;
    }
    // example-end

    /// Time spent in ready() and finish() so far: what communication costs the training loop.
    seconds spent() const { return spent_; }

private:
    Comm& comm_;
    std::span<T> gradient_;
    std::size_t bucket_;
    starter<Comm, T> start_;
    std::size_t unsent_;
    std::vector<colls::operation> in_flight_;
    seconds spent_{};
};

}  // namespace example
