// Context (sequence) parallelism: the tokens of a long sequence are spread over the ranks. Ring attention (Liu et al.
// 2023): keys and values go round a ring while each rank computes with those at hand. Ulysses (Jacobs et al. 2023):
// all_to_all exchanges a share of the tokens for a share of the heads, and back. See docs/patterns/ring_attention.md.
//
// ranks: 3 5 4
#include "../common/program.hpp"
#include "ring_attention/attention.hpp"
#include "ring_attention/ring.hpp"
#include "ring_attention/ulysses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace example;

matrix random_matrix(Eigen::Index rows, Eigen::Index columns, unsigned seed) {
    std::mt19937 random(seed);
    matrix m(rows, columns);
    for (double& x : numbers(m)) x = static_cast<double>(random()) * 0x1p-31 - 1;
    return m;
}
/// The whole sequence, the same on every rank.
tokens make_sequence(const attention_shape& s, Eigen::Index length) {
    return {
        random_matrix(s.rows(), length, 1), random_matrix(2 * s.rows(), length, 2), random_matrix(s.rows(), length, 3)};
}
matrix columns_of(const matrix& all, const std::vector<piece>& shard) {
    matrix own(all.rows(), tokens_of(shard));
    for (const piece& p : shard) own.middleCols(p.column, p.count) = all.middleCols(p.position, p.count);
    return own;
}
tokens shard_from(const tokens& all, const std::vector<piece>& shard) {
    return {columns_of(all.q, shard), columns_of(all.kv, shard), columns_of(all.gradient, shard)};
}
/// Differences are added rather than compared, since std::max would lose a NaN.
double difference(const matrix& a, const matrix& b) { return (a - b).norm(); }

/// Sum of the differences of the gradients of the attention of one rank from finite differences.
double gradient_error() {
    double sum = 0;
    for (const bool causal : {false, true}) {
        const attention_shape s{2, 3, causal};
        tokens t = make_sequence(s, 7);
        const whole_attention at(s, t.q, t.kv, t.gradient);
        for (auto [m, slope] : {std::pair{&t.q, &at.dq}, {&t.kv, &at.dkv}})
            for (Eigen::Index i = 0; i < m->size(); ++i) {
                const double x = m->data()[i];
                const auto loss = [&](double y) {
                    m->data()[i] = y;
                    return whole_attention(s, t.q, t.kv, t.gradient).output.cwiseProduct(t.gradient).sum();
                };
                sum += std::abs((loss(x + 1e-5) - loss(x - 1e-5)) / 2e-5 - slope->data()[i]);
                m->data()[i] = x;
            }
    }
    return sum;
}

bool is_zigzag(const std::string& way) { return way.find("zigzag") != way.npos; }

/// Computes own tokens in one of these ways.
result run(colls::communicator& comm, const std::string& way, const attention_shape& shape, Eigen::Index length,
    const tokens& own, bool compute = true) {
    if (way == "Ulysses") return ulysses(comm, shape, length).run(own);
    return ring(comm, shape, length, is_zigzag(way), compute, way.find("not overlapped") == way.npos).run(own);
}
const std::vector<std::string> ways{"ring", "ring, zigzag", "ring, zigzag, not overlapped", "Ulysses"};

void compare_with_one_rank(colls::communicator& comm, output& out, std::span<const int> lengths) {
    for (const bool causal : {false, true})
        for (const std::string& way : ways) {
            const attention_shape shape{5, 6, causal};
            const bool zigzag = is_zigzag(way);
            double sum = 0;
            for (const int length : lengths) {
                const tokens all = make_sequence(shape, length);
                const whole_attention whole(shape, all.q, all.kv, all.gradient);
                const auto shard = shard_of(length, comm.size(), comm.rank(), zigzag);
                const tokens own = shard_from(all, shard);
                const result r = run(comm, way, shape, length, own);
                sum += difference(r.output, columns_of(whole.output, shard)) +
                       difference(r.dq, columns_of(whole.dq, shard)) + difference(r.dkv, columns_of(whole.dkv, shard));
            }
            out.check(
                fmt::format("{}{}: outputs and gradients as one rank's", way, causal ? ", causal" : ""), sum < 1e-9);
        }
}

/// The work of the busiest of n ranks over the mean, with a causal mask.
double imbalance(Eigen::Index length, int n, bool zigzag) {
    const attention_shape causal{1, 1, true};
    std::vector<double> work(static_cast<std::size_t>(n));
    for (int q = 0; q < n; ++q)
        for (int k = 0; k < n; ++k)
            for (const piece& a : shard_of(length, n, q, zigzag))
                for (const piece& b : shard_of(length, n, k, zigzag))
                    if (!unseen(causal, a, b))
                        work[static_cast<std::size_t>(q)] += static_cast<double>(a.count * b.count);
    double sum = 0;
    for (const double w : work) sum += w;
    return std::ranges::max(work) / sum * n;
}

void measure(colls::communicator& comm, output& out, const attention_shape& shape, Eigen::Index length) {
    out.print("\n{} tokens, {} heads of {} numbers, causal; forward and backward on {} ranks\n", length, shape.heads,
        shape.size, comm.size());
    const tokens all = make_sequence(shape, length);
    table results(
        {"", "busiest / mean", "ms", "of which waiting", "the exchange alone", "MB sent a rank", "MB held a rank"});
    const auto largest = [&](double x) {
        colls::all_reduce(comm, std::span(&x, 1), colls::max);
        return x;
    };
    for (const std::string& way : ways) {
        const bool zigzag = is_zigzag(way);
        const tokens own = shard_from(all, shard_of(length, comm.size(), comm.rank(), zigzag));
        result best;
        double total = 1e9, alone = 1e9;
        for (int repeat = 0; repeat < (out.quick() ? 1 : 3); ++repeat) {  // the machine may do other work at times
            colls::barrier(comm);
            auto begin = stopwatch::now();
            result r = run(comm, way, shape, length, own);
            const double time = largest(seconds_since(begin));
            if (time < total) total = time, best = std::move(r);
            if (way == "Ulysses") continue;
            colls::barrier(comm);
            begin = stopwatch::now();
            run(comm, way, shape, length, own, false);
            alone = std::min(alone, largest(seconds_since(begin)));
        }
        double work = best.work, waited = best.waited;
        colls::all_reduce(comm, std::span(&work, 1), colls::sum);
        colls::all_reduce(comm, std::span(&waited, 1), colls::sum);
        const double busiest = largest(best.work) / work * comm.size();
        const double sent = largest(best.sent), held = largest(best.held) * sizeof(double);
        results.add(way, fmt::format("{:.2f}", busiest), fmt::format("{:.0f}", total * 1e3),
            fmt::format("{:.1f}", waited / comm.size() * 1e3),
            way == "Ulysses" ? "" : fmt::format("{:.1f}", alone * 1e3), fmt::format("{:.2f}", sent / 1e6),
            fmt::format("{:.2f}", held / 1e6));
        if (way != "Ulysses")
            out.check("  " + way + ": work as counted from the shards",
                std::abs(busiest - imbalance(length, comm.size(), zigzag)) < 1e-9);
    }
    out.print(results);
    plot chart(fmt::format("Causal attention of {} tokens: work of the busiest rank", length), {"ranks"},
        {"times the mean of all ranks"});
    const double unfair = imbalance(length, 16, false), fair = imbalance(length, 16, true);
    chart.says(
        fmt::format("Where ranks hold neighbouring tokens, the one with the last tokens has up to {:.2f} times the "
                    "mean work; in zigzag order all have the same.",
            unfair));
    chart.mark(16, unfair, fmt::format("{:.2f}", unfair));
    chart.mark(16, fair, fmt::format("{:.2f}", fair));
    for (int n = 1; n <= 16; ++n)
        for (const bool zigzag : {false, true})
            chart.add(zigzag ? "zigzag" : "contiguous", n, imbalance(length, n, zigzag));
    out.draw(chart);
}

}  // namespace

int main(int argc, char** argv) {
    program program("Attention over a sequence that is spread over the ranks: by a ring, and by all_to_all.");
    int length = 2048, heads = 4, size = 32;
    program.options.add("--tokens", length, "length of the sequence", example::between(1, 1 << 20));
    program.options.add("--heads", heads, "heads", example::between(1, 256));
    program.options.add("--size", size, "numbers a head", example::between(1, 1024));
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        out.check("the gradient of one rank is that of finite differences", gradient_error() < 3e-6);
        compare_with_one_rank(comm, out, out.quick() ? std::array{1, 3, 70} : std::array{1, 3, 401});
        measure(comm, out, {heads, size, true}, out.quick() ? 256 : length);
    });
}
