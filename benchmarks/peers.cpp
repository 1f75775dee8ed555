// Several libraries side by side in one run. This library has three sides: ranks as threads, as processes with buffers
// from allocate(), as processes with ordinary buffers. Each peer is a folder that scripts/install-peers makes. All
// sides take short turns; the latency of a cache line between two cores is measured around each round of turns, because
// a virtual machine may move its cores apart.
#include "peers_picture.hpp"
#include "peers_report.hpp"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

namespace {

using bench::job;

struct settings {
    std::vector<int> ranks{2, 4};
    std::vector<std::string> jobs{std::begin(bench::job_names), std::begin(bench::job_names) + 6};
    std::vector<std::string> sizes{"8", "4K", "32K", "256K", "2M", "16M"};
    std::vector<std::string> ways{"threads", "allocated", "ordinary"}, peers;
    int turns = 5;
    double minutes = 18;
    std::string ours, folder = "build/peers", json, page, cells, cells_link, summary, picture, picture_link, note,
                      command, from;
    bool quick = false, realtime = false;
};

/// A peer whose turn takes longer, in seconds, is left out: ranks that spin on a core that others need.
constexpr double slowest_turn = 5;

/// The name that side_colls has for one of our ways.
std::string transport_of(const std::string& way) {
    return way == "allocated" ? "shm" : way == "ordinary" ? "staged" : "threads";
}

bench::peer_about about(const std::string& folder, const std::string& name) {
    bench::peer_about peer;
    peer.name = name;
    std::ifstream file(folder + "/" + name + "/about");
    std::string lacks;
    std::getline(file, peer.title) && std::getline(file, peer.settings) && std::getline(file, lacks);
    std::istringstream words(lacks);
    peer.lacks = {std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()};
    if (access((folder + "/" + name + "/run").c_str(), X_OK) != 0)
        peer.left_out = "everywhere: it is not installed (scripts/install-peers says why)";
    return peer;
}

std::string machine() {
    std::string model = "unknown processor", line;
    for (std::ifstream file("/proc/cpuinfo"); std::getline(file, line);)
        if (line.starts_with("model name") && line.find(':') != std::string::npos) {
            model = line.substr(line.find(':') + 2);
            break;
        }
    const std::time_t now = std::time(nullptr);
    char date[32] = "";
    if (const std::tm* utc = std::gmtime(&now)) std::strftime(date, sizeof date, "%Y-%m-%d", utc);
    return fmt::format("{} cores of {}; {}", std::thread::hardware_concurrency(), model, date);
}
double load_average() {
    double one = 0;
    return getloadavg(&one, 1) == 1 ? one : 0;
}

/// The scheduling of this process, and of those that it starts from here on.
void schedule(bool realtime) {
    sched_param parameters{};
    parameters.sched_priority = realtime ? 1 : 0;
    if (sched_setscheduler(0, realtime ? SCHED_RR : SCHED_OTHER, &parameters) != 0 && realtime)
        throw std::system_error(errno, std::generic_category(), "--realtime needs root (CAP_SYS_NICE)");
}

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

class run {
public:
    explicit run(const settings& s) : s_(s), ticks_per_ns_(bench::measure_ticks_per_ns()) {
        report_.ways = s.ways;
        for (const auto& name : s.peers) report_.peers.push_back(about(s.folder, name));
        for (const auto& peer : report_.peers)
            if (!peer.left_out.empty()) fmt::print(stderr, "peers: {} is left out {}\n", peer.name, peer.left_out);
        for (const auto& text : s.sizes) sizes_.push_back(bench::parse_size(text));
        cells_left_ = s.ranks.size() * s.jobs.size() * sizes_.size();
        report_.machine = machine();
        report_.command = s.command;
        report_.note = s.note;
        report_.load_before = load_average();
    }

    const bench::peers_report& measure() {
        const std::size_t largest = std::max<std::size_t>(4096, *std::max_element(sizes_.begin(), sizes_.end()));
        for (const int n : s_.ranks) {
            // Where ranks outnumber cores, a rank that spins would keep the core from the others for a whole time
            // slice.
            if (s_.realtime) schedule(static_cast<unsigned>(n) <= std::thread::hardware_concurrency());
            bench::sides sides(n, ticks_per_ns_);
            std::vector<int> ours, peers;
            for (const auto& way : s_.ways) ours.push_back(sides.start({s_.ours}, largest, {transport_of(way)}));
            for (auto& peer : report_.peers) {
                peers.push_back(-1);
                if (!peer.title.empty())
                    attempt(sides, sides.size(), peers.back(), peer, fmt::format("on {} ranks", n), [&] {
                        peers.back() = sides.start({s_.folder + "/" + peer.name + "/run", std::to_string(n)}, largest);
                    });
            }
            for (const auto& name : s_.jobs) {
                const auto j = static_cast<job>(
                    std::find(std::begin(bench::job_names), std::end(bench::job_names), name) - bench::job_names);
                for (const std::size_t bytes : sizes_)
                    report_.cells.push_back(cell(sides, ours, peers, j, n, bench::at_least_one_float(j, n, bytes)));
            }
        }
        report_.load_after = load_average();
        report_.minutes = seconds_passed() / 60;
        return report_;
    }

private:
    double seconds_passed() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    /// A peer whose `action` throws is left out from there on for this number of ranks.
    template <class Action>
    static void attempt(
        bench::sides& sides, int number, int& side, bench::peer_about& peer, const std::string& where, Action action) {
        try {
            action();
        } catch (const std::exception& e) {
            peer.left_out += fmt::format("{}{}: {}", peer.left_out.empty() ? "" : "; ", where, e.what());
            fmt::print(stderr, "peers: {} is left out {}: {}\n", peer.name, where, e.what());
            side = -1;
            sides.stop(number);
        }
    }

    bench::peers_cell cell(
        bench::sides& sides, const std::vector<int>& ours, std::vector<int>& peers, job j, int n, std::size_t bytes) {
        // So long that what is left of the time suffices for all turns that are left.
        const double all =
            static_cast<double>(cells_left_ * static_cast<std::size_t>(s_.turns) * (ours.size() + peers.size()));
        const double seconds = std::clamp((60 * s_.minutes - seconds_passed()) / all, 0.01, 0.2);
        std::vector<bench::peers_turn> turns;
        std::vector<bool> slow(peers.size());  // peers that get no further turn in this cell
        for (int t = 0; t < s_.turns; ++t) {
            bench::peers_turn turn{bench::probe_line(ticks_per_ns_), 0, std::vector<double>(ours.size()),
                std::vector<double>(peers.size())};
            const std::size_t all_sides = ours.size() + peers.size();
            for (std::size_t k = 0; k < all_sides; ++k) {
                // Another side begins each turn, so that none always follows the same one.
                const std::size_t i = (k + static_cast<std::size_t>(t) * 3) % all_sides;
                if (i < ours.size()) {
                    turn.ours[i] = sides.turn(ours[i], j, bytes, 0, seconds, 1);
                    continue;
                }
                const std::size_t p = i - ours.size();
                bench::peer_about& peer = report_.peers[p];
                if (peers[p] < 0 || slow[p] || peer.lacks.contains(bench::name_of(j))) continue;
                const auto begin = seconds_passed();
                attempt(sides, peers[p], peers[p], peer,
                    fmt::format("from {} of {} on {} ranks on", bench::name_of(j), bench::show_size(bytes), n),
                    [&] { turn.peers[p] = peers_turn(sides, peers[p], j, bytes, seconds); });
                slow[p] = seconds_passed() - begin > 1 + 5 * seconds;
            }
            turn.line_after = bench::probe_line(ticks_per_ns_);
            turns.push_back(std::move(turn));
        }
        const bench::peers_cell made = bench::cell_of(j, n, bytes, turns);
        --cells_left_;
        progress(made);
        return made;
    }
    /// A peer's turn. MPI has two calls that are a reduce_scatter: the faster one counts.
    static double peers_turn(bench::sides& sides, int side, job j, std::size_t bytes, double seconds) {
        const auto take = [&](std::uint32_t variant) {
            return sides.turn(side, j, bytes, variant, seconds, 1, slowest_turn);
        };
        return j == job::reduce_scatter ? std::min(take(0), take(1)) : take(0);
    }
    void progress(const bench::peers_cell& c) const {
        const std::size_t all = s_.ranks.size() * s_.jobs.size() * sizes_.size(), done = all - cells_left_;
        const auto worst = bench::worst_first({c});
        fmt::print(stderr, "[{}/{}] {}, {} ranks, {}: {} {:.2f} us{}; about {:.0f} s left\n", done, all,
            bench::name_of(c.what), c.ranks, bench::show_size(c.bytes), s_.ways[0], c.ours_us[0],
            worst.empty() ? ""
                          : fmt::format(", worst ratio {:.2f} ({}, {})", worst[0].ratio, s_.ways[worst[0].way],
                                report_.peers[worst[0].peer].name),
            seconds_passed() * static_cast<double>(cells_left_) / static_cast<double>(done));
    }

    settings s_;
    double ticks_per_ns_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::vector<std::size_t> sizes_;
    std::size_t cells_left_ = 0;
    bench::peers_report report_;
};

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app{
        "Times this library and several others in short alternating turns on this machine: scripts/bench --peers.\n\n"
        "Prints a page of tables (Markdown): the peer's time over ours for each collective, size and number of ranks,\n"
        "those in which a peer is faster first. Progress goes to the standard error."};
    const std::string here = std::string(argv[0]).substr(0, std::string(argv[0]).find_last_of('/') + 1);
    s.ours = here + "side_colls";
    app.add_option("--peers", s.peers, "names of folders in --folder")->delimiter(',');
    app.add_option("--folder", s.folder, "the peers, as scripts/install-peers makes them")->capture_default_str();
    app.add_option("--ways", s.ways, "ranks and buffers of our side")
        ->delimiter(',')
        ->check(CLI::IsMember({"threads", "allocated", "ordinary"}))
        ->capture_default_str();
    app.add_option("-n,--ranks", s.ranks, "group sizes")
        ->delimiter(',')
        ->check(CLI::Range(1, bench::max_ranks))
        ->capture_default_str();
    app.add_option("-c,--collectives", s.jobs, "collectives")
        ->delimiter(',')
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(bench::job_names), std::begin(bench::job_names) + 6)))
        ->capture_default_str();
    auto* sizes =
        app.add_option("-s,--sizes", s.sizes, "sizes in bytes, with K, M or G")->delimiter(',')->capture_default_str();
    auto* turns = app.add_option("-t,--turns", s.turns, "turns of each side per cell")
                      ->check(CLI::PositiveNumber)
                      ->capture_default_str();
    auto* minutes =
        app.add_option("--minutes", s.minutes,
               "time that the turns are shortened to; it may be exceeded, since a turn has at least two calls")
            ->check(CLI::PositiveNumber)
            ->capture_default_str();
    app.add_flag("--quick", s.quick, "8 B, 32 KB and 2 MB, three turns, about two minutes");
    app.add_flag("--realtime", s.realtime,
        "schedule all sides by SCHED_RR where each rank has a core, so that other programs do not preempt them; needs "
        "root");
    app.add_option("--page", s.page, "write the page to this file instead of the standard output");
    app.add_option("--picture", s.picture, "draw the ratios to this SVG file, as a heat map");
    app.add_option("--cells", s.cells, "write the long tables to this file instead of the page");
    app.add_option("--cells-link", s.cells_link, "path of that file as seen from the page");
    app.add_option("--from", s.from,
        "a page that was written before: draw its ratios, or those of --cells, to --picture, and measure nothing");
    app.add_option("--picture-link", s.picture_link, "path of the picture as seen from the page");
    app.add_option("--summary", s.summary, "write a short table of mean and worst ratios to this file");
    app.add_option("--json", s.json, "write the figures to this file");
    app.add_option("--note", s.note, "a remark for the page, as on what else ran meanwhile");
    app.add_option("--command", s.command, "the command that the page names");
    CLI11_PARSE(app, argc, argv);
    if (s.quick) {
        if (sizes->empty()) s.sizes = {"8", "32K", "2M"};
        if (turns->empty()) s.turns = 3;
        if (minutes->empty()) s.minutes = 1.8;
    }
    if (s.picture_link.empty()) s.picture_link = s.picture;
    if (s.cells_link.empty()) s.cells_link = s.cells;
    if (s.command.empty()) s.command = "scripts/bench --peers ...";
    try {
        if (!s.from.empty()) {
            if (s.picture.empty()) throw std::runtime_error("--from: name the file to draw to: --picture FILE");
            std::stringstream in;
            for (const std::string& name : {s.from, s.cells}) {
                if (name.empty()) continue;
                std::ifstream file(name);
                if (!file) throw std::runtime_error("--from: cannot read " + name);
                in << file.rdbuf();
            }
            try {
                write_file(s.picture, picture(bench::read_page(in)));
            } catch (const std::exception& e) {
                throw std::runtime_error(fmt::format("--from {}: {}", s.from, e.what()));
            }
            return 0;
        }
        if (s.peers.empty()) throw std::runtime_error("--peers: name at least one (scripts/install-peers)");
        run all(s);
        const bench::peers_report& report = all.measure();
        if (!s.json.empty()) write_file(s.json, json_of(report).dump(2) + "\n");
        if (!s.picture.empty()) write_file(s.picture, picture(report));
        if (!s.summary.empty()) write_file(s.summary, summary(report));
        if (!s.cells.empty()) write_file(s.cells, tables(report));
        if (s.page.empty())
            std::cout << page(report, s.picture_link, s.cells_link);
        else
            write_file(s.page, page(report, s.picture_link, s.cells_link));
    } catch (const std::exception& e) {
        fmt::print(stderr, "\npeers: {}\n", e.what());
        return 2;
    }
}
