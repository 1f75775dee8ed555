// Data-parallel training of a small network on Fashion-MNIST: each rank computes the gradient of its shard of a batch,
// the gradients are summed bucket by bucket while back-propagation still runs, and every rank makes the same update.
#include "data.hpp"
#include "exchange.hpp"
#include "methods.hpp"
#include "network.hpp"
#include "train.hpp"

#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace example;

/// One line that is rewritten on a terminal; elsewhere a line now and then.
class progress_line {
public:
    progress_line(const settings& how, int steps) : how_(how), steps_(steps) {}

    void operator()(const state& now) {
        ++done_;
        samples_ += now.samples;
        const auto time = stopwatch::now();
        const bool last = done_ == steps_, epoch_ends = now.step + 1 == now.steps_an_epoch;
        if (!last && !(terminal_ ? epoch_ends || time - shown_ > std::chrono::milliseconds(100) : epoch_ends)) return;
        shown_ = time;
        const double rate = static_cast<double>(samples_) / seconds(time - begin_).count();
        fmt::print("{}epoch {}/{}  batch {:>3}/{}  loss {:.4f}  {:>7.0f} images/s{}", terminal_ ? "\r" : "", now.epoch + 1,
                   how_.epochs, now.step + 1, now.steps_an_epoch, now.loss, rate,
                   !terminal_ || epoch_ends || last ? "\n" : "");
        std::fflush(stdout);
    }

private:
    const settings& how_;
    int steps_, done_ = 0;
    long samples_ = 0;
    bool terminal_ = isatty(STDOUT_FILENO) != 0;
    stopwatch::time_point begin_ = stopwatch::now(), shown_{};
};

/// What a schedule promises for one gradient, and what it does.
struct table_row {
    std::string name, proof;
    int rounds = 0;
    double bytes_sent = 0, predicted = 0, measured = 0;  // per step: bytes, seconds
    bool chosen = false;
};

struct outcome {
    double seconds_a_step = 0, waited_a_step = 0, accuracy = 0;
    std::size_t buckets = 0, bytes = 0;
    bool identical = false;
    std::vector<table_row> rows;
};

/// FNV-1a of the bit patterns.
std::uint64_t hash_of(std::span<const float> numbers) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::byte b : std::as_bytes(numbers)) hash = (hash ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
    return hash;
}

template <class Comm>
bool same_on_every_rank(Comm& comm, std::span<const float> weights) {
    const std::uint64_t own = hash_of(weights);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()));
    colls::all_gather(comm, std::span(&own, 1), all);
    return std::ranges::all_of(all, [&](std::uint64_t hash) { return hash == own; });
}

/// Predicts one step's exchange, and times it with nothing else running (the median of several).
template <class Comm>
table_row measure(Comm& comm, const method<Comm>& m, const settings& how, std::span<float> gradient) {
    table_row row{.name = std::string(m.name), .proof = m.prove(comm.size()).text()};
    const colls::cost cost = m.cost(comm.size());
    gradient_exchange<Comm, float> exchange(comm, gradient, how.bucket_bytes, m.start);
    row.rounds = cost.rounds;
    const double blocks = colls::blocks_of(colls::schedule_for<colls::ring, colls::collective::all_reduce>{}, comm.size());
    (void)blocks;
    std::ranges::fill(gradient, 0.0f);
    std::vector<double> times;
    for (int i = 0; i < 40; ++i) {
        colls::barrier(comm);
        const auto begin = stopwatch::now();
        exchange.ready(0);
        exchange.finish();
        times.push_back(seconds(stopwatch::now() - begin).count());
    }
    std::ranges::nth_element(times, times.begin() + 20);
    row.measured = times[20];
    return row;
}

}  // namespace
