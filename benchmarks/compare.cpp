// Compares the library with a peer on one machine: the processes of an MPI, those of Gloo, or two that stream through a
// pair of sockets. Each side is a program of its own, started once; the sides take short alternating turns and sleep in
// between. The latency of a cache line between two cores is measured around every turn, because a virtual machine may
// move its cores apart within minutes; figures are compared within one such state only.
#include "sides.hpp"
#include "variants.hpp"

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

namespace {

using bench::job;
using bench::median;
using bench::show_size;
using bench::state_of;
using bench::states;

struct settings {
    std::vector<int> ranks{2, 4, 8};
    std::vector<std::string> jobs{std::begin(bench::job_names), std::begin(bench::job_names) + 6};
    std::vector<std::string> sizes{"8", "64", "256", "1K", "4K", "32K", "256K", "2M", "16M"};
    std::vector<std::uint32_t> variants{0};
    int turns = 5;
    double seconds = 0.2;
    std::string ours, peer = "mpi", peer_program, mpirun = "mpirun", json, transport = "threads";
    bool quick = false, check = false;
};

template <class Names>
std::ptrdiff_t index_in(const Names& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) - std::begin(names);
}

/// The words that start the peer: Open MPI on the transport that our side uses (shared memory, TCP on loopback only, or
/// the RDMA device by UCX), Gloo or the sockets.
std::vector<std::string> peer_command(const settings& s, int ranks) {
    if (s.peer != "mpi") return {s.peer_program};
    std::vector<std::string> words{
        s.mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)};
    if (s.transport == "tcp")
        for (const char* word :
            {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"})
            words.emplace_back(word);
    if (s.transport == "verbs") {
        const char* const device = std::getenv("COLLS_VERBS_DEVICE");
        // UCX connects by datagrams, and rejects those of soft-RoCE unless this check is off.
        for (const char* word :
            {"--mca", "pml", "ucx", "-x", "UCX_TLS=rc_v,self", "-x", "UCX_UD_VERBS_ETH_DGID_CHECK=n", "-x"})
            words.emplace_back(word);
        words.push_back(fmt::format("UCX_NET_DEVICES={}:1", device ? device : "rxe0"));
    }
    words.push_back(s.peer_program);
    return words;
}

bool all_reduces(job j) { return j == job::all_reduce || j == job::all_reduce_in_place; }
/// Bus bandwidth over algorithm bandwidth (size / time), as nccl-tests defines them: what each rank's link carries.
double bus_factor(job j, int n) {
    const double others = static_cast<double>(n - 1) / n;
    return all_reduces(j) ? 2 * others : j == job::broadcast ? 1 : others;
}
/// Bytes that a call must load and store, over those that n ranks load and store when each copies the call's size.
double bound_over_copy(job j, int n) {
    switch (j) {
        case job::broadcast:
            return static_cast<double>(n - 1) / n;
        case job::reduce_scatter:
            return (n + 1.0) / (2.0 * n);
        default:
            return 1;
    }
}
/// The project's target for the peer's time over ours.
std::optional<double> target_of(const settings& s, job j, int n, std::size_t bytes) {
    if (s.peer == "sockets") return bytes >= 2 << 20 ? std::optional(0.8) : std::nullopt;
    if (s.peer == "gloo")
        return s.transport == "tcp" && all_reduces(j) && n == 2 && bytes <= 32 << 10 ? std::optional(10.0)
                                                                                     : std::nullopt;
    if (s.transport == "tcp" || s.transport == "verbs") return 1.0;
    if (!all_reduces(j)) return {};
    const bool staged = s.transport == "staged";
    if (n > 2) return staged ? 1.5 : 2.0;
    static const std::map<std::size_t, double> ordinary{
        {32 << 10, 1.8}, {256 << 10, 1.6}, {2 << 20, 1.2}, {16 << 20, 1.6}};
    if (staged) {
        const auto at = ordinary.find(bytes);
        return at == ordinary.end() ? 1.0 : at->second;
    }
    static const std::map<std::size_t, double> two{
        {8, 1 / 1.1}, {1 << 10, 1.3}, {4 << 10, 1.3}, {32 << 10, 6}, {256 << 10, 4.5}, {2 << 20, 4}, {16 << 20, 4}};
    const auto at = two.find(bytes);
    if (at == two.end()) return {};
    return at->second;
}

struct samples {
    std::vector<double> ours, peer, ratio, copy, line;
};

class comparison {
public:
    explicit comparison(const settings& s) : s_(s), ticks_per_ns_(bench::measure_ticks_per_ns()) {}

    int run() {
        std::vector<std::size_t> sizes;
        for (const auto& text : s_.sizes) sizes.push_back(bench::parse_size(text));
        const std::size_t largest = std::max<std::size_t>(4096, *std::max_element(sizes.begin(), sizes.end()));
        for (const int n : s_.ranks) {
            bench::sides sides(n, ticks_per_ns_);
            ours_ = sides.start({s_.ours}, largest, {s_.transport});
            if (!s_.peer.empty()) peer_ = sides.start(peer_command(s_, n), largest);
            for (const auto& name : s_.jobs) {
                const auto j = static_cast<job>(index_in(bench::job_names, name));
                header(j, n);
                for (const std::size_t bytes : sizes) measure(sides, j, n, bench::at_least_one_float(j, n, bytes));
            }
        }
        fmt::print("\n{} of {} targets reached\n", reached_, targets_);
        if (!s_.json.empty()) {
            std::FILE* file = std::fopen(s_.json.c_str(), "w");
            if (!file) throw std::system_error(errno, std::generic_category(), s_.json);
            const std::string text = rows_.dump(2) + "\n";
            std::fwrite(text.data(), 1, text.size(), file);
            std::fclose(file);
        }
        return s_.check && reached_ < targets_ ? 1 : 0;
    }

private:
    double probe() const { return bench::probe_line(ticks_per_ns_); }
    static void header(job j, int n) {
        fmt::print("\n{}, {} ranks, float{}\n", bench::name_of(j), n,
            all_reduces(j) || j == job::reduce_scatter ? " sum" : "");
        fmt::print("{:>9} {:>10} {:>10} {:>7} {:>9} {:>9} {:>7} {:>8} {:<20} {}\n", "size", "ours us", "peer us",
            "ratio", "alg GB/s", "bus GB/s", "bound", "line ns", "schedule", "target");
    }
    void measure(bench::sides& sides, job j, int n, std::size_t bytes) {
        const std::vector<std::uint32_t> variants = all_reduces(j) ? s_.variants : std::vector<std::uint32_t>{0};
        // by variant, then by state of the machine
        std::vector<std::array<samples, states>> seen(variants.size());
        std::vector<std::string> chosen(variants.size());
        for (int t = 0; t < s_.turns; ++t) {
            std::vector<double> lines{probe()};
            std::vector<double> ours;
            for (std::size_t v = 0; v < variants.size(); ++v) {
                ours.push_back(sides.turn(ours_, j, bytes, variants[v], s_.seconds));
                chosen[v] = sides.chosen(ours_);
            }
            lines.push_back(probe());
            const double peer = s_.peer.empty() ? 0 : sides.turn(peer_, j, bytes, 0, s_.seconds);
            const double copy = std::min(sides.turn(ours_, job::copy, bytes, 0, s_.seconds / 4),
                sides.turn(ours_, job::copy, bytes, 1, s_.seconds / 4));
            lines.push_back(probe());
            const int state = state_of(lines[0]);
            const bool same = std::all_of(lines.begin(), lines.end(), [&](double l) { return state_of(l) == state; });
            if (isatty(2))
                fmt::print(stderr, "\r{}, {} ranks, {}: turn {} of {}, line {:.0f} ns    ", bench::name_of(j), n,
                    show_size(bytes), t + 1, s_.turns, median(lines));
            if (!same) continue;  // the cores have moved during the turn
            for (std::size_t v = 0; v < ours.size(); ++v) {
                samples& to = seen[v][static_cast<std::size_t>(state)];
                to.ours.push_back(ours[v]);
                to.peer.push_back(peer);
                to.ratio.push_back(peer / ours[v]);
                to.copy.push_back(copy);
                to.line.push_back(median(lines));
            }
        }
        if (isatty(2)) fmt::print(stderr, "\r{:70}\r", "");
        for (std::size_t v = 0; v < seen.size(); ++v)
            for (const samples& at : seen[v])
                if (!at.ours.empty()) row(j, n, bytes, variants[v], chosen[v], at);
        std::fflush(stdout);
    }
    void row(job j, int n, std::size_t bytes, std::uint32_t variant, const std::string& chosen, const samples& at) {
        const double ours = median(at.ours), peer = median(at.peer), ratio = median(at.ratio);
        const double algbw = static_cast<double>(bytes) / ours, bound = bound_over_copy(j, n) * median(at.copy) / ours;
        const auto target = target_of(s_, j, n, bytes);
        std::string verdict;
        if (target && peer > 0) {
            ++targets_;
            reached_ += ratio >= *target;
            verdict = fmt::format("{:.2f} {}", *target, ratio >= *target ? "pass" : "MISS");
        }
        fmt::print("{:>9} {:>10.2f} {:>10.2f} {:>7.2f} {:>9.2f} {:>9.2f} {:>7.2f} {:>8.0f} {:<20} {}\n",
            show_size(bytes), ours / 1e3, peer / 1e3, ratio, algbw, algbw * bus_factor(j, n), bound, median(at.line),
            chosen, verdict);
        rows_.push_back({{"collective", bench::name_of(j)}, {"ranks", n}, {"bytes", bytes}, {"variant", variant},
            {"ours_us", ours / 1e3}, {"peer_us", peer / 1e3}, {"ratio", ratio}, {"algbw_gb_s", algbw},
            {"busbw_gb_s", algbw * bus_factor(j, n)}, {"bound_fraction", bound}, {"line_ns", median(at.line)},
            {"turns", at.ours.size()}, {"schedule", chosen}});
        if (target) rows_.back()["target"] = *target;
    }

    settings s_;
    double ticks_per_ns_;
    int ours_ = 0, peer_ = 1;  // the numbers of the sides
    int targets_ = 0, reached_ = 0;
    nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app{
        "Times a transport against a peer in short alternating turns on this machine.\n\n"
        "size: the larger buffer of a rank (all_gather: the output; reduce_scatter: the input).\n"
        "ours, peer: median over turns of the median call, us; a call ends when its last rank ends.\n"
        "ratio: peer / ours, the median over pairs of turns. bus GB/s: as nccl-tests.\n"
        "bound: fraction reached of the traffic that cannot be avoided (all_reduce: 2nS bytes) at the bandwidth\n"
        "of n ranks copying, measured in the same turns. line: one way between cores 0 and 1; one row for each\n"
        "state of the machine that occurred (below 100 ns, below 320 ns, above).\n"
        "target: the ratio that the project asks for."};
    const std::string here = std::string(argv[0]).substr(0, std::string(argv[0]).find_last_of('/') + 1);
    s.ours = here + "side_colls";
    bool alone = false;
    std::vector<std::string> schedules;
    app.add_option("-n,--ranks", s.ranks, "group sizes")->delimiter(',')->capture_default_str();
    app.add_option("-c,--collectives", s.jobs, "collectives")
        ->delimiter(',')
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(bench::job_names), std::begin(bench::job_names) + 6)))
        ->capture_default_str();
    app.add_option("-s,--sizes", s.sizes, "sizes in bytes, with K, M or G")->delimiter(',')->capture_default_str();
    app.add_option("-t,--turns", s.turns, "turns of each side per size")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--seconds", s.seconds, "length of a turn")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--schedules", schedules, "schedules of our side's all_reduce, a row for each")
        ->delimiter(',')
        ->check(CLI::IsMember(bench::variant_names()));
    app.add_option("--variants", s.variants, "as --schedules, by number, for another program of our side")
        ->delimiter(',');
    app.add_option("--transport", s.transport, "transport of our side; staged: processes with ordinary buffers")
        ->check(CLI::IsMember({"threads", "shm", "staged", "tcp", "verbs"}))
        ->capture_default_str();
    app.add_option("--ours", s.ours, "the program of our side")->capture_default_str();
    app.add_option("--peer", s.peer,
           "mpi: Open MPI, through shared memory (tcp: its tcp BTL on loopback; verbs: UCX's rc_verbs); gloo: over "
           "TCP; sockets: one pair of\n"
           "sockets that streams both ways at once, the bound of all_gather on 2 ranks")
        ->check(CLI::IsMember({"mpi", "gloo", "sockets"}))
        ->capture_default_str();
    app.add_option("--peer-program", s.peer_program, "another program of the peer");
    app.add_option("--mpirun", s.mpirun, "the mpirun that starts the peer")->capture_default_str();
    app.add_flag("--alone", alone, "time our side only");
    app.add_flag("--quick", s.quick, "all_reduce only, on 2 and 4 ranks, fewer and shorter turns");
    app.add_flag("--check", s.check, "exit with 1 if a target is missed");
    app.add_option("--json", s.json, "write the figures to this file");
    CLI11_PARSE(app, argc, argv);
    if (alone) s.peer.clear();
    if (s.peer_program.empty()) s.peer_program = here + "side_" + s.peer;
    if (!schedules.empty()) s.variants.clear();
    for (const auto& name : schedules)
        s.variants.push_back(static_cast<std::uint32_t>(index_in(bench::variant_names(), name)));
    if (s.quick) {
        s.ranks = {2, 4};
        s.jobs = {"all_reduce", "all_reduce_in_place"};
        s.turns = 3;
        s.seconds = 0.1;
    }
    if (s.peer == "gloo") std::erase(s.jobs, "reduce_scatter");  // the interface measured here has none
    if (s.peer == "sockets") {
        s.ranks = {2};
        s.jobs = {"all_gather"};
    }
    try {
        if (!s.peer.empty() && access(s.peer_program.c_str(), X_OK) != 0)
            throw std::runtime_error(
                fmt::format("{}: {}. It is built where CMake finds {}; --alone runs without it", s.peer_program,
                    std::strerror(errno), s.peer == "gloo" ? "Gloo (libgloo-dev)" : "an MPI (libopenmpi-dev)"));
        return comparison(s).run();
    } catch (const std::exception& e) {
        fmt::print(stderr, "\ncompare: {}\n", e.what());
        return 2;
    }
}
