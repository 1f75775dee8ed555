// How long schedules take on a network, before there is one: three of them on an oversubscribed fat tree, with a rank
// that is late, and with ranks that are out of order.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/simulate.cpp -o simulate
// Run:   ./simulate
#include <colls/family.hpp>
#include <colls/schedules.hpp>
#include <colls/simulate.hpp>

#include <cstdio>
#include <vector>

namespace simulation = colls::simulation;

namespace {

constexpr int n = 64;
constexpr double bytes = 16 << 20;

// example-begin network
/// Eight leaves of eight ranks, and four links of 25 GB/s from each leaf: ranks that all send to other leaves have half
/// of their own link each.
simulation::topology cluster() {
    const simulation::link cable{.latency = 0.5e-6, .bandwidth = 25e9};
    return simulation::fat_tree({{.down = 8, .up = 1, .each = cable}, {.down = 8, .up = 4, .each = cable}});
}
// example-end

// example-begin simulate
template <class Family>
double microseconds(const char* name, const Family& family, const simulation::topology& network) {
    const auto schedule = colls::schedule_of<colls::collective::all_reduce>(family);
    const simulation::options exact{.gamma = 0.01e-9};
    const double calm = simulation::simulate(schedule, n, network, bytes, exact).seconds * 1e6;

    simulation::options late = exact;
    late.late = [](int rank, int round) { return rank == 5 && round == 0 ? 300e-6 : 0; };
    const double behind = simulation::simulate(schedule, n, network, bytes, late).seconds * 1e6;
    std::printf("%-18s %7.1f us, with a rank that is 300 us late %7.1f us\n", name, calm, behind);
    return calm;
}
// example-end

// example-begin place
/// Ranks as a batch system may hand them out: every ninth place.
bool put_in_order(const simulation::topology& network) {
    std::vector<int> scattered(n);
    for (int r = 0; r < n; ++r) scattered[static_cast<std::size_t>(r)] = 9 * r % n;
    const auto ring = colls::schedule_of<colls::collective::all_reduce>(colls::ring{});
    const simulation::placement found =
        simulation::place(ring, n, network.placed(scattered), bytes, {.gamma = 0.01e-9}, 0);
    std::printf("ring, scattered    %7.1f us, placed %7.1f us\n", found.before * 1e6, found.after * 1e6);
    return found.after < found.before;
}
// example-end

}  // namespace

int main() {
    const simulation::topology network = cluster();
    const double ring = microseconds("ring", colls::ring{}, network),
                 halving = microseconds("halving_doubling", colls::halving_doubling{}, network),
                 two = microseconds("hierarchical", colls::hierarchical<colls::ring, colls::ring>{8}, network);
    const bool placed = put_in_order(network);
    return placed && two < ring && ring > 0 && halving > 0 ? 0 : 1;
}
