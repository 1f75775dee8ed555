// What `automatic` takes in groups of GPUs, beside the simulator: the same links, every family of the library flat and
// in two levels, and no time of a call is measured.
#include "catch.hpp"

#include <colls/cuda/detail/automatic.hpp>
#include <colls/files/detail/tuning_file.hpp>
#include <colls/schedules.hpp>
#include <colls/simulate.hpp>
#include <colls/verify.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace colls;
using colls::cuda::detail::chunk_limits;
using colls::cuda::detail::gpu_choice;
using colls::cuda::detail::gpu_demand;
using colls::cuda::detail::link_figures;

namespace {

/// `hosts` hosts of `gpus` GPUs: each GPU has links of its own to its host's switch, and to the network.
simulation::topology network(int hosts, int gpus, const link_figures& f) {
    std::vector<simulation::link> links;
    for (int i = 0; i < 4 * hosts * gpus; ++i) {
        const extend::machine& m = i % 4 < 2 ? f.near : f.far;
        links.push_back({m.alpha / 2, 1 / m.beta});
    }
    return {hosts * gpus, std::move(links), [gpus](int from, int to, std::vector<int>& route) {
                const int kind = from / gpus == to / gpus ? 0 : 2;
                route.push_back(4 * from + kind);
                route.push_back(4 * to + kind + 1);
            }};
}
host_map map_of(int hosts, int gpus) {
    std::vector<int> of;
    for (int i = 0; i < hosts * gpus; ++i) of.push_back(i / gpus);
    return hosts > 1 ? host_map(of) : host_map();
}

struct timed {
    std::string name;
    double seconds = 0;
};
/// Seconds of a call by s; more than any where a kernel cannot run it, or it has too many rounds for a kernel's.
template <class S>
double simulated(const S& s, int n, const simulation::topology& t, double bytes, const link_figures& f) {
    if (!s.supports(n) || s.ports(n) > 72 || s.rounds(n) > 300) return 1e9;
    return simulation::simulate(s, n, t, bytes, {.gamma = f.near.gamma, .overhead = f.near.message, .resolution = 1e-9})
        .seconds;
}
struct every {
    std::vector<any_schedule> all;
    template <collective C, class Family>
    void add(const Family& f, std::string_view name) {
        if constexpr (provides<Family, C>) {
            const auto s = schedule_of<C>(f);
            all.push_back(any_schedule(s, detail::table_of<std::remove_const_t<decltype(s)>, true>, name));
        }
    }
    template <collective C>
    static every of(int hosts, int gpus) {
        every e;
        const host_map map = map_of(hosts, gpus);
        detail::known_families::for_each([&]<class Family>(const Family& f, std::string_view name) {
            e.add<C>(f, name);
            if (!map.known() || gpus == 1) return;
            e.add<C>(host_hierarchy<Family>{.hosts = map}, name);
            e.add<C>(host_hierarchy<Family>{.hosts = map, .lanes = 1}, name);
            e.add<C>(hierarchical<direct, Family>{.node = gpus}, name);
        });
        if constexpr (C == collective::broadcast || C == collective::reduce || C == collective::all_reduce)
            for (const int segments : {6, 12, 24, 48}) {
                e.add<C>(pipelined_broadcast{segments}, "pipelined_broadcast");
                if (map.known() && gpus > 1)
                    e.add<C>(host_hierarchy<pipelined_broadcast>{.hosts = map, .inter = {segments}}, "by hosts");
            }
        return e;
    }
};

// The library reads the variable once in a process. No group of the comparison has 65 ranks.
const bool is_tuned = [] {
    char path[] = "/tmp/colls_gpu_tuning_XXXXXX";
    const int at = mkstemp(path);
    const std::string text =
        "gpu_links 1e-6 1e-11 2e-6 3e-11\n"
        "schedule all_reduce 65 0 tree\n"
        "gpu_schedule all_reduce 65 1000 host_hierarchy<circulant<>>\n"
        "gpu_schedule all_reduce 65 100000 automatic\n"
        "gpu_schedule broadcast 65 0 host_hierarchy<dirct>\n";
    if (at < 0 || write(at, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
    close(at);
    setenv("COLLS_TUNE", path, 1);
    const bool read = detail::tuning() != nullptr;
    unlink(path);
    return read;
}();

const bool is_long = std::getenv("COLLS_TEST_LONG") != nullptr;
const bool prints = std::getenv("COLLS_TEST_TABLE") != nullptr;

template <collective C>
void compare(const link_figures& f) {
    const std::vector<int> hosts = is_long ? std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8} : std::vector<int>{1, 2, 3, 5},
                           gpus = is_long ? std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8} : std::vector<int>{1, 2, 4, 8};
    double worst = 1;
    std::string where;
    for (const int h : hosts)
        for (const int g : gpus) {
            const int n = h * g;
            if (n == 1) continue;
            const simulation::topology net = network(h, g, f);
            const every others = every::of<C>(h, g);
            // Without limits of chunks, which the simulator does not know.
            const gpu_choice choice = gpu_choice::of<C>(n, map_of(h, g), 0, f, {64, std::uint64_t{1} << 40, 0, 0, 0});
            for (double bytes = 1024; bytes <= 1.1e9; bytes *= is_long ? 4 : 32) {
                const detail::candidate& taken = choice.choose({.bytes = bytes});
                const double time = simulated(taken.schedule, n, net, bytes, f);
                double best = time;
                std::string_view by = taken.name;
                for (const any_schedule& s : others.all)
                    if (const double t = simulated(s, n, net, bytes, f); t < best) best = t, by = s.name();
                const double ratio = time / best;
                char row[200];
                std::snprintf(row, sizeof row, "%s, %d hosts of %d, %.0f bytes: %.*s takes %.1f us, %.*s %.1f: %.3f",
                    name_of(C), h, g, bytes, static_cast<int>(taken.name.size()), taken.name.data(), time * 1e6,
                    static_cast<int>(by.size()), by.data(), best * 1e6, ratio);
                if (prints || ratio > 1.1) std::printf("%s\n", row);
                if (ratio > worst) worst = ratio, where = row;
            }
        }
    INFO(where);
    // Where all data are of one rank, transfers of several rounds share its links, which the prediction does not see.
    CHECK(worst <= (owned(C) && rooted(C) ? 1.2 : 1.1));
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("automatic on GPUs: within a tenth of the best family of the simulator", "[automatic]",
    ((collective C), C), collective::all_reduce, collective::reduce_scatter, collective::all_gather,
    collective::broadcast, collective::reduce, collective::scatter, collective::gather, collective::all_to_all,
    collective::inclusive_scan, collective::exclusive_scan) {
    link_figures figures;
    figures.far = link_figures::over_rdma();
    figures.far.message = figures.near.message;  // the simulator has one for all messages
    compare<C>(figures);
    figures.far = link_figures::over_tcp();
    figures.far.message = figures.near.message;
    compare<C>(figures);
}

TEST_CASE("automatic on GPUs: what is named is taken, where it fits", "[automatic]") {
    REQUIRE(is_tuned);
    const link_figures figures;
    const chunk_limits limits{8, 256 << 10, 1 << 20, 1 << 20, 1024};
    const host_map hosts = map_of(13, 5);
    const gpu_choice sums = gpu_choice::of<collective::all_reduce>(65, hosts, 0, figures, limits);
    // By the file: see `tuned`. The line for the host's calls does not count.
    CHECK(sums.choose({.bytes = 2000}).name == "host_hierarchy<circulant<>>");
    CHECK(sums.choose({.bytes = 200'000}).name != "host_hierarchy<circulant<>>");
    // By COLLS_SCHEDULE, which goes first.
    CHECK(sums.choose({.bytes = 2000, .forced = "ring"}).name == "ring");
    CHECK(sums.choose({.bytes = 2000, .forced = "pat"}).name == "pat");
    // A schedule that there is not for the collective, or at this size: the library chooses.
    CHECK(sums.choose({.bytes = 200'000, .forced = "pipelined"}).name == sums.choose({.bytes = 200'000}).name);
    CHECK(sums.choose({.bytes = 200'000, .forced = "halving_doubling"}).name == sums.choose({.bytes = 200'000}).name);
    // In one fold.
    CHECK(sums.choose({.bytes = 200'000, .reproducible = true}).name == "direct");
    const gpu_choice copies = gpu_choice::of<collective::broadcast>(65, hosts, 3, figures, limits);
    try {
        copies.choose({.bytes = 100});
        FAIL("a name that there is not was taken");
    } catch (const error& e) {
        CHECK(e.code() == errc::invalid_argument);
        CHECK(std::string(e.what()).find("host_hierarchy<dirct> is none of: direct") != std::string::npos);
    }
    CHECK(detail::tuning()->has_gpu_links);
    CHECK(detail::tuning()->gpu_links[3] == 3e-11);
}

TEST_CASE("automatic on GPUs: a candidate that a kernel cannot run is left out", "[automatic]") {
    const link_figures figures;
    // 144 ranks on hosts of 72: direct has more ports than a kernel takes.
    std::vector<int> of(144);
    for (std::size_t r = 72; r < of.size(); ++r) of[r] = 1;
    const gpu_choice large =
        gpu_choice::of<collective::all_gather>(144, host_map(of), 0, figures, {8, 256 << 10, 1 << 20, 1 << 20, 1024});
    for (const double bytes : {1e3, 1e6, 1e9})
        CHECK(large.choose({.bytes = bytes}).name.substr(0, 14) == "host_hierarchy");
    // Windows that hold less than a chunk of each block that goes to other hosts in a round.
    const gpu_choice narrow =
        gpu_choice::of<collective::all_gather>(16, map_of(2, 8), 0, figures, {8, 256 << 10, 1 << 20, 8 << 10, 1024});
    const std::string text = narrow.explain({.bytes = 1e6});
    const std::size_t row = text.find("  direct ");
    CHECK(text.substr(row, text.find('\n', row) - row).find("too large for a kernel") != std::string::npos);
    // The table says why others are not taken, and which one is, if it is to.
    const gpu_choice sums =
        gpu_choice::of<collective::all_reduce>(16, map_of(2, 8), 0, figures, {8, 256 << 10, 1 << 20, 1 << 20, 1024});
    const auto rows_with = [&](const gpu_demand& d, bool marks, const std::string& words) {
        const std::string table = sums.explain(d, marks);
        std::vector<std::string> found;
        for (std::size_t at = table.find(words); at != std::string::npos; at = table.find(words, at + 1)) {
            const std::size_t begin = table.rfind('\n', at) + 3;
            found.push_back(table.substr(begin, table.find("  ", begin) - begin));
        }
        return found;
    };
    using rows = std::vector<std::string>;
    const gpu_demand exact{.bytes = 1e6, .reproducible = true};
    CHECK(rows_with({.bytes = 1e6}, true, "<- chosen") == rows{std::string(sums.choose({.bytes = 1e6}).name)});
    CHECK(rows_with({.bytes = 1e6}, false, "<- chosen").empty());
    CHECK(rows_with({.bytes = 1e6}, true, "not in one fold").empty());
    const rows folds = rows_with(exact, true, "not in one fold");
    CHECK(std::count(folds.begin(), folds.end(), "host_hierarchy<direct>") == 1);
    CHECK(std::count(folds.begin(), folds.end(), "direct") + std::count(folds.begin(), folds.end(), "one_shot") == 0);
    // Not among those that are weighed, but named.
    CHECK(rows_with({.bytes = 1e6, .forced = "ring"}, true, "<- chosen") == rows{"ring"});
}

TEST_CASE("automatic on GPUs: the root's host begins, whichever it is", "[automatic]") {
    const link_figures figures;
    const host_map hosts = map_of(3, 4);
    for (const int root : {0, 3, 5, 11}) {
        const gpu_choice c =
            gpu_choice::of<collective::broadcast>(12, hosts, root, figures, {8, 256 << 10, 1 << 20, 1 << 20, 1024});
        const detail::candidate& taken = c.choose({.bytes = 4 << 20});
        INFO("root " << root << ": " << taken.name);
        CHECK(taken.name.substr(0, 14) == "host_hierarchy");
        CHECK(taken.schedule.root(12) == root);
        CHECK(verify(taken.schedule, 12).ok());
        // On one host: the roles of other roots are as those of root 0.
        const gpu_choice alone =
            gpu_choice::of<collective::broadcast>(12, {}, root, figures, {8, 256 << 10, 1 << 20, 1 << 20, 1024});
        const gpu_choice at_0 =
            gpu_choice::of<collective::broadcast>(12, {}, 0, figures, {8, 256 << 10, 1 << 20, 1 << 20, 1024});
        CHECK(alone.explain({.bytes = 4 << 20}) == at_0.explain({.bytes = 4 << 20}));
    }
}
