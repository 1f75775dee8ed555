// all_reduce with an operator of the program's own: standardises data that is spread over the ranks. The operator
// merges count, mean and variance (Chan, Golub, LeVeque 1979); then every rank rescales its part.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/all_reduce.cpp -o all_reduce
// Run:   ./all_reduce [RANKS]
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

// example-begin operator
struct moments {
    double count, mean, squares;  // squares: sum of (x - mean)^2
};

struct merge {
    static constexpr bool commutative = true;
    moments operator()(const moments& a, const moments& b) const {
        const double count = a.count + b.count, distance = b.mean - a.mean;
        return {count, a.mean + distance * b.count / count,
            a.squares + b.squares + distance * distance * a.count * b.count / count};
    }
};
// example-end

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 4;
    std::vector<char> right(static_cast<std::size_t>(ranks), 0);

    colls::threads::run(ranks, [&](auto& comm) {
        std::mt19937 random(static_cast<unsigned>(comm.rank()));
        std::normal_distribution<double> noise(1000.0 + comm.rank(), 2.0);  // each rank's part is offset
        std::vector<double> data(100'000u + 1000u * static_cast<unsigned>(comm.rank()));
        moments m{1, 0, 0};
        bool first = true;
        for (double& x : data) {
            x = noise(random);
            m = first ? moments{1, x, 0} : merge{}(m, {1, x, 0});
            first = false;
        }
        // example-begin call
        colls::all_reduce(comm, std::span(&m, 1), merge{});
        // example-end
        const double deviation = std::sqrt(m.squares / m.count);
        for (double& x : data) x = (x - m.mean) / deviation;

        double sums[2] = {0, 0};  // now the mean must be 0 and the mean square 1
        for (const double x : data) sums[0] += x, sums[1] += x * x;
        colls::all_reduce(comm, sums, colls::sum);
        right[static_cast<std::size_t>(comm.rank())] =
            std::abs(sums[0] / m.count) < 1e-9 && std::abs(sums[1] / m.count - 1) < 1e-9;
        if (comm.rank() == 0)
            std::printf("%.0f numbers, mean %.4f, deviation %.4f; afterwards mean %.1e, mean square 1%+.1e\n", m.count,
                m.mean, deviation, sums[0] / m.count, sums[1] / m.count - 1);
    });
    for (const char r : right)
        if (!r) return 1;
    return 0;
}
