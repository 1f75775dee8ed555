// The arithmetic of the table that scripts/bench --peers prints.
#include "../benchmarks/peers_table.hpp"

#include "catch.hpp"

#include <cmath>

namespace {

using bench::job;

constexpr double near = 50, far = 200;

bench::peers_turn turn(double line, std::vector<double> ours, std::vector<double> peers) {
    return {line, line, std::move(ours), std::move(peers)};
}

}  // namespace

TEST_CASE("peers: a ratio is the peer's time over ours, for each way and peer") {
    const auto cell = bench::cell_of(job::broadcast, 4, 32768, {turn(near, {1000, 2000}, {3000, 500})});
    CHECK(cell.what == job::broadcast);
    CHECK(cell.ranks == 4);
    CHECK(cell.bytes == 32768);
    CHECK(cell.turns == 1);
    CHECK(cell.line_ns == Approx(near));
    CHECK(cell.ours_us == std::vector<double>{1, 2});
    CHECK(cell.peers_us == std::vector<double>{3, 0.5});
    REQUIRE(cell.ratios.size() == 2);
    CHECK(cell.ratios[0] == std::vector<double>{3, 0.5});
    CHECK(cell.ratios[1] == std::vector<double>{1.5, 0.25});
}

TEST_CASE("peers: the median is taken of the ratios within a turn") {
    // Ratios 10, 2 and 1; the ratio of the medians would be 3.
    const auto cell = bench::cell_of(
        job::all_reduce, 2, 8, {turn(near, {100}, {1000}), turn(near, {400}, {800}), turn(near, {300}, {300})});
    CHECK(cell.ratios[0][0] == 2);
    CHECK(cell.ours_us[0] == Approx(0.3));
    CHECK(cell.peers_us[0] == Approx(0.8));
}

TEST_CASE("peers: turns count where the machine kept the state that was seen most often") {
    const bench::peers_turn moved{near, far, {1}, {100}};
    const auto cell = bench::cell_of(
        job::all_reduce, 2, 8, {moved, moved, moved, turn(near, {1}, {50}), turn(far, {1}, {2}), turn(far, {1}, {2})});
    CHECK(cell.turns == 2);
    CHECK(cell.line_ns == Approx(far));
    CHECK(cell.ratios[0][0] == 2);

    const auto none = bench::cell_of(job::all_reduce, 2, 8, {moved, moved, moved});
    CHECK(none.turns == 3);
    CHECK(none.ratios[0][0] == 100);
}

TEST_CASE("peers: a side that took no part has no ratio") {
    const auto cell = bench::cell_of(job::reduce_scatter, 2, 8,
        {turn(near, {1, 0}, {0, 3}), turn(near, {1, 0}, {0, 5}), turn(near, {1, 0}, {7, 5})});
    CHECK(cell.ratios[0] == std::vector<double>{7, 5});
    CHECK(cell.ratios[1] == std::vector<double>{0, 0});
    CHECK(bench::worst_first({cell}).size() == 2);
    CHECK(bench::cell_of(job::copy, 2, 8, {}).ratios.empty());
}

TEST_CASE("peers: the worst ratio comes first") {
    const std::vector<bench::peers_cell> cells{
        bench::cell_of(job::all_reduce, 2, 8, {turn(near, {100, 100}, {150, 90})}),
        bench::cell_of(job::all_reduce, 2, 64, {turn(near, {100, 200}, {300, 0})}),
    };
    const auto all = bench::worst_first(cells);
    std::vector<double> ratios;
    for (const auto& r : all) ratios.push_back(r.ratio);
    CHECK(ratios == std::vector<double>{0.9, 0.9, 1.5, 1.5, 1.5, 3});
    CHECK(all.front().cell == &cells[0]);
    CHECK(all.front().peer == 1);
    CHECK(all.back().cell == &cells[1]);
    CHECK(all.back().way == 0);
}

TEST_CASE("peers: a way stands beside a peer by its worst cell and the geometric mean") {
    const std::vector<bench::peers_cell> cells{
        bench::cell_of(job::all_reduce, 2, 8, {turn(near, {100}, {50, 100})}),
        bench::cell_of(job::all_reduce, 2, 64, {turn(near, {100}, {800, 100})}),
        bench::cell_of(job::all_reduce, 4, 64, {turn(near, {100}, {200, 0})}),
    };
    const auto first = bench::standing_of(cells, 0, 0);
    CHECK(first.cells == 3);
    CHECK(first.slower == 1);
    CHECK(first.mean == Approx(2));
    CHECK(first.worst.cell == &cells[0]);
    CHECK(first.worst.ratio == 0.5);
    const auto second = bench::standing_of(cells, 0, 1);
    CHECK(second.cells == 2);
    CHECK(second.slower == 0);  // equal is not slower
    CHECK(second.mean == Approx(1));
    CHECK(bench::standing_of(cells, 0, 7).cells == 0);
    CHECK(bench::standing_of(cells, 0, 7).worst.cell == nullptr);
}
