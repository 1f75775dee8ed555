// compressed_rates KILOBYTES TURNS MBITS: times an all_reduce of floats, exchanged as float, bfloat16, int8 and fp8, in
// turns, as a rank of a world whose links carry MBITS Mb/s (see limited_link). Rank 0 prints for each the median time,
// the rate, and both as parts of float's and of what the link allows. Exit status 1: a sum is wrong, or differs between
// ranks. No time is checked.
#include "../../benchmarks/statistics.hpp"

#include <colls/colls.hpp>
#include <colls/patterns/compressed.hpp>
#include <colls/patterns/top_k.hpp>
#include <colls/world.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using floats = std::vector<float>;

struct kind {
    std::string name;
    double bytes_sent;  // by a rank in a call
    double bound;       // of an error, as a part of the largest magnitude of a sum; 0: not checked
    std::function<void(colls::communicator&, std::span<float>)> sum;
    std::vector<double> seconds = {};
};

template <class Element>
kind compressed(std::string name, std::size_t count, int ranks) {
    using all_reduce = colls::compressed_all_reduce<Element>;
    const auto held = std::make_shared<all_reduce>(count);
    return {std::move(name), held->bytes_sent(ranks), all_reduce::error_bound(ranks),
        [held](colls::communicator& comm, std::span<float> x) { (*held)(comm, x); }};
}

std::vector<kind> kinds_of(std::size_t count, int n) {
    const auto top = std::make_shared<colls::top_k_all_reduce>(count, std::max<std::size_t>(1, count / 100));
    std::vector<kind> all;
    all.push_back({"float", 2.0 * (n - 1) / n * static_cast<double>(count * sizeof(float)), 1e-6,
        [](colls::communicator& comm, std::span<float> x) { colls::all_reduce<colls::direct>(comm, x, colls::sum); }});
    all.push_back(compressed<colls::bfloat16>("bfloat16", count, n));
    all.push_back(compressed<colls::quantized<std::int8_t>>("int8", count, n));
    all.push_back(compressed<colls::quantized<colls::fp8_e4m3>>("fp8 e4m3", count, n));
    all.push_back(compressed<colls::quantized<colls::fp8_e5m2>>("fp8 e5m2", count, n));
    all.push_back(
        {"top 1 %", top->bytes_sent(n), 0, [top](colls::communicator& comm, std::span<float> x) { (*top)(comm, x); }});
    return all;
}

floats gradient(int rank, std::size_t count) {
    std::mt19937 random(static_cast<unsigned>(rank));
    floats x(count);
    for (float& v : x) v = static_cast<float>(static_cast<int>(random() >> 8)) * 0x1p-24f - 0.5f;
    return x;
}

/// The same bits on every rank, and within the bound of the exact sum.
bool right(colls::communicator& comm, const kind& k, const floats& result, const std::vector<double>& exact) {
    floats of_root = result;
    colls::broadcast(comm, of_root, 0);
    int ok = std::memcmp(of_root.data(), result.data(), result.size() * sizeof(float)) == 0;
    for (std::size_t i = 0; k.bound > 0 && i < result.size(); ++i)
        ok = ok && std::abs(result[i] - exact[i]) <= k.bound * 0.5 * comm.size();
    colls::all_reduce(comm, std::span(&ok, 1), colls::min);
    return ok == 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: compressed_rates KILOBYTES TURNS MBITS\n");
        return 2;
    }
    try {
        const auto count = static_cast<std::size_t>(std::atol(argv[1])) * 1024 / sizeof(float);
        const int turns = std::atoi(argv[2]);
        const double link = std::atof(argv[3]) * 1e6 / 8;  // bytes a second
        colls::communicator comm = colls::world();
        const floats mine = gradient(comm.rank(), count);
        std::vector<double> exact(count);
        for (int r = 0; r < comm.size(); ++r) {
            const floats x = gradient(r, count);
            for (std::size_t i = 0; i < count; ++i) exact[i] += x[i];
        }
        auto kinds = kinds_of(count, comm.size());
        bool all_right = true;
        for (int turn = 0; turn < turns; ++turn)
            for (kind& k : kinds) {
                floats x = mine;
                colls::barrier(comm);
                const auto begin = std::chrono::steady_clock::now();
                k.sum(comm, x);
                double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
                colls::all_reduce(comm, std::span(&took, 1), colls::max);  // it ends when the last rank ends
                k.seconds.push_back(took);
                if (turn == 0) all_right = right(comm, k, x, exact) && all_right;  // before there is a residual
            }
        if (comm.rank() == 0) {
            std::printf("%d ranks, %.1f MB of floats, links of %s Mb/s, %d turns\n\n", comm.size(),
                static_cast<double>(count * sizeof(float)) / 1e6, argv[3], turns);
            std::printf("  %-10s %10s %11s %9s %11s %8s %12s\n", "exchanged", "MB sent", "median ms", "MB/s", "x float",
                "link ms", "of the link");
            const double of_floats = bench::median(kinds[0].seconds);
            for (const kind& k : kinds) {
                const double took = bench::median(k.seconds), least = k.bytes_sent / link;
                std::printf("  %-10s %10.2f %11.1f %9.1f %11.2f %8.1f %12.2f\n", k.name.c_str(), k.bytes_sent / 1e6,
                    took * 1e3, static_cast<double>(count * sizeof(float)) / took / 1e6, of_floats / took, least * 1e3,
                    least / took);
            }
            std::printf("\nthe same bits on every rank, and errors within the bound: %s\n", all_right ? "yes" : "NO");
        }
        return all_right ? 0 : 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "compressed_rates: %s\n", e.what());
        return 2;
    }
}
