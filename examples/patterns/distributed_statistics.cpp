// Mean, variance, softmax, arg_max and top-k of values spread unevenly over ranks, each compared with one rank, and
// what each costs in rounds and bytes.
//
// ranks: 7 3 2
#include "../common/program.hpp"

#include <colls/patterns/statistics.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

using namespace example;
constexpr std::size_t k = 100;
using entry = colls::located<float>;

/// Shards of which every third is empty, and the last is twice as long as the others.
std::vector<std::vector<float>> shards_of(const std::vector<float>& all, int n) {
    std::vector<std::size_t> weights;
    for (int r = 0; r < n; ++r) weights.push_back(r % 3 == 1 ? 0 : r == n - 1 ? 2 : 1);
    const std::size_t total = std::accumulate(weights.begin(), weights.end(), std::size_t{0});
    std::vector<std::vector<float>> shards;
    std::size_t begin = 0, weight = 0;
    for (const std::size_t w : weights) {
        const std::size_t end = all.size() * (weight += w) / total;
        shards.emplace_back(all.begin() + static_cast<long>(begin), all.begin() + static_cast<long>(end));
        begin = end;
    }
    return shards;
}

/// Bytes received by the busiest rank of n, and rounds, of an all_reduce of one element by recursive doubling.
std::pair<double, int> all_reduce_cost(int n, double bytes) {
    const auto cost = colls::cost_of<colls::schedule_for<colls::recursive_doubling, colls::collective::all_reduce>>(n);
    return {bytes * static_cast<double>(cost.blocks_received) / cost.blocks, cost.rounds};
}

/// The same of a gather of `bytes` from each rank.
std::pair<double, int> gather_cost(int n, double bytes) {
    const auto cost = colls::cost_of<colls::schedule_for<colls::tree<2>, colls::collective::gather>>(n);
    return {bytes * static_cast<double>(cost.blocks_received), cost.rounds};
}

/// top_k as it would be by a gather: the lists of all ranks to rank 0, which sorts them.
std::vector<entry> top_k_by_gather(colls::communicator& comm, const std::vector<float>& mine) {
    std::vector<entry> list;
    for (std::size_t i = 0; i < mine.size(); ++i) list.push_back({mine[i], comm.rank(), static_cast<std::int64_t>(i)});
    const std::size_t keep = std::min(k, list.size());
    std::partial_sort(list.begin(), list.begin() + static_cast<long>(keep), list.end(), colls::greatest_first{});
    list.resize(k);  // entries without a rank are no values
    std::vector<entry> all(comm.rank() == 0 ? k * static_cast<std::size_t>(comm.size()) : 0);
    colls::gather(comm, list, all, 0);
    std::ranges::sort(all, colls::greatest_first{});
    all.resize(k);
    colls::broadcast(comm, all, 0);
    return all;
}

}  // namespace

int main(int argc, char** argv) {
    program program("Computes mean, variance, softmax, arg_max and top-k over ranks and compares them with one rank.");
    program.default_ranks(7);
    int count = 2'000'000;
    program.options.add("--values", count, "values of all ranks together", example::between(1000, 100'000'000));
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        const int n = comm.size();
        if (out.quick()) count = 20'000;
        // Values with ties, as logits have them in low precision, and so large that exp overflows without the maximum.
        std::mt19937 random(1);
        std::vector<float> all(static_cast<std::size_t>(count));
        for (float& v : all) v = 500.0f + static_cast<float>(random() % 4096) / 64.0f;
        const auto shards = shards_of(all, n);
        const std::vector<float>& mine = shards[static_cast<std::size_t>(comm.rank())];
        std::size_t first = 0;  // where this rank's shard begins in `all`
        for (int r = 0; r < comm.rank(); ++r) first += shards[static_cast<std::size_t>(r)].size();
        out.print("{} values on {} ranks, {} on this one\n", count, n, mine.size());

        table rows({"what", "all_reduces", "bytes each", "difference from one rank"});
        const auto row = [&](const char* what, int calls, std::size_t bytes, double difference) {
            colls::all_reduce(comm, std::span(&difference, 1), colls::max);
            rows.add(what, calls, bytes, difference == 0 ? "none" : fmt::format("{:.1e}", difference));
            return difference;
        };

        // Moments: sums of multiples of 1/64 are exact, so the mean must be; deviations are rounded.
        const double mean = std::accumulate(all.begin(), all.end(), 0.0) / count;
        double deviations = 0;
        for (const float v : all) deviations += (v - mean) * (v - mean);
        // example-begin moments
        const colls::moments m = colls::moments_of(comm, mine);
        // example-end
        out.check("the mean is exactly that of one rank", row("mean", 1, sizeof m, std::abs(m.mean() - mean)) == 0);
        out.check("the variance, to 1e-12 of it",
            row("variance", 0, 0, std::abs(m.variance() * count / deviations - 1)) < 1e-12);

        // Softmax in float: exp and the division are each rounded to float, by 6e-8.
        std::vector<float> probabilities = mine;
        // example-begin softmax
        colls::softmax(comm, probabilities);
        // example-end
        const float greatest = *std::ranges::max_element(all);
        double total = 0, difference = 0;
        for (const float v : all) total += std::exp(v - greatest);
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const double want = std::exp(all[first + i] - greatest) / total;
            const double apart = std::abs(probabilities[i] - want) / want;
            difference = apart <= difference ? difference : apart;  // NaN counts
        }
        out.check("softmax, to 2e-7 of it", row("softmax", 2, 8, difference) < 2e-7);

        // Places: exact, ties by rank and index.
        std::vector<entry> sorted;
        for (int r = 0; r < n; ++r)
            for (std::size_t i = 0; i < shards[static_cast<std::size_t>(r)].size(); ++i)
                sorted.push_back({shards[static_cast<std::size_t>(r)][i], r, static_cast<std::int64_t>(i)});
        std::ranges::stable_sort(sorted, [](const entry& a, const entry& b) { return a.value > b.value; });
        // example-begin top_k
        const entry best = colls::arg_max(comm, mine);  // value, rank, index
        const std::vector<entry> top = colls::top_k<k>(comm, mine);
        // example-end
        out.check(
            "arg_max: the first of the equal ones", row("arg_max", 1, sizeof(entry), best == sorted[0] ? 0 : 1) == 0);
        const auto prefix = [&](const std::vector<entry>& list) {
            return list.size() == k && std::equal(list.begin(), list.end(), sorted.begin());
        };
        out.check("top-k by all_reduce", row("top-k (100)", 1, k * sizeof(entry), prefix(top) ? 0 : 1) == 0);
        const auto gathered = top_k_by_gather(comm, mine);
        out.check("top-k by gather and broadcast",
            row("top-k by gather", 0, k * sizeof(entry), prefix(gathered) ? 0 : 1) == 0);

        // NaN: it comes first in the order of top-k, and makes mean, variance and softmax NaN.
        std::vector<float> bad = mine;
        if (comm.rank() == n - 1) bad.push_back(std::numeric_limits<float>::quiet_NaN());
        const entry found = colls::arg_max(comm, bad);
        colls::softmax(comm, bad);
        out.check("one NaN: arg_max finds it; mean, variance and softmax are NaN",
            found.rank == n - 1 && found.index == static_cast<long>(shards.back().size()) &&
                std::ranges::all_of(bad, [](float v) { return std::isnan(v); }));
        out.print(rows);

        // Costs by group size.
        table costs({"ranks", "mean: rounds", "bytes", "softmax: rounds", "bytes", "top-k: rounds", "bytes",
            "gather of lists: rounds", "bytes", "gather of all: bytes"});
        plot chart("The greatest k of all values: bytes into the busiest rank", {"ranks", true},
            {"received by the busiest rank", true, unit::bytes});
        chart.says(
            "An all_reduce of lists brings log2 n lists into a rank, a gather all n; a gather of all values brings "
            "everything, on any number of ranks.");
        for (int ranks = 2; ranks <= 1024; ranks *= 2) {
            const auto one = all_reduce_cost(ranks, sizeof m), small = all_reduce_cost(ranks, 12),
                       lists = all_reduce_cost(ranks, k * sizeof(entry)), root = gather_cost(ranks, k * sizeof(entry)),
                       everything = gather_cost(ranks, 4.0 * count / ranks);
            costs.add(ranks, one.second, one.first, 2 * small.second, small.first, lists.second, lists.first,
                root.second, root.first, fmt::format("{:.0f}", everything.first));
            chart.add("all_reduce of lists", ranks, lists.first);
            chart.add("gather of lists", ranks, root.first);
            chart.add("gather of all values", ranks, everything.first);
            if (ranks == 1024)
                for (const double bytes : {lists.first, root.first})
                    chart.mark(ranks, bytes, shown(bytes, unit::bytes));
        }
        out.print("\nRounds, and bytes received by the busiest rank, counted from the schedules:\n");
        out.print(costs);
        out.draw(chart);
    });
}
