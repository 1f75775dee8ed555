// Which collective a job needs: four jobs, each done by the right call and by others that give the same result, with
// the bytes that each moves, counted from the schedules that run.
//
// ranks: 4 3 2
#include "../common/program.hpp"
#include "traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using colls::collective;
using buffer = std::vector<float>;

/// Values that differ by rank and place, small integers, so that sums are exact.
buffer values_of(int rank, std::size_t count) {
    buffer x(count);
    for (std::size_t i = 0; i < count; ++i)
        x[i] = static_cast<float>((static_cast<std::size_t>(rank) * 31 + i * 7) % 101);
    return x;
}

/// The table of one job: bytes of each choice in a group of n.
class choices {
public:
    choices(int n) : n_(n) {}

    /// A choice: collective C by `family`, whose buffer has `bytes` bytes.
    template <collective C, class Family>
    void add(
        const std::string& job, const std::string& choice, const Family& family, double bytes, const char* remark) {
        const example::traffic t = example::count_traffic(colls::schedule_of<C>(family), n_);
        const example::rank_traffic& root = t.ranks[0];
        table_.add(job, choice, mb(t, root.received, bytes), mb(t, root.sent, bytes),
            mb(t, t.most(&example::rank_traffic::received), bytes), mb(t, t.sum(&example::rank_traffic::sent), bytes),
            remark);
    }
    const example::table& text() const { return table_; }

private:
    static std::string mb(const example::traffic& t, long blocks, double bytes) {
        return fmt::format("{:.1f}", t.bytes(blocks, bytes) / 1e6);
    }
    int n_;
    example::table table_{{"job", "choice", "rank 0 in", "rank 0 out", "busiest in", "all", "remark"}};
};

}  // namespace

int main(int argc, char** argv) {
    example::program program(
        "Which collective: four jobs, each by several calls with one result, and the bytes that each call moves.");
    int workers = 64;
    program.options.add("--workers", workers, "ranks of the table", example::between(2, 512));
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        const int n = comm.size(), rank = comm.rank();
        const std::size_t ranks = static_cast<std::size_t>(n), count = 1000;

        // The right call and the others, run on this group: the results are the same.
        const buffer own = values_of(rank, count);
        buffer everything(ranks * count);  // what an all_gather gives, the reference for all jobs
        colls::all_gather(comm, own, everything);
        const auto part = [&](int r) {
            return std::span(everything).subspan(static_cast<std::size_t>(r) * count, count);
        };
        buffer sum(count, 0);
        for (int r = 0; r < n; ++r) std::ranges::transform(sum, part(r), sum.begin(), std::plus<>());

        // example-begin jobs
        buffer weights = own;  // (a) every worker starts with rank 0's weights
        colls::broadcast<colls::tree<>>(comm, weights, 0);

        buffer gradient = own;  // (b) the sum is applied; the parts are not needed
        colls::all_reduce<colls::ring>(comm, gradient, colls::sum);

        buffer trajectories(rank == 0 ? ranks * count : 0);  // (c) the learner stores what every actor has seen
        colls::gather<colls::direct>(comm, own, trajectories, 0);

        buffer configuration(count);  // (d) each worker gets a configuration of its own
        colls::scatter<colls::direct>(comm, everything, configuration, 0);
        // example-end

        out.check("(a) broadcast: as all_gather of everything, of which rank 0's part is kept",
            std::ranges::equal(weights, part(0)));
        out.check("(b) all_reduce: as gather, sum at the root, broadcast", gradient == sum);
        out.check("(c) gather: every trajectory is at the root, none is lost", rank != 0 || trajectories == everything);
        out.check("(d) scatter: as broadcast of all configurations, of which one is kept",
            std::ranges::equal(configuration, part(rank)));

        const double weights_bytes = 4e6, part_bytes = 1e6;
        choices c(workers);
        c.add<collective::broadcast>("a weights, 4 MB", "broadcast", colls::tree<>{}, weights_bytes, "right");
        c.add<collective::all_gather>(
            "", "all_gather of all weights", colls::ring{}, weights_bytes * workers, "n times the bytes");
        c.add<collective::all_reduce>("b gradients, 4 MB", "all_reduce", colls::ring{}, weights_bytes, "right");
        c.add<collective::reduce>("", "reduce", colls::tree<>{}, weights_bytes, "right where one rank needs the sum");
        c.add<collective::gather>(
            "", "gather, sum at the root", colls::direct{}, weights_bytes * workers, "the root receives K parts");
        c.add<collective::gather>(
            "c trajectories, 1 MB each", "gather", colls::direct{}, part_bytes * workers, "right");
        c.add<collective::all_gather>(
            "", "all_gather", colls::ring{}, part_bytes * workers, "everywhere, though one rank needs it");
        c.add<collective::scatter>(
            "d configurations, 1 MB each", "scatter", colls::direct{}, part_bytes * workers, "right");
        c.add<collective::broadcast>(
            "", "broadcast of all", colls::tree<>{}, part_bytes * workers, "each worker gets all, to use one");
        out.print("\nMB in a group of {}:\n", workers);
        out.print(c.text());

        const auto root_in = [&](const auto& s, double bytes) {
            const example::traffic t = example::count_traffic(s, workers);
            return t.bytes(t.ranks[0].received, bytes);
        };
        const double gathered =
            root_in(colls::schedule_of<collective::gather>(colls::direct{}), weights_bytes * workers);
        const double reduced = root_in(colls::schedule_of<collective::all_reduce>(colls::ring{}), weights_bytes);
        out.check("gather brings (n-1) D to the root", gathered == weights_bytes * (workers - 1));
        out.check("all_reduce brings it less than 2 D", reduced < 2 * weights_bytes);

        const auto size = [](double bytes) { return example::shown(bytes, example::unit::bytes); };
        example::plot chart("The sum of 4 MB of gradients from each rank: bytes into rank 0",
            {.label = "ranks", .logarithmic = true},
            {.label = "received by rank 0", .logarithmic = true, .in = example::unit::bytes});
        chart.says(fmt::format(
            "With a gather rank 0 receives the gradients of all others, {} from {} ranks; with an all_reduce "
            "less than twice its own, {}, however many ranks there are.",
            size(gathered), workers, size(reduced)));
        for (int k = 2; k <= workers; k *= 2) {
            const auto add = [&](const char* name, const auto& s, double bytes) {
                const example::traffic t = example::count_traffic(s, k);
                chart.add(name, k, t.bytes(t.ranks[0].received, bytes));
            };
            add("gather", colls::schedule_of<collective::gather>(colls::direct{}), weights_bytes * k);
            add("reduce (tree)", colls::schedule_of<collective::reduce>(colls::tree<>{}), weights_bytes);
            add("all_reduce (ring)", colls::schedule_of<collective::all_reduce>(colls::ring{}), weights_bytes);
        }
        if ((workers & (workers - 1)) == 0) {  // else the lines end before
            chart.mark(workers, gathered, size(gathered));
            chart.mark(workers, reduced, size(reduced));
        }
        out.draw(chart);
    });
}
