// The pictures: charts of lines and of boxes, in SVG and in the terminal, and the heat map of the peers.
#include "../../benchmarks/peers_picture.hpp"
#include "../../examples/common/gantt.hpp"
#include "../../examples/common/plot.hpp"
#include "svg_text.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

namespace {

using example::plot;
using example::unit;
using support::lines_of;

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
}

/// A chart of lines k + x, whose ends lie more or less close to each other.
plot made_chart(int lines, double distance, const std::string& name, bool logarithmic) {
    plot chart("A title that is long enough to need a second line on a page of this width, as some of them do",
        {"size", true, unit::binary_bytes}, {"time", logarithmic, unit::seconds});
    chart.says("A sentence of what is seen.");
    for (int k = 0; k < lines; ++k)
        for (double x = 8; x < 1e9; x *= 4)
            chart.add(name + std::to_string(k), x, 1e-6 * (1 + k * distance + x / 1000));
    return chart;
}

bench::peers_report made_report(std::size_t peers) {
    bench::peers_report r;
    r.ways = {"threads", "ordinary"};
    r.machine = "2 cores of a machine; 2026-01-01";
    for (std::size_t p = 0; p < peers; ++p) {
        const std::string name = "peer" + std::to_string(p);
        r.peers.push_back({name, "Peer of number " + std::to_string(p) + " (somewhere)", "its defaults", {}, ""});
    }
    double ratio = 0.5;
    for (const bench::job what : {bench::job::all_reduce, bench::job::all_reduce_in_place})
        for (const int ranks : {2, 4})
            for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{2} << 20}) {
                bench::peers_cell c;
                c.what = what, c.ranks = ranks, c.bytes = bytes == 8 && ranks == 4 ? 16 : bytes;
                c.line_ns = 60;
                c.ours_us = {1, 2};
                c.ratios.resize(2);
                for (std::size_t p = 0; p < peers; ++p) {
                    c.peers_us.push_back(10);
                    c.ratios[0].push_back(p == 1 ? 0 : 3);
                    c.ratios[1].push_back(p == 1 && bytes == 4096 ? 0 : ratio);
                    ratio *= 1.13;
                }
                r.cells.push_back(c);
            }
    return r;
}

}  // namespace

TEST_CASE("pictures: numbers have the unit in which they are read", "[pictures]") {
    using example::shown;
    CHECK(shown(8, unit::binary_bytes) == "8 B");
    CHECK(shown(32768, unit::binary_bytes) == "32 KB");
    CHECK(shown(1023.9, unit::binary_bytes) == "1 KB");
    CHECK(shown(1000, unit::binary_bytes) == "1000 B");
    CHECK(shown(1000, unit::bytes) == "1 KB");
    CHECK(shown(2.5e9, unit::bytes) == "2.5 GB");
    CHECK(shown(4.2e-6, unit::seconds) == "4.2 us");
    CHECK(shown(0.0123, unit::seconds) == "12.3 ms");
    CHECK(shown(0.9999, unit::seconds) == "1 s");
    CHECK(shown(0, unit::seconds) == "0");
    CHECK(shown(3e9, unit::bytes_a_second) == "3 GB/s");
    CHECK(shown(80, unit::percent) == "80 %");
    CHECK(shown(20000) == "20k");
    CHECK(shown(16384) == "16,384");
    CHECK(shown(10007) == "10,007");
}

TEST_CASE("pictures: intervals are spread without overlap, and stay where there is room", "[pictures]") {
    const std::vector<double> lengths{10, 10, 10, 10};
    CHECK(example::spread({20, 40, 60, 80}, lengths, 0, 100) == std::vector<double>{20, 40, 60, 80});
    CHECK(example::spread({50, 50, 50, 50}, lengths, 0, 100) == std::vector<double>{35, 45, 55, 65});
    CHECK(example::spread({98, 10, 97, 12}, lengths, 0, 100) == std::vector<double>{95, 6, 85, 16});
    CHECK(example::spread({}, {}, 0, 1).empty());
}

TEST_CASE("pictures: no text lies on another, and every line is named at its end", "[pictures]") {
    for (const bool logarithmic : {false, true})
        for (const int lines : {1, 2, 7, 8, 20})
            for (const double distance : {0.0001, 0.01, 3.0, 40'000.0}) {
                INFO(lines << " lines, " << distance << " apart, logarithmic: " << logarithmic);
                const std::string svg = made_chart(lines, distance, "schedule_with_a_name_", logarithmic).svg();
                support::check_texts_are_apart(svg);
                std::size_t names = 0;
                for (const auto& line : lines_of(svg)) names += line.size();
                CHECK(names >= static_cast<std::size_t>(lines));
            }
}

TEST_CASE("pictures: lines upon each other are one, with both names", "[pictures]") {
    plot chart("t", {"x"}, {"y"});
    for (const double x : {1.0, 2.0, 3.0}) {
        chart.add("a", x, x);
        chart.add("b", x, 2 * x);
        chart.add("c", x, x);
    }
    const auto lines = lines_of(chart.svg());
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == std::set<std::string>{"a", "c"});
    CHECK(lines[1] == std::set<std::string>{"b"});
}

TEST_CASE("pictures: of many lines those stay that are the lowest somewhere, then the nearest", "[pictures]") {
    plot chart("t", {"x", true}, {"y", true});
    for (double x = 1; x <= 1000; x *= 10) {
        for (int k = 9; k >= 1; --k) chart.add("slow " + std::to_string(k), x, (10 + x) * (1.5 + k));
        chart.add("large", x, 50 + x / 2);
        chart.add("small", x, 10 + x);
    }
    const std::vector<std::string> others = chart.keep_lowest(4);
    CHECK(others == std::vector<std::string>{"slow 3", "slow 4", "slow 5", "slow 6", "slow 7", "slow 8", "slow 9"});
    const auto lines = lines_of(chart.svg());
    REQUIRE(lines.size() == 4);
    CHECK(lines[0].contains("small"));
    CHECK(lines[1].contains("large"));
    CHECK(lines[2].contains("slow 1"));
    CHECK(lines[3].contains("slow 2"));
}

TEST_CASE("pictures: the words of marks and of the band keep away from each other", "[pictures]") {
    plot chart = made_chart(4, 3, "line", true);
    std::vector<plot::stretch> band;
    for (int i = 0; i < 6; ++i) {
        chart.mark(1000 * (1 + i), 1e-6 * (2 + i), "a point of interest");
        band.push_back({8.0 * (1 << i), 8.0 * (2 << i), "line" + std::to_string(i % 4)});
    }
    band.back().to = 1e9;
    chart.band("fastest", band);
    for (int i = 0; i < 3; ++i) chart.note("A note below the chart.");
    const std::string svg = chart.svg();
    support::check_texts_are_apart(svg);
    CHECK(count_of(svg, "<circle") == 6);
    CHECK(count_of(svg, ">line0</text>") >= 2);  // at the line and in the band
    support::check_texts_are_apart(example::plots({chart, chart}).svg());
}

TEST_CASE("pictures: light and dark, a title and a description", "[pictures]") {
    plot chart = made_chart(2, 1, "<a & b>", true);
    const std::string svg = chart.svg();
    CHECK(count_of(svg, "prefers-color-scheme:dark") == 1);
    CHECK(svg.find("<title id=\"title\">A title") != std::string::npos);
    CHECK(svg.find("<desc id=\"desc\">A sentence of what is seen.</desc>") != std::string::npos);
    CHECK(svg.find("&lt;a &amp; b&gt;0</text>") != std::string::npos);
    CHECK(svg.find("<a &") == std::string::npos);
}

TEST_CASE(
    "pictures: a chart for the terminal has its line, its axes and no more columns than asked for", "[pictures]") {
    plot chart("t", {"epochs"}, {"loss"});
    for (int i = 0; i <= 60; ++i) chart.add("loss", i / 10.0, std::exp(-i / 20.0));
    const std::string text = chart.text(60, 12);
    std::istringstream in(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
        CHECK(line.size() <= 60 + 12);  // the name of the x axis stands behind its numbers
        lines.push_back(line);
    }
    REQUIRE(lines.size() == 12 + 3);
    const auto column = [&](std::size_t row) { return lines[row].find('*'); };
    const auto first =
        std::ranges::find_if(lines, [](const std::string& l) { return l.find('*') != std::string::npos; });
    REQUIRE(first != lines.end());
    CHECK(first - lines.begin() <= 2);  // it begins at the top, on the left, and falls
    CHECK(column(static_cast<std::size_t>(first - lines.begin())) < 12);
    CHECK(lines[0].find("loss") != std::string::npos);
    CHECK(lines.back().find("epochs") != std::string::npos);
}

TEST_CASE("pictures: a row of a chart of boxes is found within its section", "[pictures]") {
    example::gantt chart("A pipeline");
    chart.says("What is seen.");
    for (const char* name : {"one", "other"}) {
        chart.section(name);
        for (const char* row : {"stage 0", "stage 1"}) {
            chart.add(row, 0, 0.01, "0", true);
            chart.add(row, 0.011, 0.03, "1", false);
        }
    }
    const std::string svg = chart.svg();
    support::check_texts_are_apart(svg);
    CHECK(count_of(svg, "class=\"idle\"") == 4);
    CHECK(count_of(svg, "class=\"full\"") == 4);
    CHECK(count_of(svg, "class=\"hollow\"") == 4);
    CHECK(count_of(svg, ">stage 1</text>") == 2);
}

TEST_CASE("peers: the heat map has a number in each cell, and a frame where a peer is faster", "[pictures]") {
    for (const std::size_t peers : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
        INFO(peers << " peers");
        const bench::peers_report r = made_report(peers);
        const std::string svg = bench::picture(r);
        support::check_texts_are_apart(svg);
        std::size_t all = 0, slower = 0;
        for (const bench::peers_cell& c : r.cells)
            for (const double ratio : c.ratios[1]) {
                if (!(ratio > 0)) continue;
                ++all;
                slower += ratio < 1;
                CHECK(svg.find(">" + bench::heat::number(ratio) + "</text>") != std::string::npos);
            }
        CHECK(count_of(svg, "<rect class=\"h") == all + bench::heat::scale.size());
        CHECK(count_of(svg, "class=\"frame\"") == slower);
        CHECK(count_of(svg, ">8</text>") == peers);  // 8 and 16 B are one column
        CHECK(count_of(svg, ">16</text>") == 0);
    }
}

TEST_CASE("peers: a page that was written is read again, and gives the same picture", "[pictures]") {
    bench::peers_report r = made_report(3);
    for (bench::peers_cell& c : r.cells)  // as many digits as the page has
        for (auto& row : c.ratios)
            for (double& ratio : row) ratio = std::stod(fmt::format("{:.2f}", std::min(ratio, 9.9)));
    std::istringstream page(bench::page(r, "x.svg", ""));
    CHECK(bench::picture(bench::read_page(page)) == bench::picture(r));

    std::istringstream other("# A page\n\n| a | b |\n|---|---|\n");
    CHECK_THROWS_WITH(bench::read_page(other), Catch::Contains("no table of all cells"));
}
