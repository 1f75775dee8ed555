// Mean, argmax, softmax, gradients in buckets, and an embedding table, of data that is spread over the ranks: each
// equals what one process computes from all of it.
//
// ranks: 5 3 2
#include "../common/difference.hpp"
#include "../common/program.hpp"
#include "traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

/// Element i of the whole data, on any rank: a multiple of 1/1024, so that sums of doubles are exact.
double element(std::size_t i) {
    std::uint64_t x = i * 0x9e3779b97f4a7c15u;
    x ^= x >> 31;
    return static_cast<double>(static_cast<std::int64_t>(x * 0xbf58476d1ce4e5b9u >> 44) - (1 << 19)) / 1024;
}

/// This rank's block of `total` elements.
std::vector<double> own_part(const colls::communicator& comm, std::size_t total) {
    const colls::buffer_block b = colls::block_of(total, comm.size(), comm.rank());
    std::vector<double> x(b.size);
    for (std::size_t i = 0; i < b.size; ++i) x[i] = element(b.offset + i);
    return x;
}

// example-begin statistics
double mean(colls::communicator& comm, std::span<const double> x) {
    double sums[] = {std::accumulate(x.begin(), x.end(), 0.0), static_cast<double>(x.size())};
    colls::all_reduce(comm, sums, colls::sum);  // sum and count in one call: ranks may have different counts
    return sums[0] / sums[1];
}

struct extreme {
    double value;
    std::int64_t index;  // in the whole data
    int rank;            // that has it
};

/// The greatest value, where it is, and which rank has it: the maximum, then the lowest of the ranks that have it.
extreme argmax(colls::communicator& comm, std::span<const double> x, std::size_t offset) {
    const auto at = std::ranges::max_element(x);  // an empty part has no value
    colls::value_index<double, std::int64_t> best{-HUGE_VAL, INT64_MAX};
    if (at != x.end()) best = {*at, static_cast<std::int64_t>(offset) + (at - x.begin())};
    const auto own = best;
    colls::all_reduce(comm, std::span(&best, 1), colls::maxloc);
    int rank = own == best ? comm.rank() : comm.size();
    colls::all_reduce(comm, std::span(&rank, 1), colls::min);
    return {best.value, best.index, rank};
}

/// Softmax of the whole data, in place of this rank's part: the maximum, so that exp does not overflow, then the sum.
void softmax(colls::communicator& comm, std::span<double> x) {
    double most = x.empty() ? -HUGE_VAL : std::ranges::max(x);
    colls::all_reduce(comm, std::span(&most, 1), colls::max);
    double sum = 0;
    for (double& v : x) sum += v = std::exp(v - most);
    colls::all_reduce(comm, std::span(&sum, 1), colls::sum);
    for (double& v : x) v /= sum;
}
// example-end

// example-begin buckets
/// Sums the gradients of all layers over all ranks, in buckets of at most `bucket` floats that are started last layer
/// first, as back-propagation finishes them. Returns the number of buckets.
int reduce_in_buckets(colls::communicator& comm, std::span<float> gradients, std::size_t bucket) {
    std::vector<colls::operation> started;
    for (std::size_t end = gradients.size(); end > 0;) {
        const std::size_t begin = end > bucket ? end - bucket : 0;
        started.push_back(colls::start::all_reduce(comm, gradients.subspan(begin, end - begin), colls::sum));
        end = begin;
    }
    const int count = static_cast<int>(started.size());
    colls::wait_all(started);
    return count;
}
// example-end

// example-begin embedding
/// The rows of `ids` from a table whose rows are spread over the ranks: all_gather_v makes the table whole on each.
std::vector<float> look_up(colls::communicator& comm, std::span<const float> own_rows, std::size_t rows,
    std::size_t width, std::span<const std::size_t> ids) {
    std::vector<std::size_t> counts;
    for (const colls::buffer_block b : colls::blocks_of(rows, comm.size())) counts.push_back(b.size * width);
    std::vector<float> table(rows * width), found;
    colls::all_gather_v(comm, own_rows, table, counts);
    for (const std::size_t id : ids) {
        const auto row = std::span(table).subspan(id * width, width);
        found.insert(found.end(), row.begin(), row.end());
    }
    return found;
}
// example-end

}  // namespace

int main(int argc, char** argv) {
    example::program program("Distributed mean, argmax, softmax, bucketed gradients and embedding, as one process.");
    std::size_t total = 100'003;
    program.options.add("--elements", total, "elements of the whole data", example::positive);
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        std::vector<double> whole(total);
        for (std::size_t i = 0; i < total; ++i) whole[i] = element(i);
        const std::vector<double> own = own_part(comm, total);
        const std::size_t offset = colls::block_of(total, comm.size(), comm.rank()).offset;
        example::table table({"result", "on all ranks", "one process"});

        const double distributed = mean(comm, own);
        const double serial = std::accumulate(whole.begin(), whole.end(), 0.0) / static_cast<double>(total);
        table.add("mean", fmt::format("{:.6f}", distributed), fmt::format("{:.6f}", serial));

        const extreme best = argmax(comm, own, offset);
        const auto at = std::ranges::max_element(whole);
        int owner = 0;
        while (colls::block_of(total, comm.size(), owner).offset + colls::block_of(total, comm.size(), owner).size <=
               static_cast<std::size_t>(at - whole.begin()))
            ++owner;
        table.add("greatest value", best.value, *at);
        table.add("its index", best.index, at - whole.begin());
        table.add("its rank", best.rank, owner);

        std::vector<double> probabilities = own;
        softmax(comm, probabilities);
        double sum = 0;
        for (const double v : whole) sum += std::exp(v - *at);
        double difference = 0, largest = 0;
        for (std::size_t i = 0; i < own.size(); ++i) {
            const double expected = std::exp(own[i] - *at) / sum;
            difference = example::worse(difference, std::abs(probabilities[i] - expected) / std::max(expected, 1e-300));
        }
        for (const double p : probabilities) largest = std::max(largest, p);
        colls::all_reduce(comm, std::span(&largest, 1), colls::max);
        table.add("greatest probability", fmt::format("{:.6f}", largest), fmt::format("{:.6f}", 1 / sum));

        // Gradients of 7 layers of uneven sizes: small integers, so that any order of summation gives the same bits.
        const std::size_t layers[] = {784 * 64, 64, 64 * 64, 64, 64 * 32, 32, 32 * 10 + 10};
        const std::size_t parameters = std::accumulate(std::begin(layers), std::end(layers), std::size_t{0});
        const auto gradient = [](int rank, std::size_t i) {
            return static_cast<float>((i * 13 + static_cast<std::size_t>(rank) * 7) % 61);
        };
        std::vector<float> gradients(parameters), expected(parameters, 0);
        for (std::size_t i = 0; i < parameters; ++i) {
            gradients[i] = gradient(comm.rank(), i);
            for (int r = 0; r < comm.size(); ++r) expected[i] += gradient(r, i);
        }
        const int buckets = reduce_in_buckets(comm, gradients, 10'000);
        table.add(fmt::format("gradients in {} buckets", buckets), gradients[1], expected[1]);

        const std::size_t rows = 1003, width = 16;
        const auto weight = [](std::size_t row, std::size_t column) {
            return static_cast<float>(row) + static_cast<float>(column) / 64;
        };
        const colls::buffer_block mine = colls::block_of(rows, comm.size(), comm.rank());
        std::vector<float> own_rows;
        for (std::size_t r = mine.offset; r < mine.offset + mine.size; ++r)
            for (std::size_t c = 0; c < width; ++c) own_rows.push_back(weight(r, c));
        const std::vector<std::size_t> ids{0, 1002, 500, 500, 7, static_cast<std::size_t>(comm.rank())};
        const std::vector<float> found = look_up(comm, own_rows, rows, width, ids);
        bool rows_right = found.size() == ids.size() * width;
        for (std::size_t i = 0; i < ids.size() && rows_right; ++i)
            for (std::size_t c = 0; c < width; ++c) rows_right &= found[i * width + c] == weight(ids[i], c);
        table.add("embedding of id 1002", found[width], weight(1002, 0));

        out.print(table);
        // Why the data stay where they are: what rank 0 of 64 receives.
        const int n = 64;
        const example::traffic sums =
            example::count_traffic(colls::schedule_of<colls::collective::all_reduce>(colls::tree<>{}), n);
        const example::traffic data =
            example::count_traffic(colls::schedule_of<colls::collective::gather>(colls::tree<>{}), n);
        example::plot chart("The mean of data on 64 ranks: bytes into rank 0",
            {.label = "elements of 8 bytes", .logarithmic = true},
            {.label = "received by rank 0", .logarithmic = true, .in = example::unit::bytes});
        for (double elements = 1e3; elements <= 1e9; elements *= 10) {
            chart.add("gather of the data", elements, data.bytes(data.ranks[0].received, 8 * elements));
            chart.add("all_reduce of sum, count", elements, sums.bytes(sums.ranks[0].received, 16));
        }
        const auto size = [](double bytes) { return example::shown(bytes, example::unit::bytes); };
        const double all = data.bytes(data.ranks[0].received, 8e9), few = sums.bytes(sums.ranks[0].received, 16);
        chart.says(fmt::format(
            "An all_reduce of sum and count takes {} into rank 0 however much data there is; a gather takes all of it.",
            size(few)));
        chart.mark(1e9, all, "a gather of 1e9 elements: " + size(all));
        chart.mark(1e9, few, "sum and count: " + size(few));
        out.draw(chart);

        out.check("mean: equal to one process", distributed == serial);
        out.check("argmax: value, index and rank",
            best.value == *at && best.index == at - whole.begin() && best.rank == owner);
        out.check("softmax: within 1e-12 of one process", difference < 1e-12);
        out.check("gradients in buckets: the bits of one process", gradients == expected);
        out.check("embedding: the rows of one process", rows_right);
    });
}
