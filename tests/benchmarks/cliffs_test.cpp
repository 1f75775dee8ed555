// The functions of benchmarks/sweep that find jumps in a curve of times, on curves whose jumps are known.
#include "../benchmarks/cliffs.hpp"
#include "catch.hpp"

#include <vector>

namespace {

using bench::violation;
using enum bench::violation_kind;

std::vector<bench::sweep_point> curve(const std::vector<double>& times) {
    std::vector<bench::sweep_point> points;
    for (const double t : times) points.push_back({8 * (points.size() + 1), t, 0});
    return points;
}

}  // namespace

TEST_CASE("find_violations: none on a curve that rises, wavers by a tenth, and doubles", "[cliffs]") {
    CHECK(bench::find_violations({}).empty());
    CHECK(bench::find_violations(curve({1})).empty());
    CHECK(bench::find_violations(curve({1, 1.5, 3, 2.71, 2.99, 5.9, 5.4})).empty());
}

TEST_CASE("find_violations: a fall is one violation, from the last peak to the lowest size", "[cliffs]") {
    const auto found = bench::find_violations(curve({1, 2, 2, 1.7, 1.5, 1.6, 2, 3.5, 3}));
    REQUIRE(found.size() == 2);
    CHECK(found[0] == violation{fall, 2, 4, 0.75});
    CHECK(found[1] == violation{fall, 7, 8, 3 / 3.5});
}

TEST_CASE("find_violations: a slow fall counts, although no step of it is large", "[cliffs]") {
    const auto found = bench::find_violations(curve({10, 9.5, 9.1, 8}));
    REQUIRE(found.size() == 1);
    CHECK(found[0] == violation{fall, 0, 3, 0.8});
}

TEST_CASE("find_violations: each step that more than doubles, and each bad choice", "[cliffs]") {
    auto points = curve({1, 2.5, 5, 10.5});
    points[1].best_fixed = 2.5;
    points[2].best_fixed = 2.5;
    points[3].best_fixed = 7;  // exactly the limit
    const auto found = bench::find_violations(points);
    REQUIRE(found.size() == 3);
    CHECK(found[0] == violation{rise, 0, 1, 2.5});
    CHECK(found[1] == violation{choice, 2, 2, 2});
    CHECK(found[2] == violation{rise, 2, 3, 2.1});
}

TEST_CASE("repeats: compares the new figures at the two sizes, and keeps their ratio", "[cliffs]") {
    violation v{fall, 0, 1, 0.5};
    CHECK_FALSE(bench::repeats(v, {8, 1, 0}, {16, 0.95, 0}));
    CHECK(v.ratio == 0.95);
    CHECK(bench::repeats(v, {8, 1, 0}, {16, 0.8, 0}));
    v.kind = rise;
    CHECK_FALSE(bench::repeats(v, {8, 1, 0}, {16, 2, 0}));
    CHECK(bench::repeats(v, {8, 1, 0}, {16, 2.5, 0}));
    v.kind = choice;
    CHECK_FALSE(bench::repeats(v, {8, 1, 0}, {16, 3, 2}));
    CHECK(bench::repeats(v, {8, 1, 0}, {16, 4, 2}));
    CHECK(v.ratio == 2);
}

TEST_CASE("typical_choice_ratio: the median; a size without a fixed choice counts as 1", "[cliffs]") {
    CHECK(bench::typical_choice_ratio({{8, 1, 1}, {16, 3, 1}, {32, 6, 5}}) == 1.2);
    CHECK(bench::typical_choice_ratio({{8, 5, 0}}) == 1);
}

TEST_CASE("sweep_sizes: multiples of the unit, each once, from the first to the last", "[cliffs]") {
    CHECK(bench::sweep_sizes(8, 20, 1.19, 4) == std::vector<std::size_t>{8, 12, 16, 20});
    CHECK(bench::sweep_sizes(8, 64, 2, 24) == std::vector<std::size_t>{24, 72});
    CHECK(bench::sweep_sizes(8, 8, 1.19, 4) == std::vector<std::size_t>{8});
}
