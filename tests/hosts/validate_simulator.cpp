// validate_simulator: what the simulator says of schedules on a network, beside what ranks on that network measure.
//
//     validate_simulator cables NETWORK               the network's cables, as limited_network lays them
//     validate_simulator run NETWORK BYTES... TURNS   as a rank of a world; rank 0 prints a row for each cell
//     validate_simulator compare (NETWORK ROWS)...    the rows of runs, simulated: how far apart the two are
//
// NETWORK is a file as `colls simulate` takes it, of kind graph. `run` ends with status 1 where a result is wrong, or a
// cell takes less time than the cables allow. No other time is checked.
#include "../../benchmarks/statistics.hpp"

#include <colls/colls.hpp>
#include <colls/simulate.hpp>
#include <colls/world.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using colls::collective;
using element = std::uint32_t;
using elements = std::vector<element>;
namespace sim = colls::simulation;

/// A family's schedule for a collective, and a call by it.
struct subject {
    std::string family;
    colls::any_schedule schedule;
    std::function<void(colls::communicator&, const elements& in, elements& out)> call;
};

template <collective C, class F>
void add(std::vector<subject>& all, const char* name, const F& family) {
    if constexpr (colls::provides<F, C>) {
        const auto s = colls::schedule_of<C>(family);
        all.push_back({name, colls::any_schedule(s), [s](colls::communicator& comm, const elements& in, elements& out) {
                           if constexpr (C == collective::all_reduce) colls::all_reduce(comm, in, out, colls::sum, s);
                           if constexpr (C == collective::broadcast) colls::broadcast(comm, out, 0, s);
                           if constexpr (C == collective::all_gather) colls::all_gather(comm, in, out, s);
                           if constexpr (C == collective::all_to_all) colls::all_to_all(comm, in, out, s);
                       }});
    }
}

template <collective C>
void add_all(std::vector<subject>& all, int node) {
    add<C>(all, "ring", colls::ring{});
    add<C>(all, "circulant", colls::circulant<>{});
    add<C>(all, "halving_doubling", colls::halving_doubling{});
    add<C>(all, "recursive_doubling", colls::recursive_doubling{});
    add<C>(all, "tree", colls::tree<2>{});
    add<C>(all, "direct", colls::direct{});
    if constexpr (C == collective::all_to_all) add<C>(all, "bruck", colls::bruck<>{});
    add<C>(all, "pipelined_broadcast", colls::pipelined_broadcast{});
    if constexpr (C == collective::broadcast)
        add<C>(all, "hierarchical", colls::hierarchical<colls::tree<2>, colls::tree<2>>{.node = node});
    else if constexpr (C == collective::all_to_all)
        add<C>(all, "hierarchical", colls::hierarchical<colls::direct, colls::direct>{.node = node});
    else
        add<C>(all, "hierarchical", colls::hierarchical<colls::ring, colls::ring>{.node = node});
}

/// Those that n ranks can run. `node`: ranks of a node, for `hierarchical`; 0: as it chooses.
std::vector<subject> subjects(int n, int node) {
    std::vector<subject> all;
    add_all<collective::all_reduce>(all, node);
    add_all<collective::broadcast>(all, node);
    add_all<collective::all_gather>(all, node);
    add_all<collective::all_to_all>(all, node);
    std::erase_if(all, [&](const subject& s) { return !s.schedule.supports(n); });
    return all;
}

/// Cables of a network, as its file names them: bandwidths in bytes a second.
struct cables {
    int ranks = 0;
    std::vector<sim::cable> all;
};
cables read_cables(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error(file + " cannot be opened");
    const nlohmann::json from = nlohmann::json::parse(in);
    cables c{from.at("ranks").get<int>(), {}};
    for (const auto& each : from.at("links"))
        c.all.push_back(
            {each.at("from").get<int>(), each.at("to").get<int>(), {0, each.at("gb_s").get<double>() * 1e9}});
    return c;
}
/// Ranks at the switch of rank 0, where others are elsewhere: the nodes of `hierarchical`. Else 0, as it chooses.
int node_of(const cables& c) {
    const auto at = [&](int r) {
        for (const sim::cable& each : c.all)
            if (each.from == r) return each.to;
        return colls::none;
    };
    int node = 0;
    for (int r = 0; r < c.ranks; ++r) node += at(r) == at(0);
    return node < c.ranks ? node : 0;
}

int print_cables(const std::string& file) {
    const cables c = read_cables(file);
    fmt::print("ranks {}\n", c.ranks);
    for (const sim::cable& each : c.all)
        fmt::print("{} {} {:.0f}\n", each.from, each.to, each.each.bandwidth * 8 / 1e6);
    return 0;
}

// ---- a rank ----

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

element value(int rank, std::size_t i) {
    return static_cast<element>(i * 2654435761u + static_cast<unsigned>(rank) * 40503u);
}

/// What a rank has in, and has to get out.
struct data {
    elements in, out, expected;
};
data data_of(collective what, int rank, int n, std::size_t count) {
    const std::size_t block = count / static_cast<std::size_t>(n), mine = static_cast<std::size_t>(rank) * block;
    const bool part_in = what == collective::all_gather, part_out = what == collective::reduce_scatter;
    data d{elements(part_in ? block : count), elements(part_out ? block : count), elements(part_out ? block : count)};
    for (std::size_t i = 0; i < d.in.size(); ++i) d.in[i] = value(rank, i);
    for (std::size_t i = 0; i < d.expected.size(); ++i) {
        element& e = d.expected[i];
        const int of = static_cast<int>(i / block);
        if (what == collective::broadcast) e = value(0, i);
        if (what == collective::all_gather) e = value(of, i % block);
        if (what == collective::all_to_all) e = value(of, mine + i % block);
        if (what == collective::all_reduce || what == collective::reduce_scatter)
            for (int r = 0; r < n; ++r) e += value(r, part_out ? mine + i : i);
    }
    return d;
}

/// Seconds from a time at which all ranks begin to the end of the last one. The ranks share a clock.
double timed(colls::communicator& comm, const subject& s, data& d) {
    std::ranges::fill(d.out, element{});
    if (s.schedule.implements == collective::broadcast && comm.rank() == 0) d.out = d.in;
    colls::barrier(comm);
    double begin = now() + 5e-3;
    colls::broadcast(comm, std::span(&begin, 1), 0);
    std::this_thread::sleep_for(std::chrono::duration<double>(begin - now()));
    s.call(comm, d.in, d.out);
    double took = now() - begin;
    colls::all_reduce(comm, std::span(&took, 1), colls::max);
    return took;
}

/// Seconds that a message of 8 bytes takes from rank 0 to rank 1, with its wake-ups.
double latency(colls::communicator& comm) {
    std::vector<double> all;
    double x = 0;
    for (int turn = 0; turn < 200; ++turn) {
        const double begin = now();
        if (comm.rank() == 0) colls::send(comm, std::span(&x, 1), 1);
        if (comm.rank() == 1) colls::recv(comm, std::span(&x, 1), 0), colls::send(comm, std::span(&x, 1), 0);
        if (comm.rank() == 0) colls::recv(comm, std::span(&x, 1), 1), all.push_back((now() - begin) / 2);
    }
    colls::barrier(comm);
    return bench::median(all);
}

/// Seconds in which no rank gets what the collective has to bring it, at the rate of the fastest cable: what the others
/// have of its result. The buckets at both ends of two cables give 12 KB at once.
double least_seconds(const cables& c, double bytes) {
    double fastest = 0;
    for (const sim::cable& each : c.all) fastest = std::max(fastest, each.each.bandwidth);
    return (bytes * (c.ranks - 1) / c.ranks - 12e3) / fastest;
}

int run(const std::string& file, const std::vector<double>& sizes, int turns) {
    colls::communicator comm = colls::world();
    const cables network = read_cables(file);
    const std::vector<subject> all = subjects(comm.size(), node_of(network));
    bool right = true, limited = true;
    std::vector<std::vector<double>> took(all.size() * sizes.size());
    const double message = latency(comm);
    for (int turn = 0; turn < turns; ++turn)
        for (std::size_t i = 0; i < took.size(); ++i) {
            const subject& s = all[i / sizes.size()];
            const auto bytes = static_cast<std::size_t>(sizes[i % sizes.size()]);
            data d = data_of(s.schedule.implements, comm.rank(), comm.size(), bytes / sizeof(element));
            // Short calls are disturbed the most. All ranks have the same times.
            for (int repeat = 0; repeat == 0 || (repeat < 3 && took[i].back() < 0.1); ++repeat) {
                took[i].push_back(timed(comm, s, d));
                right = right && d.out == d.expected;
                limited = limited && took[i].back() >= least_seconds(network, sizes[i % sizes.size()]);
            }
        }
    int wrong = !right;
    colls::all_reduce(comm, std::span(&wrong, 1), colls::sum);
    if (comm.rank() == 0) {
        fmt::print("latency {:.9f}\n", message);
        for (std::size_t i = 0; i < took.size(); ++i)
            fmt::print("{} {} {:.0f} {:.6f} {:.6f} {:.6f}\n", all[i / sizes.size()].family,
                colls::name_of(all[i / sizes.size()].schedule.implements), sizes[i % sizes.size()],
                bench::median(took[i]), std::ranges::min(took[i]), std::ranges::max(took[i]));
        if (wrong > 0) fmt::print("FAILED: wrong results on {} ranks\n", wrong);
        if (!limited) fmt::print("FAILED: a call takes less time than the cables allow\n");
    }
    return wrong == 0 && limited ? 0 : 1;
}

// ---- the table ----

/// The share of a packet's bytes that are a message's: 4000 bytes of IP without 52 of headers, and 14 of Ethernet more.
constexpr double payload = (4000.0 - 52) / (4000 + 14);

struct cell {
    std::string family, what;
    double bytes, measured, simulated, in_rounds;
    double off() const { return (simulated / measured - 1) * 100; }
    double off_in_rounds() const { return (in_rounds / measured - 1) * 100; }
};

std::vector<cell> cells_of(const std::string& file, const std::string& rows) {
    cables c = read_cables(file);
    std::ifstream in(rows);
    std::string word, what;
    double latency = 0, bytes = 0, measured = 0, least = 0, most = 0;
    if (!(in >> word >> latency) || word != "latency") throw std::runtime_error(rows + " has no rows of a run");
    for (sim::cable& each : c.all) each.each = {latency / 2, each.each.bandwidth * payload};
    const sim::topology net = sim::graph(c.ranks, c.all);
    const std::vector<subject> all = subjects(c.ranks, node_of(c));
    std::vector<cell> cells;
    while (in >> word >> what >> bytes >> measured >> least >> most)
        for (const subject& s : all) {
            if (s.family != word || colls::name_of(s.schedule.implements) != what) continue;
            const auto seconds = [&](const sim::options& o) {
                return sim::simulate(s.schedule, c.ranks, net, bytes, o).seconds;
            };
            cells.push_back({word, what, bytes, measured, seconds({.buffered = true, .chunk = 524288}), seconds({})});
        }
    return cells;
}

std::string name_of_network(const std::string& file) {
    const std::size_t slash = file.rfind('/') + 1;
    return file.substr(slash, file.find('.', slash) - slash);
}

/// `files`: networks and their rows.
int compare(const std::vector<std::string>& files) {
    std::map<std::pair<std::string, std::string>, std::map<std::string, std::string>> errors;  // by collective, family
    std::vector<std::string> networks;
    std::string summary;
    for (std::size_t i = 0; i + 1 < files.size(); i += 2) {
        const std::string& network = networks.emplace_back(name_of_network(files[i]));
        fmt::print("{}\n\n{:<20} {:<15} {:>9} {:>11} {:>11} {:>6} {:>11} {:>6}\n", network, "family", "collective",
            "bytes", "measured ms", "simulated", "%", "in rounds", "%");
        int near = 0, near_in_rounds = 0;
        const std::vector<cell> cells = cells_of(files[i], files[i + 1]);
        const cell* worst = nullptr;
        for (const cell& c : cells) {
            fmt::print("{:<20} {:<15} {:>9.0f} {:>11.2f} {:>11.2f} {:>6.0f} {:>11.2f} {:>6.0f}\n", c.family, c.what,
                c.bytes, c.measured * 1e3, c.simulated * 1e3, c.off(), c.in_rounds * 1e3, c.off_in_rounds());
            std::string& text = errors[{c.what, c.family}][network];
            text += fmt::format("{}{:+.0f}", text.empty() ? "" : " ", c.off());
            near += std::abs(c.off()) <= 20;
            near_in_rounds += std::abs(c.off_in_rounds()) <= 20;
            if (!worst || std::abs(c.off()) > std::abs(worst->off())) worst = &c;
        }
        fmt::print("\n");
        if (worst)
            summary += fmt::format(
                "{}: {} of {} cells within 20 %, the worst {:+.0f} % ({} of {:.0f} bytes by {}); in rounds {}\n",
                network, near, cells.size(), worst->off(), worst->what, worst->bytes, worst->family, near_in_rounds);
    }
    fmt::print(
        "Simulated, as a difference to the measured time in percent, a number for each size:\n\n| collective | family "
        "|");
    for (const std::string& network : networks) fmt::print(" {} |", network);
    fmt::print("\n|---|---|{}\n", fmt::join(std::vector<std::string>(networks.size(), "---|"), ""));
    for (auto& [of, by_network] : errors) {
        fmt::print("| {} | {} |", of.first, of.second);
        for (const std::string& network : networks) fmt::print(" {} |", by_network[network]);
        fmt::print("\n");
    }
    fmt::print("\n{}", summary);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    try {
        if (words.size() == 2 && words[0] == "cables") return print_cables(words[1]);
        if (words.size() >= 4 && words[0] == "run") {
            std::vector<double> sizes;
            for (std::size_t i = 2; i + 1 < words.size(); ++i) sizes.push_back(std::stod(words[i]));
            return run(words[1], sizes, std::stoi(words.back()));
        }
        if (words.size() >= 3 && words.size() % 2 == 1 && words[0] == "compare")
            return compare({words.begin() + 1, words.end()});
    } catch (const std::exception& e) {
        fmt::print(stderr, "validate_simulator: {}\n", e.what());
        return 2;
    }
    fmt::print(
        stderr, "usage: validate_simulator cables NETWORK | run NETWORK BYTES... TURNS | compare (NETWORK ROWS)...\n");
    return 2;
}
