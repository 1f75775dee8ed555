// DiLoCo (Douillard et al. 2023): ranks that are joined by a slow link train on their own for H steps, then average how
// far they have come, and a step of Nesterov momentum takes all of them there. Data parallel exchanges in every step.
//
// The slow link is emulated: after each exchange a rank waits alpha + bytes / rate.
//
// ranks: 3 2 2
#include "../common/difference.hpp"
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/program.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace example;
constexpr std::array widths{784, 64, 10};
using clock_type = std::chrono::steady_clock;
using seconds = std::chrono::duration<double>;

struct method {
    std::string name;
    int local_steps = 1;  // H
    bool adam = true;     // inner AdamW; else plain SGD
    double outer_rate = 1, outer_momentum = 0;
    bool gradients = false;  // exchanges gradients in each step, before the inner optimiser: data parallel
};

/// One token bucket for each rank: what it sends passes at `rate` bytes a second, after `alpha` seconds.
class slow_link {
public:
    slow_link(double alpha, double rate) : alpha_(alpha), rate_(rate) {}
    void pass(double bytes) {
        const seconds takes(alpha_ + bytes / rate_);
        free_ = std::max(free_, clock_type::now()) + std::chrono::duration_cast<clock_type::duration>(takes);
        std::this_thread::sleep_until(free_);
        sent += bytes;
        waited += takes.count();
    }
    double sent = 0, waited = 0;

private:
    double alpha_, rate_;
    clock_type::time_point free_{};
};

/// AdamW (Loshchilov and Hutter 2019), or plain SGD.
template <class T>
class inner_optimiser {
public:
    inner_optimiser(bool adam, std::size_t size) : adam_(adam), mean_(adam ? size : 0), square_(mean_) {}
    void step(std::span<T> x, std::span<const T> g) {
        if (!adam_) {
            for (std::size_t i = 0; i < x.size(); ++i) x[i] -= T(0.1) * g[i];
            return;
        }
        ++steps_;
        const T rate = T(0.001), b1 = T(0.9), b2 = T(0.999);
        const T c1 = 1 - std::pow(b1, T(steps_)), c2 = 1 - std::pow(b2, T(steps_));
        for (std::size_t i = 0; i < x.size(); ++i) {
            mean_[i] = b1 * mean_[i] + (1 - b1) * g[i];
            square_[i] = b2 * square_[i] + (1 - b2) * g[i] * g[i];
            x[i] -= rate * (mean_[i] / c1 / (std::sqrt(square_[i] / c2) + T(1e-8)) + T(0.01) * x[i]);
        }
    }

private:
    bool adam_;
    int steps_ = 0;
    std::vector<T> mean_, square_;
};

// example-begin outer
/// The outer optimiser: SGD with Nesterov momentum, for which the mean way back to the start is the gradient.
template <class T>
struct outer_optimiser {
    T rate, momentum;
    std::vector<T> velocity;

    void step(std::span<T> start, std::span<const T> mean_difference) {
        velocity.resize(start.size());
        for (std::size_t i = 0; i < start.size(); ++i) {
            velocity[i] = momentum * velocity[i] + mean_difference[i];
            start[i] -= rate * (mean_difference[i] + momentum * velocity[i]);
        }
    }
};
// example-end

/// Leaves in net.gradient() the gradient of a rank's batch in a step. Rank r of n has every n-th image, from the r-th.
template <class T>
void compute(network<T>& net, const dataset& data, int rank, int n, int step) {
    std::mt19937_64 random(static_cast<std::uint64_t>(step) * 1024 + static_cast<std::uint64_t>(rank));
    std::vector<int> samples;
    std::vector<std::uint8_t> labels;
    for (int k = 0; k < 32; ++k) {
        samples.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(data.size() / n)) * n + rank);
        labels.push_back(data.labels[static_cast<std::size_t>(samples.back())]);
    }
    net.backward(batch_of<T>(data, samples), labels, 32, 1 << 20, [](std::size_t) {});
}

/// Trains for `steps` steps, and calls each(step, parameters) after each exchange. Returns the parameters.
template <class T, class Each>
std::vector<T> train(
    colls::communicator& comm, const method& how, int steps, const dataset& data, slow_link& link, Each each) {
    network<T> net(widths, 1);
    const auto x = net.parameters(), g = net.gradient();
    std::vector<T> start(x.begin(), x.end()), difference(x.size());
    inner_optimiser<T> inner(how.adam, x.size());
    outer_optimiser<T> outer{static_cast<T>(how.outer_rate), static_cast<T>(how.outer_momentum), {}};
    // Bytes that a rank sends, and the link carries, in an exchange: counted from the schedule.
    const auto cost =
        colls::cost_of<colls::schedule_for<colls::circulant<>, colls::collective::all_reduce>>(comm.size());
    const double bytes = static_cast<double>(cost.blocks_sent) / cost.blocks * static_cast<double>(x.size_bytes());
    const auto average = [&](std::span<T> values) {
        colls::all_reduce<colls::circulant<>>(comm, values, colls::avg);
        link.pass(bytes);
    };
    for (int step = 1; step <= steps; ++step) {
        compute(net, data, comm.rank(), comm.size(), step);
        if (how.gradients) average(g);
        inner.step(x, g);
        if (how.gradients) {
            each(step, x);
            continue;
        }
        // example-begin round
        if (step % how.local_steps == 0) {
            for (std::size_t i = 0; i < x.size(); ++i) difference[i] = start[i] - x[i];
            average(difference);
            outer.step(start, difference);
            std::ranges::copy(start, x.begin());
            each(step, x);
        }
        // example-end
    }
    return {x.begin(), x.end()};
}

/// The same by one rank, which does the steps of n ranks one after the other.
template <class T>
std::vector<T> serial(int n, const method& how, int steps, const dataset& data) {
    network<T> net(widths, 1);
    const auto x = net.parameters();
    std::vector<T> start(x.begin(), x.end());
    std::vector<inner_optimiser<T>> inner(static_cast<std::size_t>(n), {how.adam, x.size()});
    outer_optimiser<T> outer{static_cast<T>(how.outer_rate), static_cast<T>(how.outer_momentum), {}};
    for (int begin = 0; begin + how.local_steps <= steps; begin += how.local_steps) {
        std::vector<T> difference(x.size());
        for (int r = 0; r < n; ++r) {
            std::ranges::copy(start, x.begin());
            for (int step = begin + 1; step <= begin + how.local_steps; ++step) {
                compute(net, data, r, n, step);
                inner[static_cast<std::size_t>(r)].step(x, net.gradient());
            }
            for (std::size_t i = 0; i < x.size(); ++i) difference[i] += (start[i] - x[i]) / static_cast<T>(n);
        }
        outer.step(start, difference);
    }
    return start;
}

/// Plain data parallel SGD by one rank: the mean of the ranks' gradients, one step.
template <class T>
std::vector<T> serial_sgd(int n, int steps, const dataset& data) {
    network<T> net(widths, 1);
    std::vector<T> mean(net.parameters().size());
    for (int step = 1; step <= steps; ++step) {
        std::ranges::fill(mean, T(0));
        for (int r = 0; r < n; ++r) {
            compute(net, data, r, n, step);
            for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += net.gradient()[i] / static_cast<T>(n);
        }
        for (std::size_t i = 0; i < mean.size(); ++i) net.parameters()[i] -= T(0.1) * mean[i];
    }
    return {net.parameters().begin(), net.parameters().end()};
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) most = example::worse(most, std::abs(a[i] - b[i]));
    return most;
}

double accuracy(std::span<const float> parameters, const dataset& test) {
    network<float> net(widths, 1);
    std::ranges::copy(parameters, net.parameters().begin());
    std::vector<int> samples(2000);
    std::iota(samples.begin(), samples.end(), 0);
    return 100.0 * net.count_correct(batch_of<float>(test, samples), test.labels) / 2000;
}

}  // namespace

int main(int argc, char** argv) {
    program program("Trains on Fashion-MNIST by DiLoCo and by data parallel over a slow, emulated link.");
    std::string folder = "/usr/share/datasets/fashion-mnist", steps_plot;
    double alpha = 5e-3, megabits = 100;
    int steps = 640;
    program.options.add("--steps", steps, "of each rank, of 32 images", example::between(64, 1'000'000));
    program.options.add("--alpha", alpha, "seconds that the link adds to an exchange", example::not_negative);
    program.options.add("--megabits", megabits, "a second, that the link carries from a rank", example::positive);
    program.options.add("--data", folder, "folder of the dataset");
    program.options.add("--plot-steps", steps_plot, "SVG file for the accuracy against steps");
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        // With --quick it learns from the test images, which are read sooner: accuracy then says little.
        const dataset test = load_fashion_mnist(folder, "t10k");
        const dataset data = out.quick() ? test : load_fashion_mnist(folder, "train");
        const int n = comm.size();
        const int checked = 16;

        // Against one rank, in double.
        const auto nothing = [](int, std::span<const double>) {};
        const auto check = [&](const std::string& what, const method& how, const auto& reference) {
            slow_link fast(0, 1e12);
            const auto many = train<double>(comm, how, checked, data, fast, nothing);
            double difference = 0;
            if (comm.rank() == 0) difference = distance(many, reference());
            out.print("{} steps: parameters differ by {:.1e}\n", checked, difference);
            out.check(what, difference < 1e-12);
        };
        const method averaging{.name = "averaging", .adam = false};
        const method diloco{.name = "DiLoCo", .local_steps = 8, .outer_rate = 0.7, .outer_momentum = 0.9};
        check("H = 1, outer rate 1, no momentum, SGD: data parallel SGD of one rank", averaging,
            [&] { return serial_sgd<double>(n, checked, data); });
        check("H = 8, AdamW, Nesterov momentum: the same by one rank", diloco,
            [&] { return serial<double>(n, diloco, checked, data); });

        // The optimisers against steps done by hand: momentum 0.9 and gradient 1 make velocities 1, 1.9, 2.71.
        std::vector<double> at{0}, weight{2};
        outer_optimiser<double> nesterov{0.7, 0.9, {}};
        for (int i = 0; i < 3; ++i) nesterov.step(at, std::vector<double>{1});
        inner_optimiser<double> adam(true, 1);
        adam.step(weight, std::vector<double>{5});
        out.check("Nesterov momentum and AdamW: steps done by hand",
            std::abs(at[0] + 0.7 * (3 + 0.9 * (1 + 1.9 + 2.71))) < 1e-12 &&
                std::abs(weight[0] - (2 - 0.001 * (1 + 0.01 * 2))) < 1e-9);

        // Accuracy against steps and time.
        const int many = out.quick() ? 64 : steps / 64 * 64;  // whole rounds of the largest H
        if (out.quick()) alpha = 1e-3, megabits = 1000;
        out.print("{} ranks, {} steps each; the link: {:g} ms and {:g} Mb/s\n", n, many, alpha * 1e3, megabits);
        table rows({"method", "H", "exchanges", "MB sent by a rank", "of data parallel", "seconds",
            "of them in the link", "accuracy %"});
        const axis accuracies{.label = "accuracy on the test images", .in = unit::percent, .from_zero = false};
        plot by_time("Accuracy over time, on a slow link", {"time", true, unit::seconds}, accuracies);
        plot by_steps("Accuracy over steps", {"steps of a rank"}, accuracies);
        struct end {
            std::string name;
            double seconds, accuracy;
        };
        std::vector<end> ends;
        const double rate = 0.7, momentum = 0.9;
        const method methods[] = {{.name = "data parallel", .gradients = true},
            {.name = "averaging", .local_steps = 16},
            {.name = "DiLoCo", .local_steps = 4, .outer_rate = rate, .outer_momentum = momentum},
            {.name = "DiLoCo", .local_steps = 16, .outer_rate = rate, .outer_momentum = momentum},
            {.name = "DiLoCo", .local_steps = 64, .outer_rate = rate, .outer_momentum = momentum}};
        double data_parallel = 0;
        for (const method& how : methods) {
            const std::string name = how.gradients ? how.name : fmt::format("{}, H = {}", how.name, how.local_steps);
            slow_link link(alpha, megabits * 1e6 / 8);
            int exchanges = 0;
            double right = 0;
            seconds tested{};  // time of the tests, which does not count
            colls::barrier(comm);
            const auto begin = clock_type::now();
            const auto parameters =
                train<float>(comm, how, many, data, link, [&](int step, std::span<const float> now) {
                    ++exchanges;
                    if (step % 64 != 0 && step != 16 && step != 32) return;
                    const auto stopped = clock_type::now();
                    if (comm.rank() == 0) {
                        right = accuracy(now, test);
                        by_time.add(name, seconds(stopped - begin - tested).count(), right);
                        by_steps.add(name, step, right);
                        out.print("{}: step {}, accuracy {:.1f} %\n", name, step, right);
                    }
                    colls::barrier(comm);
                    tested += clock_type::now() - stopped;
                });
            const double took = seconds(clock_type::now() - begin - tested).count();
            if (how.gradients) data_parallel = link.sent;
            rows.add(how.name, how.gradients ? "" : std::to_string(how.local_steps), exchanges,
                fmt::format("{:.2f}", link.sent / 1e6), n == 1 ? "" : fmt::format("1/{:g}", data_parallel / link.sent),
                fmt::format("{:.1f}", took), fmt::format("{:.1f}", link.waited), fmt::format("{:.1f}", right));
            ends.push_back({name, took, right});
            auto of_root = parameters;
            colls::broadcast(comm, of_root, 0);
            out.check(name + ": the same parameters on every rank", of_root == parameters);
            if (!how.gradients)
                out.check(name + ": 1/H of the bytes of data parallel",
                    std::abs(link.sent * how.local_steps - data_parallel) <= 1e-9 * data_parallel);
        }
        out.print(rows);
        by_time.says(fmt::format("For {} steps {} takes {:.1f} s, {} {:.1f} s: each exchange waits for the link.", many,
            ends.front().name, ends.front().seconds, ends.back().name, ends.back().seconds));
        for (const end& e : {ends.front(), ends.back()})
            by_time.mark(e.seconds, e.accuracy, fmt::format("{:.1f} s", e.seconds));
        std::ranges::sort(ends, {}, &end::accuracy);
        by_steps.says(
            fmt::format("Step for step {} learns the least, and ends {:.1f} points below {}; the others end within "
                        "{:.1f} points of each other.",
                ends[0].name, ends.back().accuracy - ends[0].accuracy, ends.back().name,
                ends.back().accuracy - ends[1].accuracy));
        out.draw(by_time);
        if (comm.rank() == 0 && !steps_plot.empty()) by_steps.write(steps_plot);
    });
}
