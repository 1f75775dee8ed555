// Pipeline parallelism: the layers of a network are cut into stages, one a rank, and a batch into microbatches, which
// follow one another through the stages. Two orders of the same work: GPipe (Huang et al. 2019) and 1F1B (Narayanan et
// al. 2019, PipeDream; 2021, Megatron-LM). See docs/patterns/pipeline.md.
//
// ranks: 3 5 4
#include "../common/fashion_mnist.hpp"
#include "../common/gantt.hpp"
#include "../common/network.hpp"
#include "../common/program.hpp"
#include "pipeline/schedules.hpp"
#include "pipeline/stage.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <list>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace example;
using stopwatch = std::chrono::steady_clock;

/// One rank of the pipeline.
class pipeline {
public:
    /// The layers are divided evenly, the first ranks have one more where there is a rest; a rank without layers passes
    /// on what it receives. A forward pass takes at least `least` seconds, a backward pass twice that.
    pipeline(colls::communicator& comm, std::span<const int> widths, std::span<const double> parameters, double least)
        : comm_(comm),
          widths_(widths),
          own(widths, first(comm.rank()), first(comm.rank() + 1) - first(comm.rank()), parameters),
          least_(least) {}

    /// The forward and backward passes of one batch, in the order given. Returns the summed loss on the last rank;
    /// `times` receives when each action began and ended, in seconds since the step began.
    double step(const std::vector<action>& order, const batch& data, int microbatches, std::vector<double>& times) {
        const int before = comm_.rank() - 1, behind = comm_.rank() + 1;
        const bool last = behind == comm_.size();
        std::map<int, colls::operation> outputs;                   // being sent from where the stage keeps them
        std::list<std::pair<matrix, colls::operation>> gradients;  // being sent, with their memory
        // A started send moves when this rank enters the library, so it does while it "computes".
        const auto advance_until = [&](stopwatch::time_point end) {
            do {
                for (auto& [i, sent] : outputs) sent.test();
                gradients.remove_if([](auto& gradient) { return gradient.second.test(); });
                if (stopwatch::now() < end) std::this_thread::sleep_for(std::chrono::microseconds(100));
            } while (stopwatch::now() < end);
        };
        double loss = 0;
        times.clear();
        colls::barrier(comm_);
        const auto start = stopwatch::now();
        const auto now = [&] { return std::chrono::duration<double>(stopwatch::now() - start).count(); };
        const auto passed = [&](double from, double least) {
            return start + std::chrono::duration_cast<stopwatch::duration>(std::chrono::duration<double>(from + least));
        };
        for (const auto& [forward, i] : order) {
            const auto [offset, size] = colls::block_of(data.labels.size(), microbatches, i);
            matrix in;
            // example-begin receive
            if (forward && before >= 0) in = received(before, first(comm_.rank()), size);
            if (!forward && !last) in = received(behind, first(behind), size);
            // example-end
            if (forward && before < 0)
                in = data.x.middleCols(static_cast<Eigen::Index>(offset), static_cast<Eigen::Index>(size));
            if (!forward && last) {
                in = own.output(i);
                loss += cross_entropy(in, std::span(data.labels).subspan(offset, size), data.labels.size());
            }
            times.push_back(now());
            // example-begin send
            if (forward) {
                const matrix& out = own.forward(i, std::move(in));
                advance_until(passed(times.back(), least_));
                if (!last) outputs[i] = colls::start::send(comm_, numbers(out), behind);
            } else {
                outputs[i].wait();  // at once: the rank behind has this output, since its gradient has come
                matrix out = own.backward(i, std::move(in));
                advance_until(passed(times.back(), 2 * least_));
                if (before >= 0) {
                    auto& [kept, sent] = gradients.emplace_back(std::move(out), colls::operation());
                    sent = colls::start::send(comm_, numbers(kept), before);
                }
            }
            // example-end
            times.push_back(now());
            advance_until(start);
        }
        return loss;
    }

    /// The parameters of all stages, on every rank.
    std::vector<double> parameters() {
        std::vector<long> counts(static_cast<std::size_t>(comm_.size()));
        const long count = own.parameters.size();
        colls::all_gather(comm_, std::span(&count, 1), counts);
        std::vector<double> all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0L)));
        colls::all_gather_v(comm_, own.parameters, all, counts);
        return all;
    }

private:
    /// The first layer of a rank.
    int first(int rank) const {
        const std::size_t layers = widths_.size() - 1;
        return rank == comm_.size() ? static_cast<int>(layers)
                                    : static_cast<int>(colls::block_of(layers, comm_.size(), rank).offset);
    }
    /// The next message of a rank: a column a sample, as many rows as the layer's input is wide.
    matrix received(int rank, int layer, std::size_t columns) {
        matrix in(widths_[static_cast<std::size_t>(layer)], static_cast<Eigen::Index>(columns));
        colls::recv(comm_, numbers(in), rank);
        return in;
    }

    colls::communicator& comm_;
    std::span<const int> widths_;

public:
    stage own;

private:
    double least_;
};

const std::map<std::string, schedule> schedules{{"GPipe", gpipe}, {"1F1B", one_f_one_b}};

bool schedules_are_as_promised() {
    for (int p = 1; p <= 12; ++p)
        for (int m = 1; m <= 16; ++m)
            for (const auto& [name, order] : schedules)
                if (std::abs(simulated_bubble(order, p, m) - (p - 1.0) / (m + p - 1)) > 1e-12) return false;
    return true;
}

/// What is trained, and on what.
struct job {
    dataset data;
    int samples;  // of a batch
    std::vector<int> widths{784, 96, 80, 64, 56, 48, 32, 10};
    double rate = 0.05, momentum = 0.9;
    network<double> one_rank{widths, 1};
    std::vector<double> initial{one_rank.parameters().begin(), one_rank.parameters().end()};

    batch batch_at(int step) const {
        std::vector<int> picked(static_cast<std::size_t>(samples));
        for (int i = 0; i < samples; ++i) picked[static_cast<std::size_t>(i)] = (step * samples + i) % data.size();
        batch b{batch_of<double>(data, picked), {}};
        for (const int s : picked) b.labels.push_back(data.labels[static_cast<std::size_t>(s)]);
        return b;
    }
};

/// Trains some steps by both schedules and by one rank that computes each batch at once.
void compare_with_one_rank(
    colls::communicator& comm, output& out, job& task, std::span<const int> microbatches, int steps) {
    for (int step = 0; step < steps; ++step) {
        const batch b = task.batch_at(step);
        task.one_rank.backward(b.x, b.labels, task.samples, 1 << 20, [](std::size_t) {});
        task.one_rank.update(task.rate, task.momentum);
    }
    std::vector<double> times;
    double difference = 0;  // a sum: std::max would lose a NaN
    bool same_bits = true, kept_as_promised = true;
    for (const int m : microbatches) {
        std::vector<double> found;
        for (const auto& [name, order] : schedules) {
            pipeline pipe(comm, task.widths, task.initial, 0);
            for (int step = 0; step < steps; ++step) {
                pipe.step(order(comm.rank(), comm.size(), m), task.batch_at(step), m, times);
                pipe.own.update(task.rate, task.momentum);
            }
            const std::vector<double> weights = pipe.parameters();
            same_bits = same_bits && (found.empty() || weights == found);
            found = weights;
            const auto size = static_cast<Eigen::Index>(weights.size());
            difference += (example::vector::Map(weights.data(), size) -
                           example::vector::Map(task.one_rank.parameters().data(), size))
                              .norm();
            const int promised = name == "GPipe" ? m : std::min(m, comm.size() - comm.rank());
            kept_as_promised = kept_as_promised && pipe.own.most_kept == promised;
        }
    }
    out.check(fmt::format("after {} steps with 1 to 16 microbatches the weights are those of one rank", steps),
        difference < 1e-8);
    out.check("GPipe and 1F1B give the same bits", same_bits);
    out.check("microbatches kept by stage s: m by GPipe, min(m, p - s) by 1F1B", kept_as_promised);
}

/// Times both schedules where each forward pass takes the same time.
void measure(colls::communicator& comm, output& out, const job& task, double least) {
    const int stages = comm.size();
    out.print("\n{} stages; each forward pass takes at least {} ms, each backward pass twice that\n", stages, least);
    table results({"schedule", "microbatches", "kept by stage 0", "MB", "bubble by formula", "measured"});
    gantt chart(fmt::format("A step of a pipeline: {} stages, 8 microbatches", stages));
    chart.says(
        "Both orders leave the same time idle (grey). 1F1B runs a backward pass (hollow) after each forward pass "
        "(full) as soon as it can, so that a stage keeps fewer microbatches.");
    for (const int m : out.quick() ? std::vector{8} : std::vector{2, 4, 8, 16})
        for (const auto& [name, order] : schedules) {
            pipeline pipe(comm, task.widths, task.initial, least / 1000);
            const auto actions = order(comm.rank(), stages, m);
            std::vector<double> times, best;
            for (int repeat = 0; repeat < (out.quick() ? 1 : 5); ++repeat) {  // the machine may do other work at times
                pipe.step(actions, task.batch_at(0), m, times);
                std::vector<double> all(times.size() * static_cast<std::size_t>(stages));
                colls::all_gather(comm, times, all);
                if (best.empty() || std::ranges::max(all) < std::ranges::max(best)) best = all;
            }
            double busy = 0;
            for (std::size_t i = 0; i < best.size(); i += 2) busy += best[i + 1] - best[i];
            const double from = best[0], step = std::ranges::max(best) - from;
            results.add(name, m, pipe.own.most_kept, fmt::format("{:.2f}", pipe.own.most_bytes / 1e6),
                fmt::format("{:.3f}", (stages - 1.0) / (m + stages - 1)),
                fmt::format("{:.3f}", 1 - busy / (stages * step)));
            if (m == 8) chart.section(name);
            for (int p = 0; p < stages && m == 8; ++p)
                for (std::size_t a = 0; a < actions.size(); ++a) {
                    const auto [forward, i] = order(p, stages, m)[a];
                    const double* const t = best.data() + static_cast<std::size_t>(p) * times.size() + 2 * a;
                    chart.add(fmt::format("stage {}", p), t[0] - from, t[1] - from, std::to_string(i), forward);
                }
        }
    out.print(results);
    out.draw(chart);
}

void train(colls::communicator& comm, output& out, job& task, int steps) {
    constexpr int microbatches = 8;
    pipeline pipe(comm, task.widths, task.initial, 0);
    std::vector<double> times;
    for (int step = 0; step < steps; ++step) {
        const auto order = one_f_one_b(comm.rank(), comm.size(), microbatches);
        double loss = pipe.step(order, task.batch_at(step), microbatches, times);
        pipe.own.update(task.rate, task.momentum);
        colls::broadcast(comm, std::span(&loss, 1), comm.size() - 1);
        if (step % std::max(1, steps / 5) == 0)
            out.print("1F1B, step {:>4} of {}: loss {:.3f}\n", step, steps, loss / task.samples);
    }
    std::ranges::copy(pipe.parameters(), task.one_rank.parameters().begin());
    const batch test = task.batch_at(steps);
    const int correct = task.one_rank.count_correct(test.x, test.labels);
    out.print("{} of {} samples of the next batch are classified correctly\n", correct, task.samples);
}

}  // namespace

int main(int argc, char** argv) {
    program program("Trains a network whose layers are spread over the ranks, by GPipe and by 1F1B.");
    std::string folder = "/usr/share/datasets/fashion-mnist";
    int samples = 240, steps = 200;
    double least = 4;
    program.options.add("--data", folder, "folder of Fashion-MNIST");
    program.options.add("--batch", samples, "samples a step", example::between(1, 10'000));
    program.options.add("--steps", steps, "training steps", example::between(1, 100'000));
    program.options.add("--least", least, "ms that a forward pass takes at least, where the bubble is measured",
        example::between(0.0, 1000.0));
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        job task{load_fashion_mnist(folder, out.quick() ? "t10k" : "train"), samples};
        out.check("both schedules end, with a bubble of (p-1)/(m+p-1): 1 to 12 stages, 1 to 16 microbatches",
            schedules_are_as_promised());
        out.check("the gradient is that of finite differences",
            gradient_error(task.widths, task.batch_at(0), task.initial) < 4e-6);
        if (out.quick())
            compare_with_one_rank(comm, out, task, std::array{1, 3, 16}, 2);
        else
            compare_with_one_rank(comm, out, task, std::array{1, 2, 3, 4, 5, 8, 16}, 5);
        measure(comm, out, task, least);
        train(comm, out, task, out.quick() ? 10 : steps);
    });
}
