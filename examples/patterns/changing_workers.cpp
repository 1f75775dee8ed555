// Training whose workers come and go: some are killed, some stopped until the others have left them out, and woken, new
// ones are started, all at random. Workers share each batch, however many they are; they meet after each step
// (elastic::member), and newcomers get the weights from one that has them. A folder is the door: of each process it
// says where it is reached. At the end the network is as good as one that a single process has trained.
//
// ranks: 0 3 0
// Run: changing_workers [--seconds 60] [--ranks 6] [--transport tcp] [--plot FILE]
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/options.hpp"
#include "../common/plot.hpp"
#include "../common/table.hpp"

#include <colls/colls.hpp>
#include <colls/elastic.hpp>
#include <colls/patterns/broadcast_spans.hpp>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace example;
namespace fs = std::filesystem;
using stopwatch = std::chrono::steady_clock;

struct settings {
    int ranks = 6, hosts = 1, batch = 120;
    double seconds = 60, deadline = 1;
    std::uint64_t seed = 1;
    bool stops = true;
    std::string folder;
    std::vector<int> widths{784, 64, 32, 10};
};

/// What the workers leave in memory for the process that has started them.
struct board {
    enum kind { step, joined, changed, error, recovered, left_out };
    struct event {
        double at;     // seconds since the beginning
        double value;  // of a step, a recovery: how long it took
        kind what;
        int members, worker;
    };
    static constexpr std::size_t most_events = 1 << 18, most_weights = 1 << 18;

    std::atomic<bool> over{false};  // the workers are to end
    std::atomic<std::size_t> count{0};
    event events[most_events];
    std::atomic<std::uint64_t> steps{0};  // of the final weights
    std::atomic<bool> alike{true};        // all workers had the same weights at the end
    double weights[most_weights];
};
board& shared_board() {
    static board* const b = [] {
        void* const at =
            mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) throw std::runtime_error("no memory is left for the workers' notes");
        return new (at) board;
    }();
    return *b;
}
double since(stopwatch::time_point begin) { return std::chrono::duration<double>(stopwatch::now() - begin).count(); }

/// The network after a number of steps, and as it was one step before.
class trainee {
public:
    trainee(const settings& how, const dataset& data)
        : how_(how), data_(data), net_(how.widths, how.seed), order_(static_cast<std::size_t>(data.size())) {
        std::iota(order_.begin(), order_.end(), 0);
        std::mt19937_64 random(how.seed);
        for (std::size_t i = order_.size() - 1; i > 0; --i) std::swap(order_[i], order_[random() % (i + 1)]);
    }
    std::uint64_t step() const { return step_; }
    std::span<double> weights() { return net_.parameters(); }
    std::span<double> velocity() { return net_.velocity(); }
    std::span<double> gradient() { return net_.gradient(); }

    /// This rank's part of the next batch's gradient; returns its loss.
    double learn(int rank, int ranks) {
        const auto batch = static_cast<std::size_t>(how_.batch);
        const auto own = colls::block_of(batch, ranks, rank);
        samples_.clear(), labels_.clear();
        for (std::size_t i = 0; i < own.size; ++i) {
            samples_.push_back(order_[(step_ * batch + own.offset + i) % order_.size()]);
            labels_.push_back(data_.labels[static_cast<std::size_t>(samples_.back())]);
        }
        read_batch(data_, samples_, images_);
        return net_.backward(images_, labels_, how_.batch, std::size_t{1} << 20, [](std::size_t) {});
    }
    /// With the whole gradient.
    void advance() {
        before_.assign(weights().begin(), weights().end());
        velocity_before_.assign(velocity().begin(), velocity().end());
        net_.update(0.05 / (1 + static_cast<double>(step_) / 1000), 0.9);
        ++step_;
    }
    /// False: it has no weights of that step.
    bool go_back_to(std::uint64_t step) {
        if (step + 1 == step_ && !before_.empty()) {
            std::ranges::copy(before_, weights().begin());
            std::ranges::copy(velocity_before_, velocity().begin());
            step_ = step;
        }
        return std::exchange(step_, step) == step;
    }
    void take(std::uint64_t step, std::span<const double> weights, std::span<const double> velocity) {
        std::ranges::copy(weights, this->weights().begin());
        std::ranges::copy(velocity, this->velocity().begin());
        step_ = step;
        before_.clear();
    }
    double accuracy(const dataset& test) {
        std::vector<int> all(static_cast<std::size_t>(test.size()));
        std::iota(all.begin(), all.end(), 0);
        return static_cast<double>(net_.count_correct(batch_of<double>(test, all), test.labels)) / test.size();
    }

private:
    const settings& how_;
    const dataset& data_;
    network<double> net_;
    std::vector<int> order_, samples_;
    std::vector<std::uint8_t> labels_;
    network<double>::matrix images_;
    std::vector<double> before_, velocity_before_;
    std::uint64_t step_ = 0;
};

/// Trains as long as it is to, and as often as it is left out begins again as a newcomer.
class worker {
public:
    worker(int number, const settings& how, const dataset& data, stopwatch::time_point begin)
        : number_(number), how_(how), data_(data), begin_(begin) {}

    int run() {
        while (!shared_board().over.load()) try {
                train();
                return 0;
            } catch (const colls::error& e) {
                // It was stopped, and the others have gone on without it; or no member has admitted it.
                note(board::left_out, 0);
                if (e.code() == colls::errc::invalid_argument) throw;
            } catch (const std::runtime_error&) {
                if (!shared_board().over.load()) throw;  // the others have left meanwhile
            }
        return 0;
    }

private:
    void note(board::kind what, int members, double value = 0) {
        board& b = shared_board();
        const std::size_t i = b.count.fetch_add(1);
        if (i < board::most_events) b.events[i] = {since(begin_), value, what, members, number_};
    }

    // example-begin share
    /// One that has the weights gives them to all. Throws where another one fails.
    void share(colls::communicator& comm, trainee& t, bool& has_weights) {
        constexpr int nobody = std::numeric_limits<int>::max();
        int holder = has_weights ? comm.rank() : nobody;
        colls::all_reduce(comm, std::span(&holder, 1), colls::min);
        if (holder == nobody) throw std::runtime_error("all that had the weights are gone");
        std::uint64_t step = t.step();
        std::vector<double> weights(t.weights().begin(), t.weights().end()),
            velocity(t.velocity().begin(), t.velocity().end());
        colls::broadcast(comm, std::span(&step, 1), holder);
        colls::broadcast_spans(comm, std::vector{std::span(weights), std::span(velocity)}, holder);
        if (!has_weights) t.take(step, weights, velocity);
        has_weights = true;
    }
    // example-end

    // example-begin train
    void train() {
        colls::elastic::folder door(how_.folder);
        colls::elastic::member m(colls::endpoint::open(), door, "training",
            {.admission_timeout = how_.deadline, .patience = how_.deadline / 4});
        trainee t(how_, data_);
        note(board::joined, m.comm().size());
        bool has_weights = m.epoch() == 1;  // it has founded the group
        t.go_back_to(m.done_by_all());
        bool changed = true, failing = false, over = false;
        for (stopwatch::time_point failed; !over;) {
            try {
                if (changed) {
                    share(m.comm(), t, has_weights);
                    if (m.comm().rank() == 0) note(board::changed, m.comm().size());
                    changed = false;
                }
                const auto began = stopwatch::now();
                double sums[2] = {t.learn(m.comm().rank(), m.comm().size()), shared_board().over.load() ? 1.0 : 0.0};
                colls::all_reduce(m.comm(), t.gradient(), colls::sum);
                colls::all_reduce(m.comm(), std::span(sums), colls::sum);
                t.advance();
                over = sums[1] > 0;  // for one of them it is
                if (m.comm().rank() == 0) note(board::step, m.comm().size(), since(began));
                if (failing) note(board::recovered, m.comm().size(), since(failed));
                failing = false;
            } catch (const colls::error&) {
                if (!failing) note(board::error, m.comm().size());
                if (!failing) failed = stopwatch::now();
                failing = true;
            }
            const auto before = stopwatch::now();
            if (!over && m.update(t.step())) {
                if (!failing && !m.gone().empty()) failed = before, failing = true;  // found there
                // Where others went on without this one, which they have let in again, it needs their weights.
                has_weights = t.go_back_to(m.done_by_all()) && has_weights;
                changed = true;
            }
        }
        finish(m.comm(), t);
        m.leave(t.step());
    }
    // example-end

    void finish(colls::communicator& comm, trainee& t) {
        board& b = shared_board();
        if (comm.rank() == 0) {
            std::ranges::copy(t.weights(), b.weights);
            b.steps.store(t.step());
        }
        const double sum = std::accumulate(t.weights().begin(), t.weights().end(), 0.0);
        double both[2] = {sum, -sum};
        try {
            colls::all_reduce(comm, std::span(both), colls::max);
            if (both[0] != -both[1]) b.alike.store(false);
        } catch (const colls::error&) {}  // one was killed at the very end
    }

    const int number_;
    const settings& how_;
    const dataset& data_;
    const stopwatch::time_point begin_;
};

/// Starts workers, and does to them what happens to machines.
class fate {
public:
    struct blow {
        double at;
        std::string what;
        int worker;
    };

    fate(const settings& how, const dataset& data) : how_(how), data_(data), random_(how.seed) {}
    ~fate() {
        for (const process& p : all_)
            if (p.id > 0) kill(p.id, SIGKILL), waitpid(p.id, nullptr, 0);
    }

    void run() {
        for (int i = 0; i < how_.ranks; ++i) start();
        double next = 1.5 * how_.deadline;
        for (double now = 0; now < how_.seconds; usleep(5000), now = since(begin_)) {
            wake(now, 2.5 * how_.deadline);
            if (now < next || now > how_.seconds - 2 * how_.deadline) continue;
            if (!strike(now)) continue;
            next = now + how_.deadline * std::uniform_real_distribution<>(0.7, 2)(random_);
            if (isatty(2)) fmt::print(stderr, "\r{:.0f} s, {} blows ", now, blows.size());
        }
        wake(how_.seconds, 0);
        shared_board().over.store(true);
        // Those in the group end at their next step; one that knocks finds no member.
        for (const auto end = stopwatch::now(); since(end) < 20 && running() > 0; usleep(5000)) reap();
        for (process& p : all_)
            if (p.id > 0) kill(p.id, SIGKILL);
    }

    std::vector<blow> blows;
    int failed = 0;  ///< workers that ended with an error
    stopwatch::time_point begin() const { return begin_; }

private:
    struct process {
        pid_t id = 0;
        double stopped = -1;  // since when
    };

    void start() {
        const int number = static_cast<int>(all_.size());
        std::fflush(stdout);
        const pid_t parent = getpid(), child = fork();
        if (child < 0) throw std::system_error(errno, std::generic_category(), "cannot start a worker");
        if (child > 0) return static_cast<void>(all_.push_back({child}));
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        int status = 1;
        try {
            if (how_.hosts > 1) setenv("COLLS_HOST", std::to_string(number % how_.hosts).c_str(), 1);
            status = worker(number, how_, data_, begin_).run();
        } catch (const std::exception& e) {
            fmt::print(stderr, "worker {}: {}\n", number, e.what());
        }
        _exit(status);
    }
    void reap() {
        for (process& p : all_) {
            int status = 0;
            if (p.id <= 0 || waitpid(p.id, &status, WNOHANG) != p.id) continue;
            failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
            p.id = 0;
        }
    }
    int running() const {
        return static_cast<int>(
            std::count_if(all_.begin(), all_.end(), [](const process& p) { return p.id > 0 && p.stopped < 0; }));
    }
    void wake(double now, double after) {
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (process& p = all_[i]; p.id > 0 && p.stopped >= 0 && now - p.stopped >= after) {
                kill(p.id, SIGCONT);
                p.stopped = -1;
                blows.push_back({now, "woken", static_cast<int>(i)});
            }
    }
    /// The size of the latest group, whose members all have the weights.
    static int members() {
        const board& b = shared_board();
        for (std::size_t i = std::min(b.count.load(), board::most_events); i-- > 0;)
            if (b.events[i].what == board::changed) return b.events[i].members;
        return 0;
    }
    /// False: nothing can be done just now.
    bool strike(double now) {
        reap();
        std::vector<std::size_t> able;
        for (std::size_t i = 0; i < all_.size(); ++i)
            if (all_[i].id > 0 && all_[i].stopped < 0) able.push_back(i);
        const int kinds = static_cast<int>(able.size()) > std::max(2, how_.ranks / 2) ? how_.stops ? 3 : 2 : 1;
        // The first one is no start.
        const int least = blows.empty() && kinds > 1 ? 1 : 0;
        const int kind = least + static_cast<int>(random_() % static_cast<unsigned>(kinds - least));
        if (kind == 0) {
            if (static_cast<int>(able.size()) >= how_.ranks + 2) return false;
            start();
            blows.push_back({now, "started", static_cast<int>(all_.size()) - 1});
            return true;
        }
        if (members() < 3) return false;  // the weights are to be left
        const std::size_t victim = able[random_() % able.size()];
        kill(all_[victim].id, kind == 1 ? SIGKILL : SIGSTOP);
        if (kind == 1) waitpid(all_[victim].id, nullptr, 0);
        kind == 1 ? void(all_[victim].id = 0) : void(all_[victim].stopped = now);
        blows.push_back({now, kind == 1 ? "killed" : "stopped", static_cast<int>(victim)});
        return true;
    }

    const settings& how_;
    const dataset& data_;
    std::mt19937_64 random_;
    std::vector<process> all_;
    const stopwatch::time_point begin_ = stopwatch::now();
};

/// The value below which that part of them is; 0 of none.
double quantile(std::vector<double> all, double part) {
    if (all.empty()) return 0;
    std::ranges::sort(all);
    return all[std::min(all.size() - 1, static_cast<std::size_t>(part * static_cast<double>(all.size())))];
}

}  // namespace

int main(int argc, char** argv) {
    settings how;
    bool quick = false, deaths_alone = false;
    std::string transport = "processes", plot_file, folder = "/usr/share/datasets/fashion-mnist";
    example::options options("Training whose workers are killed, stopped, woken and started at random.");
    options.add("-r,--ranks", how.ranks, "workers at the beginning", example::between(2, 64));
    options.add("-t,--transport", transport, "processes (shared memory), or tcp", {"processes", "tcp"});
    options.add("--hosts", how.hosts, "hosts to emulate: TCP between them, memory within each", example::between(1, 8));
    options.add("--seconds", how.seconds, "how long to train", example::between(4, 3600));
    options.add("--deadline", how.deadline, "seconds until a stopped worker is left out", example::between(0.2, 60));
    options.add("--seed", how.seed, "of what happens");
    options.add("--deaths-alone", deaths_alone, "stop no worker");
    options.add("--quick", quick, "a few seconds");
    options.add("--plot", plot_file, "the SVG file to write the chart to");
    options.add("--data", folder, "folder of the dataset");
    int status = 0;
    if (!options.parse(argc, argv, status)) return status;
    how.stops = !deaths_alone;
    if (quick) how.seconds = 14, how.deadline = 2;
    if (transport == "tcp") setenv("COLLS_TRANSPORT", "tcp", 1);
    setenv("COLLS_TIMEOUT", fmt::format("{}", how.deadline).c_str(), 1);

    how.folder = (fs::temp_directory_path() / "changing_workers.XXXXXX").string();
    if (mkdtemp(how.folder.data()) == nullptr) return fmt::print(stderr, "cannot make {}\n", how.folder), 2;
    try {
        const dataset data = load_fashion_mnist(folder, quick ? "t10k" : "train");
        const dataset test = quick ? data : load_fashion_mnist(folder, "t10k");
        const board& b = shared_board();
        fmt::print("{} workers train for {:.0f} s\n", how.ranks, how.seconds);
        fate f(how, data);
        f.run();

        std::vector<double> steps, after_kill, after_stop, kill_noticed, stop_noticed;
        plot members("Training whose workers come and go", {"seconds"}, {.label = "workers in the group"});
        plot pace("", {"seconds"}, {.label = "from one step to the next", .logarithmic = true, .in = unit::seconds});
        members.says(
            "Workers are killed, stopped and started; the group goes on with those that are there. A stop costs it a "
            "deadline, a death much less.");
        const std::span events(b.events, std::min(b.count.load(), board::most_events));
        int in_group = 0, changes = 0;
        for (const board::event& e : events) {
            if (e.what == board::changed) {
                members.add("workers", e.at, in_group);
                members.add("workers", e.at, in_group = e.members);
                ++changes;
            }
            if (e.what == board::step) steps.push_back(e.value);
            if (e.what != board::recovered) continue;
            const double failed = e.at - e.value;
            const auto last = std::find_if(f.blows.rbegin(), f.blows.rend(),
                [&](auto& w) { return w.at < failed && (w.what == "killed" || w.what == "stopped"); });
            (last != f.blows.rend() && last->what == "killed" ? after_kill : after_stop).push_back(e.value);
        }
        members.add("workers", how.seconds, in_group);
        const std::size_t every = std::max<std::size_t>(steps.size() / 400, 1);
        std::size_t number = 0;
        double longest = 0, last = -1;
        for (const board::event& e : events)
            if (e.what == board::step) {
                longest = std::max(longest, last < 0 ? e.value : e.at - last);
                last = e.at;
                if (++number % every != 0) continue;
                pace.add("the longest of " + std::to_string(every), e.at, longest);
                longest = 0;
            }
        for (const fate::blow& w : f.blows) {
            if (w.what != "killed" && w.what != "stopped") continue;
            bool member = false;
            for (const board::event& e : events)
                if (e.worker == w.worker && e.at < w.at && (e.what == board::joined || e.what == board::left_out))
                    member = e.what == board::joined;
            if (!member) continue;
            const auto noticed = std::ranges::find_if(
                events, [&](auto& e) { return (e.what == board::error || e.what == board::changed) && e.at > w.at; });
            if (noticed != events.end())
                (w.what == "killed" ? kill_noticed : stop_noticed).push_back(noticed->at - w.at);
        }
        table t({"what", "times", "median", "99 %"});
        const auto row = [&](const char* what, const std::vector<double>& all) {
            t.add(
                what, all.size(), shown(quantile(all, 0.5), unit::seconds), shown(quantile(all, 0.99), unit::seconds));
        };
        row("a step", steps);
        row("a death: until it is noticed", kill_noticed);
        row("a stop: until it is noticed", stop_noticed);
        row("a death: from then, or the boundary that finds it, to the next step", after_kill);
        row("a stop: the same", after_stop);
        std::string what_happened;
        for (const char* what : {"killed", "stopped", "woken", "started"})
            what_happened += fmt::format("{}{} {}", what_happened.empty() ? "" : ", ",
                std::ranges::count(f.blows, std::string(what), &fate::blow::what), what);
        fmt::print("{}: the group changed {} times\n\n{}\n", what_happened, changes, t.text());

        trainee changed(how, data), alone(how, data);
        const std::uint64_t made = b.steps.load();
        changed.take(made, std::span(b.weights, changed.weights().size()), changed.velocity());
        while (alone.step() < made) alone.learn(0, 1), alone.advance();
        double apart = 0;
        for (std::size_t i = 0; i < alone.weights().size(); ++i)
            apart = std::max(apart, std::abs(alone.weights()[i] - changed.weights()[i]));
        const double with = changed.accuracy(test), without = alone.accuracy(test);
        fmt::print(
            "{} steps: accuracy {:.2f} %, of one process that nothing interrupts {:.2f} %; weights differ by {:.1e}\n",
            made, 100 * with, 100 * without, apart);
        if (!plot_file.empty()) plots({members, pace}).write(plot_file);

        const auto check = [&](const std::string& what, bool ok) {
            fmt::print("{}: {}\n", what, ok ? "yes" : "NO");
            if (!ok) status = 1;
        };
        check("the group has changed", changes >= 3 && !(after_kill.empty() && after_stop.empty()));
        check("the network has learnt", made > 0 && (made < 200 || with > 0.6));
        check("its accuracy is that of one process", std::abs(with - without) < 0.01);
        check("all workers had the same weights at the end", b.alike.load());
        check("no worker has failed", f.failed == 0);
    } catch (const std::exception& e) {
        fmt::print(stderr, "changing_workers: {}\n", e.what());
        status = 2;
    }
    std::error_code ignored;
    fs::remove_all(how.folder, ignored);
    return status;
}
