// Training by a parameter server: synchronous, and asynchronous with bounded staleness, beside a slow worker and random
// delays; workers that join late and leave early; and a worker that dies.
//
// ranks: 5 4 4
#include "../common/difference.hpp"
#include "../common/program.hpp"
#include "parameter_server/training.hpp"

#include <colls/transports/shm.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace example;
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
    program.options.add("--servers", how.servers, "ranks that hold the parameters; 0: a third of all");
    program.options.add("--pushes", how.pushes, "gradients of a run, of all workers; 0: 1500, or 60 with --quick");
    program.options.add("--batch", how.batch, "images of a gradient", example::positive);
    program.options.add("--delay", how.delay, "milliseconds of a delay; with --quick 4", example::between(0, 10'000));
    program.options.add("--data", folder, "folder of the dataset");
    how.servers = 0;
    const auto sized = [&](int ranks, bool quick) {
        setup s = how;
        if (s.servers == 0) s.servers = std::max(1, ranks / 3);
        if (s.pushes == 0) s.pushes = quick ? 60 : 1500;
        if (quick) s.delay = 4;
        if (ranks <= s.servers) throw std::runtime_error("a parameter server takes 2 ranks: a server and a worker");
        return s;
    };
    const int status = program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        const setup base = sized(comm.size(), out.quick());
        const int workers = comm.size() - base.servers;
        // With --quick it learns from the test images, which are read sooner: accuracy then says little.
        const dataset test = load_fashion_mnist(folder, "t10k");
        const dataset data = out.quick() ? test : load_fashion_mnist(folder, "train");
        out.print("{} servers, {} workers, batches of {}\n", base.servers, workers, base.batch);

        // Synchronous, in double: the same as one rank, with all workers, and with workers that come and go.
        const auto matches = [&](const setup& s, const outcome<double>& result) {
            if (comm.rank() >= base.servers) return result.broken == 0;
            double difference = 0;
            if (comm.rank() == 0) {
                const auto want = serial<double>(result.applied, s, workers, data);
                for (std::size_t i = 0; i < want.size(); ++i)
                    difference = example::worse(difference, std::abs(want[i] - result.parameters[i]));
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

        table rows({"delays", "staleness bound", "images/s", "accuracy %", "behind: mean", "most",
            "pulls that were   0     1     2     3     4  more"});
        plot chart("Images a second by the bound on staleness", {"bound s: clocks that a worker may be ahead"},
            {"images a second"});
        chart.says(
            "A looser bound helps where delays are random; a worker that is always slow holds all others back, "
            "whatever the bound, unless there is none.");
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
                double sum = 0;
                std::size_t most = 0;
                long pulls = 0, few = 0;
                for (std::size_t b = 0; b < result.staleness.size(); ++b) {
                    if (result.staleness[b] > 0) most = b;
                    sum += static_cast<double>(b) * static_cast<double>(result.staleness[b]);
                    pulls += result.staleness[b];
                    if (b > 4) continue;
                    few += result.staleness[b];
                    histogram += fmt::format("{:>6}", result.staleness[b]);
                }
                histogram += fmt::format("{:>6}", pulls - few);
                const std::string bound = s == unbounded ? "none" : std::to_string(s);
                rows.add(delays, bound, std::lround(rate), fmt::format("{:.1f}", right),
                    fmt::format("{:.2f}", sum / static_cast<double>(pulls)), most, histogram);
                const std::string line = delays[0] == 'n' ? "no delays" : delays[0] == 'r' ? "random delays" : delays;
                if (s != unbounded) {
                    chart.add(line, static_cast<double>(s), rate);
                } else {
                    for (const double x : {0.0, 16.0}) chart.add(line + ", no bound", x, rate);
                    chart.thin(line + ", no bound");
                }
                out.check(
                    fmt::format("delays: {}; staleness bound {}: never broken, each push applied once", delays, bound),
                    result.broken == 0 && each_once(result.applied));
                if (base.pushes >= 1500) out.check("accuracy above 75 %", comm.rank() != 0 || right > 75);
            }
        out.print("\nDelays of {} ms. `behind`: clocks by which the slowest worker was behind a pull:\n", base.delay);
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
    const auto transport = program.transport();
    if (status != 0 || (transport != "processes" && transport != "tcp")) return status;
    const int ranks = std::max(3, program.ranks());
    auto* went_on =
        static_cast<bool*>(mmap(nullptr, sizeof(bool), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    int killed = colls::none;
    try {
        colls::processes::run(ranks, [&](colls::communicator& comm) {
            setup dying = sized(ranks, true);
            dying.pushes = 40 * (ranks - dying.servers);
            dying.killed = true;
            const bool right = survives(comm, dying, load_fashion_mnist(folder, "t10k"));
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
