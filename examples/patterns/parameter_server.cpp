// Training by a parameter server: synchronous, and asynchronous with bounded staleness, beside a slow worker and random
// delays; workers that join late and leave early; and a worker that dies.
//
// ranks: 5 4 4
#include "parameter_server.hpp"
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/program.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace example;
constexpr std::array widths{784, 64, 10};
constexpr std::int64_t unbounded = 1 << 30;

/// One training run. Workers are given by number; `none`: no worker.
struct setup {
    int servers = 1, batch = 32;
    std::int64_t staleness = 0, pushes = 100;  // the run ends when so many pushes are applied
    double rate = 0.1;
    int slow = colls::none;      // sleeps `delay` in each step
    bool random_delays = false;  // every worker sleeps `delay` in one step of four
    std::chrono::milliseconds delay{4};
    int late = colls::none, early = colls::none, dying = colls::none;
    std::int64_t late_after = 0, early_after = 0;  // pushes of all; own pushes
    bool killed = false;  // the dying worker: its process is killed; else it breaks the group and leaves
};

template <class T>
struct outcome {
    bool died = false;             // this rank has left the group
    std::vector<T> parameters;     // on rank 0
    std::vector<request> applied;  // on servers: the pushes in the order of their application
    std::vector<long> staleness =
        std::vector<long>(33);  // how many pulls found the slowest worker so many clocks behind
    long broken = 0;            // pulls that saw a worker more than `staleness` clocks behind or ahead
    double seconds = 0;
};

/// A worker's gradient in its step i, of the batch that worker and step decide.
template <class T>
void compute(network<T>& net, const dataset& data, const setup& how, std::int64_t worker, std::int64_t i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(worker * 1'000'003 + i));
    std::vector<int> samples;
    std::vector<std::uint8_t> labels;
    for (int k = 0; k < how.batch; ++k) {
        samples.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(data.size())));
        labels.push_back(data.labels[static_cast<std::size_t>(samples.back())]);
    }
    net.backward(batch_of<T>(data, samples), labels, how.batch, 1 << 20, [](std::size_t) {});
}

/// A worker's life: founds or joins, steps, leaves.
template <class T>
class worker_loop {
public:
    worker_loop(const setup& how, int worker, int workers, outcome<T>& result)
        : how_(how), worker_(worker), client_(worker, workers, how.servers), net_(widths, 1), result_(result) {}

    /// Returns when the worker has left, or false when it must die.
    bool work(colls::communicator& comm, const dataset& data) {
        if (left_) return true;
        if (where() == presence::not_yet) {
            while (client_.progress(comm) < how_.late_after) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            clock_ = client_.join(comm);
            joined_ = true;
        }
        for (;; ++clock_, ++step_) {
            // example-begin worker
            client_.pull(comm, clock_, net_.parameters());
            record();
            if (client_.status()[0].back() >= how_.pushes || (worker_ == how_.early && step_ == how_.early_after))
                break;
            if (worker_ == how_.dying && step_ == 5) return false;
            compute(net_, data, how_, worker_, step_);
            if (delayed()) std::this_thread::sleep_for(how_.delay);
            client_.push(comm, clock_, net_.gradient());
            // example-end
        }
        client_.leave(comm);
        left_ = true;
        return true;
    }
    void restart(std::int64_t clock) { clock_ = clock; }
    presence where() const {
        if (left_) return presence::gone;
        return worker_ == how_.late && !joined_ ? presence::not_yet : presence::here;
    }

private:
    /// The pushes of the run are applied, and the late worker, if there is one, has made some.
    bool over() {
        const auto& seen = client_.status()[0];
        if (how_.late == colls::none) return seen.back() >= how_.pushes;
        late_seen_ = late_seen_ || seen[static_cast<std::size_t>(how_.late)] != not_here;
        return seen.back() >= how_.pushes && late_seen_ && (worker_ != how_.late || step_ >= 5);
    }
    bool delayed() {
        return worker_ == how_.slow || (how_.random_delays && (worker_ * 7919 + step_ * 104'729) % 64 / 16 == 0);
    }
    void record() {
        std::int64_t behind = 0;
        bool broken = false;
        for (const auto& of_server : client_.status())
            for (std::size_t w = 0; w + 1 < of_server.size(); ++w) {
                if (of_server[w] == not_here) continue;
                behind = std::max(behind, clock_ - of_server[w]);
                broken = broken || std::abs(clock_ - of_server[w]) > how_.staleness;
            }
        ++result_.staleness[std::min(static_cast<std::size_t>(behind), result_.staleness.size() - 1)];
        result_.broken += broken;
    }

    const setup& how_;
    int worker_;
    parameter_client<T> client_;
    network<T> net_;
    outcome<T>& result_;
    std::int64_t clock_ = 0, step_ = 0;
    bool joined_ = false, left_ = false, late_seen_ = false;
};

/// Runs one training. The first ranks are servers. Where a worker dies `comm` becomes the group of the others.
template <class T>
outcome<T> train(colls::communicator& comm, const setup& how, const dataset& data) {
    const int workers = comm.size() - how.servers, worker = comm.rank() - how.servers;
    network<T> start(widths, 1);
    const auto total = start.parameters().size();
    std::vector<bool> founders(static_cast<std::size_t>(workers), true);
    if (how.late != colls::none) founders[static_cast<std::size_t>(how.late)] = false;
    const auto own = worker < 0 ? colls::block_of(total, how.servers, comm.rank()) : colls::buffer_block{};
    parameter_server<T> server(
        start.parameters().subspan(own.offset, own.size), founders, how.staleness, static_cast<T>(how.rate / workers));
    outcome<T> result;
    worker_loop<T> loop(how, worker, workers, result);

    colls::barrier(comm);
    const auto begin = std::chrono::steady_clock::now();
    for (bool done = false; !done;) {
        // example-begin recover
        try {
            if (worker < 0) {
                server.serve(comm);
            } else if (!loop.work(comm, data)) {
                if (how.killed) raise(SIGKILL);
                comm.abort("a worker fails");
                comm = {};
                result.died = true;
                return result;
            }
            colls::barrier(comm);
            done = true;
        } catch (const colls::error& e) {
            if (e.code() != colls::errc::peer_failed) throw;
            comm = comm.shrink();
            std::int32_t servers = worker < 0 ? 1 : 0;
            std::int64_t clock = worker < 0 ? server.next_clock() : 0;
            std::vector<presence> where(static_cast<std::size_t>(workers), presence::gone);
            if (worker >= 0) where[static_cast<std::size_t>(worker)] = loop.where();
            colls::all_reduce(comm, std::span(&servers, 1), colls::sum);
            colls::all_reduce(comm, std::span(&clock, 1), colls::max);
            colls::all_reduce(comm, where, colls::max);
            if (servers < how.servers) throw std::runtime_error("a server died, and its parameters with it");
            server.restart(where, clock);
            loop.restart(clock);
        }
        // example-end
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result.applied = server.applied();
    std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()));
    for (int k = 0; k < how.servers; ++k)
        counts[static_cast<std::size_t>(k)] = colls::block_of(total, how.servers, k).size;
    result.parameters.resize(comm.rank() == 0 ? total : 0);
    colls::gather_v(comm, server.shard(), result.parameters, counts, 0);
    colls::all_reduce(comm, result.staleness, colls::sum);
    colls::all_reduce(comm, std::span(&result.broken, 1), colls::sum);
    return result;
}

/// Synchronous training by one rank with the same steps: the pushes of a clock are summed, then applied.
template <class T>
std::vector<T> serial(const std::vector<request>& pushes, const setup& how, int workers, const dataset& data) {
    network<T> net(widths, 1);
    std::map<std::int64_t, std::set<int>> clocks;
    std::map<int, std::int64_t> first;
    for (const request& p : pushes) {
        clocks[p.clock].insert(p.worker);
        first.try_emplace(p.worker, p.clock);
    }
    std::vector<T> sum(net.parameters().size());
    for (const auto& [clock, who] : clocks) {
        std::ranges::fill(sum, T(0));
        for (const int w : who) {
            compute(net, data, how, w, clock - first[w]);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += net.gradient()[i];
        }
        for (std::size_t i = 0; i < sum.size(); ++i) net.parameters()[i] -= static_cast<T>(how.rate / workers) * sum[i];
    }
    return {net.parameters().begin(), net.parameters().end()};
}

/// Whether every worker's pushes were applied once each, at clocks that follow one another.
bool each_once(const std::vector<request>& pushes) {
    std::map<int, std::set<std::int64_t>> clocks;
    for (const request& p : pushes)
        if (!clocks[p.worker].insert(p.clock).second) return false;
    return std::ranges::all_of(clocks, [](const auto& of) {
        return *of.second.rbegin() - *of.second.begin() + 1 == static_cast<std::int64_t>(of.second.size());
    });
}

double accuracy(const std::vector<float>& parameters, const dataset& test, int images) {
    network<float> net(widths, 1);
    std::ranges::copy(parameters, net.parameters().begin());
    std::vector<int> samples(static_cast<std::size_t>(images));
    std::iota(samples.begin(), samples.end(), 0);
    return 100.0 * net.count_correct(batch_of<float>(test, samples), test.labels) / images;
}

/// A worker breaks the group and leaves, or is killed: the others go on and reach the same number of pushes.
bool survives(colls::communicator& comm, setup how, const dataset& data) {
    const int before = comm.size();
    how.dying = comm.size() - how.servers - 1;
    how.staleness = 2;
    const auto result = train<float>(comm, how, data);
    if (result.died) return true;
    const long pushes = static_cast<long>(result.applied.size());
    const bool right = comm.size() == before - 1 && (comm.rank() != 0 || pushes >= how.pushes);
    if (comm.rank() == 0) fmt::print("{} of {} ranks went on, and applied {} pushes\n", comm.size(), before, pushes);
    return right;
}

}  // namespace

int main(int argc, char** argv) {
    program program("Trains on Fashion-MNIST by a parameter server: synchronous, with bounded staleness, elastic.");
    std::string folder = "/usr/share/datasets/fashion-mnist";
    setup how{.pushes = 0};
    program.default_ranks(5);
    program.cli.add_option("--servers", how.servers, "ranks that hold the parameters; 0: a third of all");
    program.cli.add_option("--pushes", how.pushes, "gradients of a run, of all workers; 0: 2000, or 60 with --quick");
    program.cli.add_option("--batch", how.batch, "images of a gradient")->check(CLI::PositiveNumber);
    program.cli.add_option("--data", folder, "folder of the dataset");
    how.servers = 0;
    const auto sized = [&](int ranks, bool quick) {
        setup s = how;
        if (s.servers == 0) s.servers = std::max(1, ranks / 3);
        if (s.pushes == 0) s.pushes = quick ? 60 : 2000;
        if (ranks <= s.servers) throw std::runtime_error("a parameter server takes 2 ranks: a server and a worker");
        return s;
    };
    const int status = program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        const setup base = sized(comm.size(), out.quick());
        const int workers = comm.size() - base.servers;
        const dataset data = load_fashion_mnist(folder, "train"), test = load_fashion_mnist(folder, "t10k");
        out.print("{} servers, {} workers, batches of {}\n", base.servers, workers, base.batch);

        // Synchronous, in double: the same as one rank, with all workers, and with workers that come and go.
        const auto matches = [&](const setup& s, const outcome<double>& result) {
            if (comm.rank() >= base.servers) return result.broken == 0;
            double difference = 0;
            if (comm.rank() == 0) {
                const auto want = serial<double>(result.applied, s, workers, data);
                for (std::size_t i = 0; i < want.size(); ++i)
                    difference = std::max(difference, std::abs(want[i] - result.parameters[i]));
                out.print(
                    "{} pushes: parameters differ by {:.1e} from one rank's\n", result.applied.size(), difference);
            }
            return difference < 1e-12 && each_once(result.applied);
        };
        setup sync = base;
        sync.pushes = 15 * workers;
        out.check("synchronous: equal to one rank, to rounding", matches(sync, train<double>(comm, sync, data)));
        if (workers > 1) {
            sync.late = workers - 1;
            sync.late_after = 2 * workers;
            sync.early = workers > 2 ? 0 : colls::none;
            sync.early_after = 7;
            const auto result = train<double>(comm, sync, data);
            std::vector<long> of(static_cast<std::size_t>(workers));
            for (const request& p : result.applied) ++of[static_cast<std::size_t>(p.worker)];
            const bool served = comm.rank() < base.servers;
            out.print("pushes of each worker: {}\n", fmt::join(of, " "));
            out.check(
                "a worker joins late and one leaves early: equal to one rank, to rounding", matches(sync, result));
            out.check("the late one has pushed 5 times or more, the early one 7 times",
                !served || (of.back() >= 5 && (sync.early == colls::none || of[0] == 7)));
        }

        table rows(
            {"delays", "staleness bound", "images/s", "accuracy %", "behind: mean", "most", "pulls by clocks behind"});
        plot chart("Images a second by the bound on staleness", {"staleness bound s"}, {"images/s"});
        const std::vector<std::int64_t> bounds =
            out.quick() ? std::vector<std::int64_t>{0, 2} : std::vector<std::int64_t>{0, 1, 2, 4, 8, 16, unbounded};
        for (const char* delays : {"none", "one slow worker", "random"})
            for (const std::int64_t s : bounds) {
                setup now = base;
                now.staleness = s;
                if (delays[0] == 'o') now.slow = workers - 1;
                now.random_delays = delays[0] == 'r';
                const auto result = train<float>(comm, now, data);
                const double rate = static_cast<double>(result.applied.size()) * base.batch / result.seconds;
                const double right =
                    comm.rank() == 0 ? accuracy(result.parameters, test, out.quick() ? 1000 : 10'000) : 0;
                std::string histogram;
                double sum = 0, pulls = 0;
                std::size_t most = 0;
                for (std::size_t b = 0; b < result.staleness.size(); ++b) {
                    if (result.staleness[b] == 0) continue;
                    most = b;
                    sum += static_cast<double>(b) * static_cast<double>(result.staleness[b]);
                    pulls += static_cast<double>(result.staleness[b]);
                    if (histogram.size() < 60) histogram += fmt::format("{}:{} ", b, result.staleness[b]);
                }
                const std::string bound = s == unbounded ? "none" : std::to_string(s);
                rows.add(delays, bound, std::lround(rate), fmt::format("{:.1f}", right),
                    fmt::format("{:.2f}", sum / pulls), most, histogram);
                if (s != unbounded) chart.add(fmt::format("delays: {}", delays), static_cast<double>(s), rate);
                out.check(
                    fmt::format("delays: {}; staleness bound {}: never broken, each push applied once", delays, bound),
                    result.broken == 0 && each_once(result.applied));
                if (!out.quick()) out.check("accuracy above 75 %", comm.rank() != 0 || right > 75);
            }
        out.print("\nDelays of {} ms. `behind`: clocks by which the slowest worker was behind a pull:\n",
            static_cast<long>(base.delay.count()));
        out.print(rows);
        out.draw(chart);

        setup dying = base;
        dying.pushes = 40 * workers;
        if (workers > 1 && comm.size() > 2) {
            const bool dies = comm.rank() == comm.size() - 1;
            const bool right = survives(comm, dying, data);
            if (!dies) out.check("a worker breaks the group and leaves: the others go on", right);
        }
    });
    // A process that is killed is an error of the run, so this one is a run of its own.
    const auto transport = program.cli.get_option("--transport")->as<std::string>();
    if (status != 0 || (transport != "processes" && transport != "tcp")) return status;
    const int ranks = std::max(3, program.cli.get_option("--ranks")->as<int>());
    auto* went_on =
        static_cast<bool*>(mmap(nullptr, sizeof(bool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int killed = colls::none;
    try {
        colls::processes::run(ranks, [&](colls::communicator& comm) {
            setup dying = sized(ranks, true);
            dying.pushes = 40 * (ranks - dying.servers);
            dying.killed = true;
            const bool right = survives(comm, dying, load_fashion_mnist(folder, "train"));
            if (comm.rank() == 0) *went_on = right;
        });
    } catch (const colls::error& e) {
        killed = e.peer();
        fmt::print("the run: {}\n", e.what());
    }
    const bool right = killed == ranks - 1 && *went_on;
    fmt::print("a worker process is killed: the others go on: {}\n", right ? "yes" : "NO");
    return right ? 0 : 1;
}
