// One rank's part in the training: its shard of every batch, and the update, which is the same on every rank.
#pragma once

#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"

#include <colls/colls.hpp>
#include <colls/patterns/gradient_buckets.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace example {

using seconds = std::chrono::duration<double>;
using stopwatch = std::chrono::steady_clock;

struct settings {
    int ranks = 4, epochs = 6, batch = 256;
    std::size_t bucket_bytes = 256 * 1024;
    std::uint64_t seed = 1;
    std::vector<int> widths{784, 256, 128, 10};
    double learning_rate = 0.1, momentum = 0.9;
    bool pin = false;
};

/// Progress of a training run; `loss` is the mean over this rank's shards since the epoch began.
struct state {
    int epoch, step, steps_an_epoch, samples;
    double loss;
    seconds exchange;  // in all steps so far: what communication costs the training loop
};

/// Ranks share each batch; the last batch of an epoch may be short, and shards may differ by one sample.
inline std::span<const int> shard(std::span<const int> batch, int rank, int ranks) {
    const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(ranks);
    const std::size_t begin = batch.size() * r / n, end = batch.size() * (r + 1) / n;
    return batch.subspan(begin, end - begin);
}

/// Trains for `steps` steps (the learning rate falls linearly to 0 over them). The order of the samples depends on the
/// seed alone, so that any number of ranks goes through the same batches. `exchange` has net.gradients(panel).
/// `progress(state)` is called after each step.
template <class T>
void train(colls::communicator& comm, const settings& how, const dataset& data, int steps, network<T>& net,
    std::size_t panel, colls::gradient_buckets<T>& exchange, const std::function<void(const state&)>& progress) {
    std::vector<int> order(static_cast<std::size_t>(data.size()));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(how.seed);
    const int steps_an_epoch = (data.size() + how.batch - 1) / how.batch;
    state now{0, 0, steps_an_epoch, 0, 0, {}};
    double loss = 0;
    int seen = 0;
    std::vector<std::uint8_t> labels;
    typename network<T>::matrix images;
    const std::size_t gradients = net.gradients(panel).size();
    const auto timed = [&now](auto f) {
        const auto begin = stopwatch::now();
        f();
        now.exchange += stopwatch::now() - begin;
    };

    for (int step = 0; step < steps; ++step) {
        now.epoch = step / steps_an_epoch;
        now.step = step % steps_an_epoch;
        if (now.step == 0) {
            for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
            loss = seen = 0;
        }
        const auto first = static_cast<std::size_t>(now.step) * static_cast<std::size_t>(how.batch);
        const std::size_t size = std::min(order.size() - first, static_cast<std::size_t>(how.batch));
        const auto mine = shard(std::span(order).subspan(first, size), comm.rank(), comm.size());
        read_batch(data, mine, images);
        labels.clear();
        for (const int sample : mine) labels.push_back(data.labels[static_cast<std::size_t>(sample)]);

        // Each rank's gradient is its part of the gradient of the batch's mean loss: the sum over ranks is that
        // gradient. Back-propagation finishes the last gradient first.
        // example-begin overlap
        std::size_t next = gradients;
        loss += net.backward(images, labels, static_cast<int>(size), panel,
            [&](std::size_t) { timed([&] { exchange.ready(--next); }); });
        timed([&] { exchange.wait(); });
        // example-end
        const double left = 1.0 - static_cast<double>(step) / steps;
        net.update(static_cast<T>(how.learning_rate * left), static_cast<T>(how.momentum));

        seen += static_cast<int>(mine.size());
        now.samples = static_cast<int>(size);
        now.loss = loss / std::max(seen, 1);
        progress(now);
    }
}

/// The share of the test set that the network gets right, each rank testing a part.
template <class T>
double accuracy(colls::communicator& comm, network<T>& net, const dataset& test) {
    std::vector<int> all(static_cast<std::size_t>(test.size()));
    std::iota(all.begin(), all.end(), 0);
    const auto mine = shard(all, comm.rank(), comm.size());
    std::vector<std::uint8_t> labels;
    for (const int sample : mine) labels.push_back(test.labels[static_cast<std::size_t>(sample)]);
    long correct = mine.empty() ? 0 : net.count_correct(batch_of<T>(test, mine), labels);
    colls::all_reduce(comm, std::span(&correct, 1), colls::sum);
    return static_cast<double>(correct) / test.size();
}

}  // namespace example
