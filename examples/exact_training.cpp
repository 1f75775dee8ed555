// Training that stops and goes on with another number of ranks, to the same weights bit by bit: logistic regression on
// 4 ranks, then 3, then 8, against all of it on 1 rank. By colls::exact the weights are equal; by colls::sum they are
// not.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/exact_training.cpp -o exact_training
// Run:   ./exact_training
#include <colls/colls.hpp>
#include <colls/exact.hpp>
#include <colls/transports/threads.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace {

constexpr std::size_t samples = 3'000, features = 6;
constexpr int steps = 200;  // of each part

struct sample {
    std::array<double, features> x{1};  // the first is for the bias
    double y = 0;                       // 0 or 1
};
/// The data set: features of different sizes, classes that overlap.
sample sample_of(std::size_t k) {
    std::uint32_t state = 2463534242u + static_cast<std::uint32_t>(k) * 69069u;
    const auto number = [&] {  // between -1 and 1
        for (const int shift : {13, -17, 5}) state ^= shift > 0 ? state << shift : state >> -shift;
        return static_cast<double>(state) / 2147483648.0 - 1;
    };
    sample s;
    double z = 0.3;
    for (std::size_t j = 1; j < features; ++j) {
        const double x = number();
        s.x[j] = std::ldexp(x, -static_cast<int>(j));
        z += (j % 2 != 0 ? 2 : -1) * x;
    }
    s.y = z + number() > 0 ? 1 : 0;
    return s;
}

/// What a program would write to a file.
struct checkpoint {
    int step = 0;
    std::array<double, features> weights{};
};

template <class Sum>
void train(colls::communicator& comm, checkpoint& state, Sum op) {
    const colls::buffer_block mine = colls::block_of(samples, comm.size(), comm.rank());
    std::vector<sample> data;
    for (std::size_t i = 0; i < mine.size; ++i) data.push_back(sample_of(mine.offset + i));
    std::vector<double> error(data.size());
    for (const int end = state.step + steps; state.step < end; ++state.step) {
        for (std::size_t i = 0; i < data.size(); ++i) {
            double z = 0;
            for (std::size_t j = 0; j < features; ++j) z += state.weights[j] * data[i].x[j];
            error[i] = 1 / (1 + std::exp(-z)) - data[i].y;
        }
        std::array<double, features> gradient{};
        if constexpr (std::is_same_v<Sum, colls::exact_t>) {
            // example-begin step
            // No sum is rounded before that over all samples of all ranks: it does not matter which rank has which.
            std::array<colls::exact_sum<double>, features> sums;
            for (std::size_t j = 0; j < features; ++j)
                sums[j].add_each(data.size(), [&](std::size_t i) { return error[i] * data[i].x[j]; });
            colls::all_reduce(comm, sums, colls::exact);
            for (std::size_t j = 0; j < features; ++j) gradient[j] = sums[j].value();
            // example-end
        } else {
            for (std::size_t i = 0; i < data.size(); ++i)
                for (std::size_t j = 0; j < features; ++j) gradient[j] += error[i] * data[i].x[j];
            colls::all_reduce(comm, gradient, op);
        }
        for (std::size_t j = 0; j < features; ++j) state.weights[j] -= 6.0 / samples * gradient[j];
    }
}

/// Trains in parts, each on another number of ranks and from the checkpoint of the one before.
template <class Sum>
checkpoint train_on(std::initializer_list<int> ranks, Sum op) {
    checkpoint saved;
    for (const int n : ranks)
        colls::threads::run(n, [&, from = saved](colls::communicator& comm) {
            checkpoint state = from;
            train(comm, state, op);
            if (comm.rank() == 0) saved = state;
        });
    return saved;
}

bool equal(const checkpoint& a, const checkpoint& b) {
    return a.step == b.step && std::memcmp(&a.weights, &b.weights, sizeof a.weights) == 0;
}

/// The share of samples that the weights put into their class.
double accuracy(const checkpoint& state) {
    std::size_t right = 0;
    for (std::size_t k = 0; k < samples; ++k) {
        const sample s = sample_of(k);
        double z = 0;
        for (std::size_t j = 0; j < features; ++j) z += state.weights[j] * s.x[j];
        right += (z > 0) == (s.y > 0);
    }
    return static_cast<double>(right) / samples;
}

}  // namespace

int main() {
    const checkpoint one = train_on({1, 1, 1}, colls::exact), many = train_on({4, 3, 8}, colls::exact);
    const bool exact = equal(one, many),
               plain = equal(train_on({1, 1, 1}, colls::sum), train_on({4, 3, 8}, colls::sum));
    std::printf("%d steps, %.0f %% of the samples are in their class\n", many.step, 100 * accuracy(many));
    std::printf("on 4, 3 and 8 ranks against 1 rank, colls::exact: %s weights\n", exact ? "equal" : "different");
    std::printf("on 4, 3 and 8 ranks against 1 rank, colls::sum: %s weights\n", plain ? "equal" : "different");
    return exact && many.step == 3 * steps && accuracy(many) > 0.8 ? 0 : 1;
}
