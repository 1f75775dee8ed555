// A check on the loops of measure.hpp: what Intel's IMB-MPI1 measures of Intel MPI, beside what our loops measure of
// the same library. IMB calls in a tight loop on the same buffers, which nothing rewrites: lines that a call does not
// write stay in the caches of both cores, and calls may overlap. Our loops rewrite the input and read the output
// between calls.
#include "sides.hpp"

#include <CLI/CLI.hpp>

#include <map>
#include <sstream>

namespace {

using bench::job;

/// IMB's names, and its size for one of ours: a block of all_gather, all_to_all and reduce_scatter for
/// Reduce_scatter_block.
const std::map<job, std::string> names{{job::all_reduce, "Allreduce"}, {job::broadcast, "Bcast"},
    {job::all_gather, "Allgather"}, {job::reduce_scatter, "Reduce_scatter_block"}, {job::all_to_all, "Alltoall"}};
std::size_t imb_size(job j, int ranks, std::size_t bytes) {
    const bool by_block = j == job::all_gather || j == job::all_to_all || j == job::reduce_scatter;
    return by_block ? bytes / static_cast<std::size_t>(ranks) : bytes;
}

/// Microseconds a call, by size: the column t_max of IMB's table.
std::map<std::size_t, double> imb(const std::string& peer, int ranks, const std::string& options) {
    const std::string command = fmt::format("{}/imb {} {} 2>&1", peer, ranks, options);
    std::FILE* out = popen(command.c_str(), "r");
    if (!out) throw std::system_error(errno, std::generic_category(), command);
    std::map<std::size_t, double> times;
    std::string all;
    char line[512];
    while (std::fgets(line, sizeof line, out)) {
        all += line;
        std::istringstream words(line);
        std::size_t bytes = 0;
        double repetitions = 0, least = 0, most = 0;
        if (words >> bytes >> repetitions >> least >> most) times[bytes] = most;
    }
    if (pclose(out) != 0 || times.empty()) throw std::runtime_error(command + " failed:\n" + all);
    return times;
}

}  // namespace

int main(int argc, char** argv) {
    std::string peer = "build/peers/impi";
    std::vector<std::string> sizes{"8", "4K", "32K", "256K", "2M", "16M"};
    int ranks = 2, turns = 3;
    CLI::App app{
        "Prints what IMB-MPI1 and our loops measure of Intel MPI, in turns: scripts/bench --check-imb.\n\n"
        "imb: its t_max with buffers that are used again and again; imb cold: with -off_cache, which steps through\n"
        "memory. ours: the median call. All in us, medians over turns."};
    app.add_option("--peer", peer, "Intel MPI, as scripts/install-peers makes it")->capture_default_str();
    app.add_option("-n,--ranks", ranks, "group size")->capture_default_str();
    app.add_option("-t,--turns", turns, "turns of each")->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("-s,--sizes", sizes, "sizes in bytes, with K, M or G")->delimiter(',')->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    try {
        const double ticks_per_ns = bench::measure_ticks_per_ns();
        std::vector<std::size_t> bytes;
        for (const auto& text : sizes) bytes.push_back(bench::parse_size(text));
        bench::sides sides(ranks, ticks_per_ns);
        const int side = sides.start(
            {peer + "/run", std::to_string(ranks)}, std::max<std::size_t>(4096, *std::ranges::max_element(bytes)));
        fmt::print("{:<16} {:>9} {:>10} {:>10} {:>10} {:>11} {:>8}\n", "collective", "size", "imb us", "imb cold",
            "ours us", "ours/imb", "line ns");
        for (const auto& [j, name] : names)
            for (const std::size_t size : bytes) {
                const std::size_t whole = bench::at_least_one_float(j, ranks, size), block = imb_size(j, ranks, whole);
                // IMB makes a table from 2^low to 2^high; it has no other way to ask for one size.
                int log = 0;
                while ((std::size_t{1} << (log + 1)) <= block) ++log;
                // About as long as a turn of our loops; -time is only a limit.
                const std::size_t calls = std::clamp<std::size_t>((64 << 20) / (whole + 4096), 10, 5000);
                const std::string options =
                    fmt::format("{} -npmin {} -msglog {}:{} -iter {} -iter_policy off -time 20 -imb_barrier 1", name,
                        ranks, log, log, calls);
                std::vector<double> warm, cold, ours, line;
                for (int t = 0; t < turns; ++t) {
                    line.push_back(bench::probe_line(ticks_per_ns));
                    warm.push_back(imb(peer, ranks, options).rbegin()->second);
                    ours.push_back(sides.turn(side, j, whole, 0, 0.2) / 1e3);
                    cold.push_back(imb(peer, ranks, options + " -off_cache 64").rbegin()->second);
                }
                fmt::print("{:<16} {:>9} {:>10.2f} {:>10.2f} {:>10.2f} {:>11.2f} {:>8.0f}\n", bench::name_of(j),
                    bench::show_size(whole), bench::median(warm), bench::median(cold), bench::median(ours),
                    bench::median(ours) / bench::median(warm), bench::median(line));
                std::fflush(stdout);
            }
    } catch (const std::exception& e) {
        fmt::print(stderr, "\ncheck_imb: {}\n", e.what());
        return 2;
    }
}
