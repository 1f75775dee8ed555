// Compares the library with a peer on one machine: the processes of an MPI, those of Gloo, or two that stream through a
// pair of sockets. Each side is a program of its own, started once; the sides take short alternating turns and sleep in
// between. The latency of a cache line between two cores is measured around every turn, because a virtual machine may
// move its cores apart within minutes; figures are compared within one such state only.
#include "measure.hpp"

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

namespace {

using bench::job;

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

double median(std::vector<double> v) {
    if (v.empty()) return 0;
    const auto mid = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
    std::nth_element(v.begin(), mid, v.end());
    return *mid;
}

std::size_t parse_size(const std::string& text) {
    std::size_t end = 0;
    std::size_t value = std::stoull(text, &end);
    for (const char c : text.substr(end)) {
        if (c == 'K' || c == 'k') value <<= 10;
        if (c == 'M' || c == 'm') value <<= 20;
        if (c == 'G' || c == 'g') value <<= 30;
    }
    return value;
}
std::string show_size(std::size_t bytes) {
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MB", bytes >> 20);
    if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KB", bytes >> 10);
    return fmt::format("{} B", bytes);
}

template <class Names>
std::ptrdiff_t index_in(const Names& names, const std::string& name) {
    return std::find(std::begin(names), std::end(names), name) - std::begin(names);
}

/// One side's program, running.
class child {
public:
    explicit child(std::vector<std::string> words) : name_(words.front()) {
        std::vector<char*> argv;
        for (std::string& w : words) argv.push_back(w.data());
        argv.push_back(nullptr);
        id_ = fork();
        if (id_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);  // the sides end when this program ends, however it ends
            execvp(argv[0], argv.data());
            fmt::print(stderr, "cannot run {}: {}\n", name_, std::strerror(errno));
            _exit(127);
        }
    }
    ~child() {
        if (id_ <= 0) return;
        for (int i = 0; i < 300; ++i) {  // a side that was told to quit takes some time to end
            if (waitpid(id_, nullptr, WNOHANG) != 0) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        kill(id_, SIGTERM);
        waitpid(id_, nullptr, 0);
    }
    child(child&& other) noexcept : name_(std::move(other.name_)), id_(std::exchange(other.id_, -1)) {}
    child& operator=(child&&) = delete;
    void throw_if_dead() {
        int status = 0;
        if (id_ > 0 && waitpid(id_, &status, WNOHANG) == id_) {
            id_ = -1;
            throw std::runtime_error(fmt::format("{} ended too early (status {:#x})", name_, status));
        }
    }

private:
    std::string name_;
    pid_t id_ = -1;
};

/// A folder that is removed with all that is in it.
class temporary_folder {
public:
    explicit temporary_folder(std::string path) : path_(std::move(path)) { std::filesystem::create_directory(path_); }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// Starts Open MPI on the transport that our side uses: shared memory, TCP on loopback only, or the RDMA device by UCX.
std::vector<std::string> mpi_command(const settings& s, const std::string& ranks) {
    std::vector<std::string> words{
        s.mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", ranks};
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
    return words;
}

/// Both sides, for one number of ranks.
class arena {
public:
    arena(const settings& s, int ranks, std::size_t largest, double ticks_per_ns)
        : path_(fmt::format("/dev/shm/colls-bench-{}", getpid())), shared_(path_, true) {
        shared_->ranks = static_cast<std::uint32_t>(ranks);
        shared_->cores = std::thread::hardware_concurrency();
        shared_->ticks_per_ns = ticks_per_ns;
        const std::string count = std::to_string(ranks), bytes = std::to_string(largest);
        sides_[0].emplace_back(std::vector<std::string>{s.ours, path_, bytes, s.transport});
        const temporary_folder meeting(path_ + "-meeting");  // until all ranks are ready
        if (s.peer == "mpi") {
            auto words = mpi_command(s, count);
            words.insert(words.end(), {s.peer_program, path_, bytes});
            sides_[1].emplace_back(std::move(words));
        } else if (s.peer == "gloo") {
            for (int r = 0; r < ranks; ++r)
                sides_[1].emplace_back(
                    std::vector<std::string>{s.peer_program, path_, bytes, meeting.path(), std::to_string(r)});
        } else if (s.peer == "sockets") {
            sides_[1].emplace_back(std::vector<std::string>{s.peer_program, path_, bytes});
        }
        for (int side = 0; side < 2; ++side)
            if (!sides_[side].empty())
                wait(side, shared_->sides[side].ready, [&](std::uint32_t r) { return r == shared_->ranks; }, 60);
    }
    ~arena() {
        for (int side = 0; side < 2; ++side) begin(side, job::quit, 0, 0, 0);
    }
    /// One turn: the median of its calls in ns.
    double turn(int side, job what, std::size_t bytes, std::uint32_t variant, double seconds) {
        auto& at = shared_->sides[side];
        const std::uint32_t before = at.done.load();
        begin(side, what, bytes, variant, seconds);
        wait(side, at.done, [&](std::uint32_t d) { return d != before; }, 60);
        if (const auto wrong = at.wrong.exchange(0))
            throw std::runtime_error(fmt::format("{} of {}, {} ranks, side {}: {} elements are wrong",
                bench::name_of(what), show_size(bytes), shared_->ranks, side, wrong));
        return median({at.ns, at.ns + at.calls});
    }
    bool has_peer() const { return !sides_[1].empty(); }
    std::string chosen() const { return shared_->sides[0].chosen; }

private:
    void begin(int side, job what, std::size_t bytes, std::uint32_t variant, double seconds) {
        auto& at = shared_->sides[side];
        at.what = what;
        at.bytes = bytes;
        at.variant = variant;
        at.seconds = seconds;
        at.turn.fetch_add(1);
        bench::wake_all(at.turn);
    }
    template <class Reached>
    void wait(int side, std::atomic<std::uint32_t>& word, Reached reached, double limit) {
        const auto begin = std::chrono::steady_clock::now();
        for (;;) {
            const std::uint32_t now = word.load();
            if (reached(now)) return;
            bench::sleep_while(word, now, 0.5);
            for (child& c : sides_[side]) c.throw_if_dead();
            if (std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(limit))
                throw std::runtime_error(fmt::format("side {} did not answer within {} s", side, limit));
        }
    }
    std::string path_;
    bench::shared_control shared_;
    std::vector<child> sides_[2];
};

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

/// The state of the machine, by the latency of a cache line in ns: hardware threads of one core, one package, farther.
constexpr int states = 3;
constexpr int state_of(double line) { return line < 100 ? 0 : line < 320 ? 1 : 2; }

struct samples {
    std::vector<double> ours, peer, ratio, copy, line;
};

class comparison {
public:
    explicit comparison(const settings& s) : s_(s), ticks_per_ns_(bench::measure_ticks_per_ns()) {}

    int run() {
        std::vector<std::size_t> sizes;
        for (const auto& text : s_.sizes) sizes.push_back(parse_size(text));
        const std::size_t largest = std::max<std::size_t>(4096, *std::max_element(sizes.begin(), sizes.end()));
        for (const int n : s_.ranks) {
            arena sides(s_, n, largest, ticks_per_ns_);
            for (const auto& name : s_.jobs) {
                const auto j = static_cast<job>(index_in(bench::job_names, name));
                header(j, n);
                for (std::size_t bytes : sizes) {
                    if (!all_reduces(j) && j != job::broadcast)
                        bytes = std::max(bytes, sizeof(float) * static_cast<std::size_t>(n));
                    measure(sides, j, n, bytes);
                }
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
    double probe() {
        if (std::thread::hardware_concurrency() < 2) return 0;
        return bench::line_latency(0, 1, ticks_per_ns_);
    }
    static void header(job j, int n) {
        fmt::print("\n{}, {} ranks, float{}\n", bench::name_of(j), n,
            all_reduces(j) || j == job::reduce_scatter ? " sum" : "");
        fmt::print("{:>9} {:>10} {:>10} {:>7} {:>9} {:>9} {:>7} {:>8} {:<20} {}\n", "size", "ours us", "peer us",
            "ratio", "alg GB/s", "bus GB/s", "bound", "line ns", "schedule", "target");
    }
    void measure(arena& sides, job j, int n, std::size_t bytes) {
        const std::vector<std::uint32_t> variants = all_reduces(j) ? s_.variants : std::vector<std::uint32_t>{0};
        // by variant, then by state of the machine
        std::vector<std::array<samples, states>> seen(variants.size());
        std::vector<std::string> chosen(variants.size());
        for (int t = 0; t < s_.turns; ++t) {
            std::vector<double> lines{probe()};
            std::vector<double> ours;
            for (std::size_t v = 0; v < variants.size(); ++v) {
                ours.push_back(sides.turn(0, j, bytes, variants[v], s_.seconds));
                chosen[v] = sides.chosen();
            }
            lines.push_back(probe());
            const double peer = sides.has_peer() ? sides.turn(1, j, bytes, 0, s_.seconds) : 0;
            const double copy = std::min(
                sides.turn(0, job::copy, bytes, 0, s_.seconds / 4), sides.turn(0, job::copy, bytes, 1, s_.seconds / 4));
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
        ->check(
            CLI::IsMember(std::vector<std::string>(std::begin(bench::variant_names), std::end(bench::variant_names))));
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
        s.variants.push_back(static_cast<std::uint32_t>(index_in(bench::variant_names, name)));
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
