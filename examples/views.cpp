// A schedule as ranges: which links it uses, what one rank does, and which rounds go between hosts.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/views.cpp -o views      (range-v3: librange-v3-dev)
// Run:   ./views
#include <colls/family.hpp>
#include <colls/schedules.hpp>
#include <colls/views.hpp>

#include <range/v3/algorithm/count_if.hpp>
#include <range/v3/range/primitives.hpp>

#include <cstdio>

namespace views = colls::views;

namespace {

// example-begin links
/// Prints a row for each rank that sends, and a column for each that receives: the blocks between them in all rounds.
template <class S>
void print_links(const S& schedule, int n) {
    std::vector<long> blocks(static_cast<std::size_t>(n * n));
    for (const views::link& l : views::links(views::transfers(schedule, n) | views::messages()))
        blocks[static_cast<std::size_t>(l.from * n + l.to)] = l.blocks();
    for (int from = 0; from < n; ++from) {
        for (int to = 0; to < n; ++to) std::printf("%3ld", blocks[static_cast<std::size_t>(from * n + to)]);
        std::printf("\n");
    }
}
// example-end

// example-begin rank
template <class S>
void print_rank(const S& schedule, int n, int rank) {
    for (const views::transfer& t : views::transfers(schedule, n) | views::at_rank(rank))
        std::printf("round %d: %d block%s %s rank %d\n", t.round, t.blocks.size(), t.blocks.size() == 1 ? "" : "s",
            t.from == rank ? "to" : "from", t.from == rank ? t.to : t.from);
}
// example-end

// example-begin hosts
/// In how many rounds a message leaves a host, where hosts have `node` ranks each.
template <class S>
int rounds_between_hosts(const S& schedule, int n, int node) {
    int count = 0;
    for (auto&& round : views::rounds(schedule, n))
        count += ranges::count_if(round, [&](const auto& t) { return t.from / node != t.to / node; }) > 0;
    return count;
}
// example-end

}  // namespace

int main() {
    const auto circulant = colls::schedule_of<colls::collective::all_gather>(colls::circulant<>{});
    const auto ring = colls::schedule_of<colls::collective::all_gather>(colls::ring{});
    std::printf("all_gather by circulant on 5 ranks, blocks from each rank (row) to each other:\n");
    print_links(circulant, 5);
    std::printf("rank 0 of it:\n");
    print_rank(circulant, 5, 0);
    std::printf("rounds between 4 hosts of 8 ranks: ring %d, circulant %d\n", rounds_between_hosts(ring, 32, 8),
        rounds_between_hosts(circulant, 32, 8));
    return ranges::distance(views::rounds(circulant, 5)) == 3 ? 0 : 1;
}
