// The same start on all workers, then eight verbs on a cluster of two levels: fast links inside a node, slow ones
// between nodes. Flat schedules beside hierarchical ones: bytes between nodes, counted, and predicted times.
//
// ranks: 4 6 4
#include "../common/program.hpp"
#include "traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using colls::collective;
using buffer = std::vector<float>;

template <class F>
using two_levels = colls::hierarchical<F, F>;

/// Makes the eight calls on this group by `Family`s of both kinds and returns all that they leave in the outputs.
template <class Tree, class Volume, class Pairs>
buffer eight_verbs(colls::communicator& comm, const Tree& tree, const Volume& volume, const Pairs& pairs) {
    const std::size_t n = static_cast<std::size_t>(comm.size()), part = 50;
    const auto values = [&](std::size_t count) {
        buffer x(count);
        for (std::size_t i = 0; i < count; ++i)
            x[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(comm.rank()) * 31) % 101);
        return x;
    };
    const buffer small = values(part), large = values(n * part);
    buffer all;
    const auto keep = [&](const buffer& x) { all.insert(all.end(), x.begin(), x.end()); };
    buffer x = large;
    colls::broadcast(comm, x, 0, tree);
    keep(x);
    x.assign(part, 0);
    colls::scatter(comm, large, x, 0, tree);
    keep(x);
    x.assign(n * part, 0);
    colls::gather(comm, small, x, 0, tree);
    if (comm.rank() == 0) keep(x);
    colls::all_gather(comm, small, x, volume);
    keep(x);
    colls::reduce(comm, large, x, colls::sum, 0, tree);
    if (comm.rank() == 0) keep(x);
    buffer y(part);
    colls::reduce_scatter(comm, large, y, colls::sum, volume);
    keep(y);
    x = large;
    colls::all_reduce(comm, x, colls::sum, volume);
    keep(x);
    colls::all_to_all(comm, large, x, pairs);
    keep(x);
    return all;
}

class comparison {
public:
    comparison(int n, const example::cluster& c, double bytes) : n_(n), cluster_(c), bytes_(bytes) {}

    template <collective C, class Family>
    void add(const char* family) {
        const auto flat = colls::schedule_of<C>(Family{});
        const auto two = colls::schedule_of<C>(two_levels<Family>{.node = cluster_.node});
        const example::traffic f = example::count_traffic(flat, n_, cluster_.node),
                               t = example::count_traffic(two, n_, cluster_.node);
        const auto between = [&](const example::traffic& x) {
            return x.bytes(x.most(&example::rank_traffic::sent_between), bytes_) / 1e6;
        };
        const double flat_time = example::seconds_on(flat, n_, bytes_, cluster_),
                     two_time = example::seconds_on(two, n_, bytes_, cluster_);
        table_.add(colls::name_of(C), family, fmt::format("{:.1f}", between(f)), fmt::format("{:.1f}", between(t)),
            f.sum(&example::rank_traffic::messages_between), t.sum(&example::rank_traffic::messages_between),
            fmt::format("{:.3f}", flat_time * 1e3), fmt::format("{:.3f}", two_time * 1e3),
            fmt::format("{:.2f}", flat_time / two_time));

        // Where both kinds of links are equal, and one port is used, this is the library's cost model.
        if (colls::ports_of(flat, n_) == 1) {
            const example::cluster even{cluster_.node, cluster_.between, cluster_.between};
            colls::model m = cluster_.between;
            m.gamma = 0;
            const double expected = colls::cost_of(flat, n_).seconds(m, bytes_),
                         walked = example::seconds_on(flat, n_, bytes_, even);
            equals_model_ &= std::abs(walked - expected) <= 1e-9 * expected;
        }
    }

    const example::table& text() const { return table_; }
    bool equals_model() const { return equals_model_; }

private:
    int n_;
    example::cluster cluster_;
    double bytes_;
    bool equals_model_ = true;
    example::table table_{{"verb", "family", "MB between: flat", "two levels", "messages between: flat", "two levels",
        "ms: flat", "two levels", "ratio"}};
};

}  // namespace

int main(int argc, char** argv) {
    example::program program(
        "Eight verbs on a cluster of two levels: flat against hierarchical, counted and predicted.");
    int n = 64, node = 8;
    double inside = 600, between = 400, alpha_inside = 2, alpha_between = 5, megabytes = 256;
    program.options.add("--gpus", n, "ranks of the cluster", example::between(2, 512));
    program.options.add("--node", node, "ranks of a node", example::between(1, 64));
    program.options.add("--inside", inside, "GB/s of a rank's link inside its node", example::positive);
    program.options.add("--between", between, "Gb/s of a rank's link to other nodes", example::positive);
    program.options.add("--megabytes", megabytes, "MB of the whole buffer", example::positive);
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        if (n % node != 0) throw std::runtime_error("--node must divide --gpus");
        // The same start on all workers, then both kinds of schedules on this group, with the same results.
        buffer weights(1000, static_cast<float>(comm.rank()));
        colls::broadcast<two_levels<colls::tree<>>>(comm, weights, 0);
        out.check("the same start on all workers", weights == buffer(1000, 0.0f));
        const buffer flat = eight_verbs(comm, colls::tree<>{}, colls::circulant<>{}, colls::direct{});
        const buffer two = eight_verbs(
            comm, two_levels<colls::tree<>>{}, two_levels<colls::circulant<>>{}, two_levels<colls::direct>{});
        out.check("eight verbs: hierarchical equals flat", flat == two);

        const example::cluster c{node, {.alpha = alpha_inside * 1e-6, .beta = 1e-9 / inside},
            {.alpha = alpha_between * 1e-6, .beta = 8e-9 / between}};
        comparison table(n, c, megabytes * 1e6);
        table.add<collective::broadcast, colls::tree<>>("tree");
        table.add<collective::scatter, colls::tree<>>("tree");
        table.add<collective::gather, colls::tree<>>("tree");
        table.add<collective::all_gather, colls::circulant<>>("circulant");
        table.add<collective::all_gather, colls::ring>("ring");
        table.add<collective::reduce, colls::tree<>>("tree");
        table.add<collective::reduce_scatter, colls::circulant<>>("circulant");
        table.add<collective::reduce_scatter, colls::ring>("ring");
        table.add<collective::all_reduce, colls::circulant<>>("circulant");
        table.add<collective::all_reduce, colls::ring>("ring");
        table.add<collective::all_to_all, colls::direct>("direct");
        out.print(
            "\n{} ranks, {} a node; {} GB/s and {} us inside, {} Gb/s and {} us between; {} MB. MB between: of the "
            "busiest rank.\n",
            n, node, inside, alpha_inside, between, alpha_between, megabytes);
        out.print(table.text());

        // An all_reduce sends 1/node of the buffer between nodes, twice, less one part.
        const auto two_all_reduce =
            colls::schedule_of<collective::all_reduce>(two_levels<colls::circulant<>>{.node = node});
        const example::traffic t = example::count_traffic(two_all_reduce, n, node);
        const int nodes = n / node;
        out.check("all_reduce in two levels: 2 S/p (m-1)/m between nodes, p ranks on each of m nodes",
            t.most(&example::rank_traffic::sent_between) * node * nodes == 2L * (nodes - 1) * t.blocks);
        out.check("on even links the walk equals cost_of(...).seconds", table.equals_model());

        example::plot chart(fmt::format("An all_reduce over {} nodes of {} ranks, predicted", nodes, node),
            {.label = "size", .logarithmic = true, .in = example::unit::bytes},
            {.label = "time", .logarithmic = true, .in = example::unit::seconds});
        const auto seconds = [&](const auto& family, double bytes) {
            return example::seconds_on(colls::schedule_of<collective::all_reduce>(family), n, bytes, c);
        };
        for (double bytes = 1e3; bytes <= 5e9; bytes *= 4) {
            const auto line = [&](const char* name, const auto& family) {
                chart.add(name, bytes, seconds(family, bytes));
            };
            line("circulant", colls::circulant<>{});
            line("ring", colls::ring{});
            line("two levels, circulant", two_levels<colls::circulant<>>{.node = node});
            line("two levels, ring", two_levels<colls::ring>{.node = node});
        }
        const double large = 256e6, in_one = seconds(colls::circulant<>{}, large),
                     in_two = seconds(two_levels<colls::circulant<>>{.node = node}, large);
        chart.says(fmt::format(
            "Small buffers cost rounds, and circulant has few; of large ones a rank sends 1/{} between nodes in "
            "two levels, so that 256 MB take {} instead of {}.",
            node, example::shown(in_two, example::unit::seconds), example::shown(in_one, example::unit::seconds)));
        chart.mark(large, in_two, fmt::format("256 MB in two levels: {:.1f} times as fast", in_one / in_two));
        out.draw(chart);
    });
}
