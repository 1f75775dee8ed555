// Training that survives its processes. One rank writes a checkpoint every few steps. A rank is killed in the middle of
// a step: the others shrink the group, go back to the last checkpoint, cut the batches anew, and go on. All ranks are
// killed: new processes, as many or fewer, resume from the checkpoint. The loss curve is that of a run that nothing
// interrupts, since a batch is the same whatever the number of ranks that share it.
//
// ranks: 0 3 0
// Run: elastic_training [--ranks 4] [--plot FILE]
#include "../common/difference.hpp"
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/options.hpp"
#include "../common/plot.hpp"
#include "../common/table.hpp"

#include <colls/colls.hpp>
#include <colls/patterns/broadcast_spans.hpp>
#include <colls/patterns/gradient_buckets.hpp>
#include <colls/transports/shm.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
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

struct settings {
    std::vector<int> widths{784, 64, 32, 10};
    int batch = 120, steps = 120, checkpoint_every = 10;
    std::uint64_t seed = 1;
};

/// All that the next step depends on, and the losses so far.
struct checkpoint {
    std::uint64_t seed = 0, step = 0;
    std::vector<double> weights, velocity, losses;
};

std::uint64_t hash_of(std::span<const char> bytes) {  // FNV-1a
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
}

/// Writes the checkpoint to a file of another name, and renames it: `path` is at any time a whole checkpoint or none.
void save(const fs::path& path, const checkpoint& c) {
    std::vector<char> bytes;
    const auto put = [&bytes](const auto* at, std::size_t count) {
        const char* const begin = reinterpret_cast<const char*>(at);
        bytes.insert(bytes.end(), begin, begin + count * sizeof *at);
    };
    const std::uint64_t head[] = {c.seed, c.step, c.weights.size(), c.losses.size()};
    put(head, std::size(head));
    put(c.weights.data(), c.weights.size());
    put(c.velocity.data(), c.velocity.size());
    put(c.losses.data(), c.losses.size());
    const std::uint64_t hash = hash_of(bytes);
    put(&hash, 1);

    // example-begin save
    const fs::path unfinished = path.string() + ".unfinished";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(unfinished.c_str(), "wb"), std::fclose);
    if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() ||
        std::fflush(file.get()) != 0 || fsync(fileno(file.get())) != 0)
        throw std::runtime_error("cannot write " + unfinished.string());
    fs::rename(unfinished, path);  // from here on it is the checkpoint
    // example-end
}

/// The checkpoint in that file; none where there is no file. Throws std::runtime_error where it is damaged.
std::optional<checkpoint> load(const fs::path& path) {
    if (!fs::exists(path)) return std::nullopt;
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::size_t at = 0;
    const auto get = [&](auto* to, std::size_t count) {
        if (bytes.size() - at < count * sizeof *to) throw std::runtime_error(path.string() + " is cut short");
        std::copy_n(bytes.data() + at, count * sizeof *to, reinterpret_cast<char*>(to));
        at += count * sizeof *to;
    };
    std::uint64_t head[4], hash;
    get(head, std::size(head));
    if (bytes.size() != (5 + 2 * head[2] + head[3]) * 8) throw std::runtime_error(path.string() + " is damaged");
    checkpoint c{
        head[0], head[1], std::vector<double>(head[2]), std::vector<double>(head[2]), std::vector<double>(head[3])};
    get(c.weights.data(), c.weights.size());
    get(c.velocity.data(), c.velocity.size());
    get(c.losses.data(), c.losses.size());
    const std::uint64_t found = hash_of(std::span(bytes).first(at));
    get(&hash, 1);
    if (hash != found) throw std::runtime_error(path.string() + " is damaged");
    return c;
}

// example-begin restore
/// Rank 0 reads the checkpoint, and every rank gets it. Without one, training begins.
checkpoint restore(colls::communicator& comm, const settings& how, const fs::path& path) {
    checkpoint c;
    if (comm.rank() == 0) {
        if (auto found = load(path)) {
            c = std::move(*found);
        } else {
            network<double> fresh(how.widths, how.seed);
            c.seed = how.seed;
            c.weights.assign(fresh.parameters().begin(), fresh.parameters().end());
            c.velocity.resize(c.weights.size());
        }
    }
    std::uint64_t head[] = {c.seed, c.step, c.weights.size(), c.losses.size()};
    colls::broadcast(comm, head, 0);
    c.seed = head[0];
    c.step = head[1];
    c.weights.resize(head[2]);
    c.velocity.resize(head[2]);
    c.losses.resize(head[3]);
    colls::broadcast_spans(comm, std::vector{std::span(c.weights), std::span(c.velocity), std::span(c.losses)}, 0);
    return c;
}
// example-end

/// Which ranks kill themselves, at which step; they do so once.
struct disaster {
    int step = -1, rank = -1;  // rank -1: all of them
    bool takes_all() const { return step >= 0 && rank == -1; }
    bool hits(std::uint64_t s, const colls::communicator& comm) const {
        return static_cast<int>(s) == step && (rank == -1 || rank == comm.rank());
    }
};

/// Makes all steps from the last checkpoint on. Throws colls::error where a rank has failed.
void train(colls::communicator& comm, const settings& how, const dataset& data, const fs::path& path,
    const disaster& planned, int first_size) {
    checkpoint c = restore(comm, how, path);
    network<double> net(how.widths, 0);
    std::ranges::copy(c.weights, net.parameters().begin());
    std::ranges::copy(c.velocity, net.velocity().begin());

    std::vector<int> order(static_cast<std::size_t>(data.size()));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(c.seed);
    for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);

    const std::size_t panel = 4096;
    const auto gradients = net.gradients(panel);
    // The order of additions must not depend on what the library chooses: it chooses by what it has measured.
    colls::gradient_buckets exchange(comm, gradients, colls::sum, {.bucket_bytes = 64 * 1024}, colls::reproducible{});
    network<double>::matrix images;
    std::vector<int> samples;
    std::vector<std::uint8_t> labels;
    const auto batch = static_cast<std::size_t>(how.batch);
    for (; c.step < static_cast<std::uint64_t>(how.steps); ++c.step) {
        const auto own = colls::block_of(batch, comm.size(), comm.rank());
        samples.clear();
        labels.clear();
        for (std::size_t i = 0; i < own.size; ++i) {
            samples.push_back(order[(c.step * batch + own.offset + i) % order.size()]);
            labels.push_back(data.labels[static_cast<std::size_t>(samples.back())]);
        }
        read_batch(data, samples, images);
        std::size_t next = gradients.size();
        double loss = net.backward(images, labels, how.batch, panel, [&](std::size_t) {
            exchange.ready(--next);
            // In the middle of a step, with a bucket in flight, and only in the first group.
            if (next == gradients.size() / 2 && comm.size() == first_size && planned.hits(c.step, comm)) raise(SIGKILL);
        });
        exchange.wait();
        net.update(0.05 * (1 - static_cast<double>(c.step) / how.steps), 0.9);
        colls::all_reduce(comm, std::span(&loss, 1), colls::sum, colls::direct{});
        c.losses.push_back(loss / how.batch);
        const std::uint64_t done = c.step + 1;
        if (comm.rank() == 0 && (done % static_cast<std::uint64_t>(how.checkpoint_every) == 0 ||
                                    done == static_cast<std::uint64_t>(how.steps))) {
            checkpoint now{c.seed, done, {}, {}, c.losses};
            now.weights.assign(net.parameters().begin(), net.parameters().end());
            now.velocity.assign(net.velocity().begin(), net.velocity().end());
            save(path, now);
        }
    }
    colls::barrier(comm);  // a failure until here is still one that this run goes on from
}

// example-begin elastic
/// One rank's part in a run that goes on with the ranks that are left.
void train_elastically(colls::communicator& comm, const settings& how, const dataset& data, const fs::path& path,
    const disaster& planned) {
    const int first_size = comm.size();
    for (;;) {
        try {
            return train(comm, how, data, path, planned, first_size);
        } catch (const colls::error& e) {
            if (e.code() != colls::errc::peer_failed && e.code() != colls::errc::timeout) throw;
            if (planned.takes_all()) raise(SIGKILL);  // as a scheduler that ends the whole job
            comm = comm.shrink();
            if (comm.rank() == 0)
                fmt::print("  {}\n  {} ranks go on from the last checkpoint\n", e.what(), comm.size());
        }
    }
}
// example-end

/// Starts processes; they go on from the checkpoint, if there is one. The rank that has died, -1 where none has.
int run(int ranks, const settings& how, const dataset& data, const fs::path& path, const disaster& planned = {}) {
    std::fflush(stdout);  // what is in it would be printed by each process
    try {
        colls::processes::run(ranks, [&](colls::communicator& comm) {
            train_elastically(comm, how, data, path, planned);
            std::fflush(stdout);
        });
    } catch (const colls::error& e) {
        if (e.code() != colls::errc::peer_failed || planned.step < 0) throw;
        return e.peer();
    }
    return -1;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = example::worse(most, std::abs(a[i] - b[i]));
    return most;
}

}  // namespace

int main(int argc, char** argv) {
    settings how;
    int ranks = 4;
    bool quick = false;
    std::string transport = "processes", plot_file, folder = "/usr/share/datasets/fashion-mnist";
    example::options options("Training that goes on when a rank is killed, and resumes when all are.");
    options.add("-r,--ranks", ranks, "ranks, each a process", example::between(2, 64));
    options.add("-t,--transport", transport, "processes (shared memory), or tcp", {"processes", "tcp"});
    options.add("--steps", how.steps, "training steps", example::between(10, 100'000));
    options.add("--checkpoint-every", how.checkpoint_every, "steps between checkpoints", example::positive);
    options.add("--quick", quick, "small sizes: a few seconds");
    options.add("--plot", plot_file, "the SVG file to write the chart to");
    options.add("--data", folder, "folder of the dataset");
    int status = 0;
    if (!options.parse(argc, argv, status)) return status;
    if (transport == "tcp") setenv("COLLS_TRANSPORT", "tcp", 1);
    if (quick) how.steps = 32;
    if (transport == "tcp" && ranks < 3)
        return fmt::print(stderr, "over tcp a group goes on with more than half of its ranks only: take 3 or more\n"),
               2;

    std::string place = (fs::temp_directory_path() / "elastic_training.XXXXXX").string();
    if (mkdtemp(place.data()) == nullptr) return fmt::print(stderr, "cannot make {}\n", place), 2;
    try {
        const dataset data = load_fashion_mnist(folder, "t10k");
        const fs::path path = fs::path(place) / "checkpoint";
        const int killed_at = how.steps / 2 + how.checkpoint_every / 3, stopped_at = how.steps / 3;
        const auto finished = [&] {  // the last checkpoint of a run; the next run begins without it
            auto last = load(path);
            if (!last || last->step != static_cast<std::uint64_t>(how.steps))
                throw std::runtime_error("a run is not finished");
            fs::remove(path);
            return std::move(*last);
        };
        const auto check = [&](const std::string& what, bool ok) {
            fmt::print("{}: {}\n", what, ok ? "yes" : "NO");
            if (!ok) status = 1;
        };

        fmt::print("{} ranks, {} steps, nothing interrupts them\n", ranks, how.steps);
        run(ranks, how, data, path);
        const checkpoint whole = finished();

        fmt::print("rank 0, which writes the checkpoints, is killed in step {}\n", killed_at);
        const int died = run(ranks, how, data, path, {killed_at, 0});
        const checkpoint shrunk = finished();

        fmt::print("all ranks are killed in step {}; as many resume\n", stopped_at);
        const int stopped = run(ranks, how, data, path, {stopped_at, -1});
        const std::uint64_t kept = load(path).value_or(checkpoint{}).step;
        run(ranks, how, data, path);
        const checkpoint resumed = finished();

        fmt::print("all ranks are killed in step {}; one rank less resumes\n", stopped_at);
        run(ranks, how, data, path, {stopped_at, -1});
        run(ranks - 1, how, data, path);
        const checkpoint fewer = finished();

        table curve({"step", "uninterrupted", "a rank killed", "all killed", "one rank less"});
        plot chart("Training through failures", {"step"}, {.label = "loss", .from_zero = false});
        chart.says(
            "The curve of the run in which a rank is killed, and that of the run in which all are killed and begin "
            "again from a checkpoint, are the curve of the uninterrupted run.");
        for (std::size_t s = 0; s < whole.losses.size(); ++s) {
            if (s % (whole.losses.size() / 8) == 0 || s + 1 == whole.losses.size())
                curve.add(s, fmt::format("{:.12f}", whole.losses[s]), fmt::format("{:.12f}", shrunk.losses.at(s)),
                    fmt::format("{:.12f}", resumed.losses.at(s)), fmt::format("{:.12f}", fewer.losses.at(s)));
            chart.add("uninterrupted", static_cast<double>(s), whole.losses[s]);
            chart.add("a rank killed", static_cast<double>(s), shrunk.losses.at(s));
            chart.add("all killed", static_cast<double>(s), resumed.losses.at(s));
        }
        fmt::print("\n{}\n", curve.text());
        if (!plot_file.empty()) chart.write(plot_file);

        // Rounding in losses and weights of about 1; fewer ranks add in another order.
        constexpr double rounding = 1e-10;
        const auto same = [&](const checkpoint& other, double tolerance) {
            return largest_difference(whole.losses, other.losses) <= tolerance &&
                   largest_difference(whole.weights, other.weights) <= tolerance;
        };
        check("the loss falls", whole.losses.back() < whole.losses.front() / 2);
        check("the run reports the killed rank", died == 0 && stopped >= 0);
        check("a checkpoint was left by the killed ranks",
            kept > 0 && kept <= static_cast<std::uint64_t>(stopped_at) &&
                kept % static_cast<std::uint64_t>(how.checkpoint_every) == 0);
        check("a rank killed: the same losses and weights, but for rounding", same(shrunk, rounding));
        check("all killed, as many resume: the same bits", same(resumed, 0));
        check("all killed, one rank less resumes: the same, but for rounding", same(fewer, rounding));
    } catch (const std::exception& e) {
        fmt::print(stderr, "elastic_training: {}\n", e.what());
        status = 2;
    }
    std::error_code ignored;
    fs::remove_all(place, ignored);
    return status;
}
