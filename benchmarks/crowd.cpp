// Ranks that outnumber the cores by far: how long a group takes to form, and all_reduce, over the number of ranks;
// beside Open MPI. Each group runs alone, one after the other, since ranks that wait take cores from those of another.
#include "crowd_side.hpp"

#include "../examples/common/plot.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

struct settings {
    std::vector<int> ranks{16, 64, 128, 192, 256};
    std::vector<std::string> sides{"threads", "shm", "tcp", "openmpi", "openmpi-tcp"};
    int calls = 11, turns = 1;
    unsigned limit = 180;
    std::string as, plots, mpirun = "mpirun", folder;
};

/// This program's ranks.
int run_side(const std::string& side, int n, int calls) {
    const auto body = [&](colls::communicator& comm) {
        bench::measure_crowd(
            comm.rank(), comm.size(), bench::crowd_sizes, calls,
            [&](std::span<const double> in, std::span<double> out) { colls::all_reduce(comm, in, out, colls::sum); },
            [&] { colls::barrier(comm); });
    };
    if (side == "threads")
        colls::threads::run(n, body);
    else
        colls::processes::run(n, body);
    return 0;
}

struct figures {
    double formed = 0;
    std::map<std::size_t, double> first, median;
};

/// Runs a group in processes of its own. Throws where it fails, or is not over within the limit.
figures measured(const settings& s, const std::string& side, int n) {
    const bool is_peer = side.starts_with("openmpi");
    const std::string command =
        is_peer ? fmt::format(
                      "exec timeout {} {} --allow-run-as-root --oversubscribe --bind-to none {} -n {} {}crowd_mpi {}",
                      s.limit, s.mpirun, side == "openmpi" ? "" : "--mca btl tcp,self", n, s.folder, s.calls)
                : fmt::format("{}exec timeout {} {}crowd --as {} -n {} --calls {}",
                      side == "tcp" ? "COLLS_TRANSPORT=tcp " : "", s.limit, s.folder, side, n, s.calls);
    const double begin = bench::monotonic_seconds();
    std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot start " + command);
    figures f;
    std::string others;
    char line[512];
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
        double a = 0, b = 0;
        std::size_t bytes = 0;
        if (std::sscanf(line, "formed %lf", &a) == 1)
            f.formed = a - begin;
        else if (std::sscanf(line, "call %zu %lf %lf", &bytes, &a, &b) == 3)
            f.first[bytes] = a, f.median[bytes] = b;
        else
            others += line;
    }
    const int status = pclose(pipe);
    if (status != 0 || f.median.size() != std::size(bench::crowd_sizes))
        throw std::runtime_error(fmt::format("{} on {} ranks ended with {}: {}", side, n, WEXITSTATUS(status), others));
    return f;
}

std::string text_of(double seconds) {
    return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6)
           : seconds < 1  ? fmt::format("{:.3g} ms", seconds * 1e3)
                          : fmt::format("{:.3g} s", seconds);
}
std::string text_of_size(std::size_t bytes) {
    return bytes < 1024      ? fmt::format("{} B", bytes)
           : bytes < 1 << 20 ? fmt::format("{} KB", bytes >> 10)
                             : fmt::format("{} MB", bytes >> 20);
}

void compare(const settings& s) {
    using example::unit;
    const example::axis over{"ranks", true}, seconds{"time", true, unit::seconds};
    example::plot forming(
        fmt::format("Until a group is formed, on {} cores", std::thread::hardware_concurrency()), over, seconds);
    std::map<std::size_t, example::plot> calls;
    for (const std::size_t bytes : {bench::crowd_sizes[0], bench::crowd_sizes[3]})
        calls.emplace(bytes, example::plot(fmt::format("all_reduce of {}", text_of_size(bytes)), over, seconds));
    fmt::print("| ranks | side | formed |");
    for (const std::size_t bytes : bench::crowd_sizes) fmt::print(" {} | first |", text_of_size(bytes));
    fmt::print("\n|---|---|---|");
    for (std::size_t i = 0; i < 2 * std::size(bench::crowd_sizes); ++i) fmt::print("---|");
    fmt::print("\n");
    for (const int n : s.ranks)
        for (const std::string& side : s.sides) {
            fmt::print(stderr, "crowd: {} ranks, {}\r", n, side);
            std::vector<figures> all;
            try {
                for (int t = 0; t < s.turns; ++t) all.push_back(measured(s, side, n));
            } catch (const std::exception& e) {
                fmt::print("| {} | {} | {} |\n", n, side, std::string(e.what()).substr(0, 80));
                continue;
            }
            const auto median = [&](auto of) {
                std::vector<double> x;
                for (const figures& f : all) x.push_back(of(f));
                std::sort(x.begin(), x.end());
                return x[x.size() / 2];
            };
            const double formed = median([](const figures& f) { return f.formed; });
            fmt::print("| {} | {} | {} |", n, side, text_of(formed));
            forming.add(side, n, formed);
            for (const std::size_t bytes : bench::crowd_sizes) {
                const double later = median([&](const figures& f) { return f.median.at(bytes); });
                fmt::print(
                    " {} | {} |", text_of(later), text_of(median([&](const figures& f) { return f.first.at(bytes); })));
                if (const auto p = calls.find(bytes); p != calls.end()) p->second.add(side, n, later);
            }
            fmt::print("\n");
            std::fflush(stdout);
        }
    if (s.plots.empty()) return;
    std::filesystem::create_directories(s.plots);
    std::vector<example::plot> charts{forming};
    for (const auto& [bytes, chart] : calls) charts.push_back(chart);
    example::plots(std::move(charts)).write(s.plots + "/crowd.svg");
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app{
        "Groups of many ranks on few cores, one after the other: threads, processes over shared memory and over TCP, "
        "and\n"
        "Open MPI over both. For each: until all ranks have met, and all_reduce by size, the median of later calls and "
        "the\n"
        "first call, each with the barrier that follows."};
    app.option_defaults()->always_capture_default();
    app.add_option("-n,--ranks", s.ranks, "group sizes")->delimiter(',')->check(CLI::Range(1, 4096));
    app.add_option("--sides", s.sides, "what is measured")
        ->delimiter(',')
        ->check(CLI::IsMember({"threads", "shm", "tcp", "openmpi", "openmpi-tcp"}));
    app.add_option("--calls", s.calls, "later calls of each size")->check(CLI::Range(1, 1000));
    app.add_option("--turns", s.turns, "groups of each kind, of which the median counts")->check(CLI::Range(1, 100));
    app.add_option("--limit", s.limit, "seconds of a group");
    app.add_option("--plots", s.plots, "write crowd.svg into this folder");
    app.add_option("--mpirun", s.mpirun, "of Open MPI");
    app.add_option("--as", s.as)->group("");
    CLI11_PARSE(app, argc, argv);
    s.folder = std::filesystem::canonical("/proc/self/exe").parent_path().string() + "/";
    try {
        if (!s.as.empty()) return run_side(s.as, s.ranks.front(), s.calls);
        compare(s);
    } catch (const std::exception& e) {
        fmt::print(stderr, "crowd: {}\n", e.what());
        return 2;
    }
}
