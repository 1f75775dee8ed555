// What exact sums cost: exact_sum::add of a long array beside plain sums of it, and an all_reduce with colls::exact
// beside a plain one on threads. All take turns, so that what else the machine does hits all of them alike; medians.
//
//     exact [RANKS [NUMBERS]]     2 ranks and 100,000,000 numbers, unless said otherwise
#include "statistics.hpp"

#include <colls/colls.hpp>
#include <colls/exact.hpp>
#include <colls/transports/threads.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <vector>

namespace {

using bench::median;

template <class F>
double microseconds(F f) {
    const auto from = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count();
}

/// Numbers of both signs, their exponents spread over so many binades.
template <class T>
void fill(std::span<T> x, double binades, std::uint64_t seed) {
    const auto unit = [&] {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return static_cast<double>(seed >> 11) * 0x1p-53;
    };
    for (T& v : x) {
        const double u = unit() - 0.5;
        v = static_cast<T>(binades == 0 ? u : u * std::exp2(binades * (unit() - 0.5)));
    }
}

volatile double kept;

template <class T>
void measure_array(std::size_t count, double binades, const char* name) {
    std::vector<T> x(count);
    fill<T>(x, binades, 1);
    std::vector<double> lanes, serial, exact;
    for (int round = 0; round < 5; ++round) {
        lanes.push_back(microseconds([&] {
            T sums[32] = {};
            for (std::size_t i = 0; i + 32 <= count; i += 32)
                for (std::size_t l = 0; l < 32; ++l) sums[l] += x[i + l];
            kept = static_cast<double>(std::accumulate(sums, sums + 32, T{}));
        }));
        serial.push_back(microseconds([&] { kept = static_cast<double>(std::accumulate(x.begin(), x.end(), T{})); }));
        exact.push_back(microseconds([&] { kept = static_cast<double>(colls::exact_sum<T>().add(x).value()); }));
    }
    const auto gigabytes = [&](std::vector<double>& us) {
        return static_cast<double>(count * sizeof(T)) / median(us) * 1e-3;
    };
    std::printf("| %s over %.0f binades | %.1f | %.1f | %.1f | %.2f |\n", name, binades, gigabytes(lanes),
        gigabytes(serial), gigabytes(exact), median(lanes) / median(exact));
}

template <class T>
void measure_call(colls::communicator& comm, std::size_t bytes, const char* name) {
    const std::size_t count = std::max<std::size_t>(1, bytes / sizeof(T));
    std::vector<T> in(count), out(count);
    fill<T>(in, 10, static_cast<std::uint64_t>(comm.rank()) + 1);
    colls::exact_all_reduce<T> prepared(comm, count);
    std::vector<double> plain, reproducible, exact, kept_memory;
    const auto take = [&](std::vector<double>& times, auto call) {
        colls::barrier(comm);
        double us = microseconds(call);
        colls::all_reduce(comm, std::span(&us, 1), colls::max);
        times.push_back(us);
    };
    for (int round = 0; round < (bytes > (std::size_t{1} << 20) ? 101 : 501); ++round) {
        take(plain, [&] { colls::all_reduce(comm, in, out, colls::sum); });
        take(reproducible, [&] { colls::all_reduce<colls::reproducible>(comm, in, out, colls::sum); });
        take(exact, [&] { colls::all_reduce(comm, in, out, colls::exact); });
        take(kept_memory, [&] { prepared(in, out); });
    }
    if (comm.rank() != 0) return;
    const double us = median(plain);
    std::printf("| %s | %zu | %.1f | %.1f | %.1f | %.1f | %.1f |\n", name, bytes, us, median(reproducible),
        median(exact), median(kept_memory), median(kept_memory) / us);
}

}  // namespace

int main(int argc, char** argv) {
    const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
    const std::size_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 100'000'000;
    std::printf(
        "| all_reduce of | bytes | plain, us | reproducible | exact | exact_all_reduce | times plain |\n"
        "|---|---|---|---|---|---|---|\n");
    colls::threads::run(ranks, [](colls::communicator& comm) {
        for (const std::size_t bytes :
            {std::size_t{8}, std::size_t{65536}, std::size_t{1} << 20, std::size_t{1} << 24}) {
            measure_call<float>(comm, bytes, "float");
            measure_call<double>(comm, bytes, "double");
            measure_call<colls::bfloat16>(comm, bytes, "bfloat16");
        }
    });
    std::printf(
        "\n| numbers | plain in 32 lanes, GB/s | std::accumulate | exact_sum::add | of plain |\n"
        "|---|---|---|---|---|\n");
    for (const double binades : {0.0, 30.0, 120.0}) {
        measure_array<float>(count, binades, "float");
        measure_array<double>(count, binades, "double");
    }
}
