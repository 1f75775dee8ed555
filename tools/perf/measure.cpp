#include "measure.hpp"

#include "exchange.hpp"

#include <colls/operation.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace perf {

namespace {

constexpr double enough_seconds = 20e-3;
constexpr int usual_iterations = 20, most_iterations = 2000;

/// The iterations of a row: as many as -n says, or as many as take 20 ms.
int iterations_of(colls::communicator& comm, const options& o, const std::function<void()>& once) {
    if (o.iterations > 0) return o.iterations;
    constexpr int calls = 3;
    const double begin = seconds_now();
    for (int i = 0; i < calls; ++i) once();
    const double each = (seconds_now() - begin) / calls;
    return shared(
        comm, static_cast<int>(std::clamp(enough_seconds / each, 1.0 * usual_iterations, 1.0 * most_iterations)));
}

}  // namespace

void iterate(colls::communicator& comm, const trial& t, const element_type& type, const options& o,
    std::vector<colls::operation>& started) {
    if (o.aggregate == 1 && o.blocking != 0) return type.run(comm, t.calls().front());
    started.clear();
    for (const call& c : t.calls()) type.start(comm, c, started);
    colls::wait_all(started);
}

timing measure(colls::communicator& comm, trial& t, const element_type& type, const options& o) {
    std::vector<colls::operation> started;
    const auto once = [&] { iterate(comm, t, type, o, started); };
    t.fill(1);
    for (int i = 0; i < o.warmup; ++i) once();
    timing result;
    result.iterations = iterations_of(comm, o, once);
    const auto iterations = static_cast<std::size_t>(result.iterations);
    const double operations = o.aggregate;

    const bool apart = o.fresh || o.blocking == 3, each = o.percentiles || o.per_iteration || apart;
    std::vector<double> own(each ? iterations : 0);
    volatile std::uint64_t sink = 0;
    colls::barrier(comm);
    const double begin = seconds_now();
    double last = begin;
    for (std::size_t i = 0; i < iterations; ++i) {
        if (o.fresh) t.fill(i + 2);
        if (apart) {
            colls::barrier(comm);
            last = seconds_now();
        }
        once();
        if (o.blocking == 1) colls::barrier(comm);
        if (each) {
            const double end = seconds_now();
            own[i] = (end - last) / operations;
            last = end;
        }
        if (o.fresh) sink = sink + t.read();
    }
    const double mean = apart ? std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(iterations)
                              : (seconds_now() - begin) / (static_cast<double>(iterations) * operations);
    colls::barrier(comm);
    const std::vector<double> means = collect(comm, mean);
    if (comm.rank() == 0) result.seconds = over_ranks(means, o.average);
    if (o.percentiles || o.per_iteration) {
        const std::vector<double> all = collect(comm, std::span<const double>(own));
        for (std::size_t i = 0; i < all.size(); ++i)
            if (i < iterations)
                result.iteration.push_back(all[i]);
            else
                result.iteration[i % iterations] = std::max(result.iteration[i % iterations], all[i]);
    }
    return result;
}

double time_copies(colls::communicator& comm, buffer_pair& pair, std::size_t bytes) {
    const int copies = static_cast<int>(std::clamp<std::size_t>((std::size_t{256} << 10) / bytes, 1, 1000));
    std::byte* const to = pair.second.data();
    double least = 1e9;
    for (double spent = 0; spent < 2e-3;) {
        colls::barrier(comm);
        const double begin = seconds_now();
        for (int i = 0; i < copies; ++i) {
            std::memcpy(to, pair.first.data(), bytes);
            asm volatile("" : : "r"(to) : "memory");
        }
        const double took = seconds_now() - begin;
        least = std::min(least, took / copies);
        spent = shared(comm, spent + took);
    }
    return over_ranks(collect(comm, least), 1);
}

double over_ranks(const std::vector<double>& all, int average) {
    if (all.empty()) return 0;
    switch (average) {
        case 0:
            return all[0];
        case 1:
            return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
        case 2:
            return *std::ranges::min_element(all);
        default:
            return *std::ranges::max_element(all);
    }
}

double percentile(std::vector<double> values, double p) {
    const auto place = static_cast<std::size_t>(std::ceil(p * static_cast<double>(values.size())));
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(place, 1, values.size()) - 1);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

}  // namespace perf
