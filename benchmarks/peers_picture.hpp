// The picture of scripts/bench --peers: a heat map of the ratios, a block for each peer.
#pragma once

#include "../examples/common/svg.hpp"
#include "peers_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

namespace heat {

namespace svg = example::svg;

/// The scale: from orange, where the peer is faster, over the page's grey, where both are equal, to blue. Orange and
/// blue differ for those who cannot tell red from green; the number and the frame say the same without colour.
struct step {
    double below;
    const char *light, *on_light, *dark, *on_dark;  // the cell, and the number in it
    const char* says;
};
inline constexpr std::array<step, 7> scale{{{0.8, "#b35900", "#fff", "#ffa657", "#0d1117", "below 0.8"},
    {0.95, "#ffc680", "#1f2328", "#7a4508", "#fff", "to 0.95"},
    {1.05, "#eef0f3", "#1f2328", "#262c36", "#f0f6fc", "to 1.05"},
    {1.5, "#d3e5f7", "#1f2328", "#173150", "#f0f6fc", "to 1.5"},
    {3, "#9ecbf0", "#1f2328", "#1c4d80", "#f0f6fc", "to 3"}, {10, "#539bd8", "#10161d", "#2f74c0", "#fff", "to 10"},
    {1e300, "#0b4a8f", "#fff", "#9cd0ff", "#0d1117", "above 10"}}};

inline std::size_t step_of(double ratio) {
    return static_cast<std::size_t>(
        std::ranges::find_if(scale, [&](const step& s) { return ratio < s.below; }) - scale.begin());
}

inline std::string style() {
    std::string light, dark;
    for (std::size_t i = 0; i < scale.size(); ++i) {
        light += fmt::format(".h{0}{{fill:{1}}}.n{0}{{fill:{2}}}", i, scale[i].light, scale[i].on_light);
        dark += fmt::format(".h{0}{{fill:{1}}}.n{0}{{fill:{2}}}", i, scale[i].dark, scale[i].on_dark);
    }
    return fmt::format(
        "{}.frame{{fill:none;stroke:#1f2328;stroke-width:2}}\n"
        "@media (prefers-color-scheme:dark){{{}.frame{{stroke:#fff}}}}\n",
        light, dark);
}

inline std::string number(double ratio) { return fmt::format("{:.{}f}", ratio, ratio < 9.995 ? 2 : 0); }

/// A peer's name and version, without where it came from.
inline std::string short_title(const peer_about& p) {
    const std::string_view all = p.title.empty() ? p.name : p.title;
    std::string out(all.substr(0, all.find_first_of("(~,")));
    while (out.ends_with(' ')) out.pop_back();
    return out;
}

}  // namespace heat

/// The heat map of one way to hold buffers: processes with ordinary buffers, as the peers have them, where these were
/// measured, else the last way. Cells in which a peer is faster have a frame.
inline std::string picture(const peers_report& r) {
    namespace svg = example::svg;
    constexpr double cell_height = 20, gap = 20, number_size = 12;
    if (r.cells.empty()) return {};
    const auto ordinary = std::ranges::find(r.ways, "ordinary");
    const std::size_t way =
        ordinary != r.ways.end() ? static_cast<std::size_t>(ordinary - r.ways.begin()) : r.ways.size() - 1;

    // Columns are sizes: those of a column differ by less than 4, since 8 B are a float of each of at most 2 ranks.
    std::set<std::size_t> sizes;
    std::vector<std::pair<job, int>> rows;
    for (const peers_cell& c : r.cells) {
        sizes.insert(c.bytes);
        if (std::ranges::find(rows, std::pair(c.what, c.ranks)) == rows.end()) rows.emplace_back(c.what, c.ranks);
    }
    std::ranges::stable_sort(rows, {}, [&](const auto& row) { return row.first; });
    std::vector<std::pair<std::size_t, std::size_t>> columns;  // least and greatest size
    for (const std::size_t bytes : sizes) {
        if (columns.empty() || bytes >= 4 * columns.back().first)
            columns.emplace_back(bytes, bytes);
        else
            columns.back().second = bytes;
    }
    std::vector<std::size_t> peers;
    for (std::size_t p = 0; p < r.peers.size(); ++p)
        if (r.measured(p)) peers.push_back(p);

    std::size_t all = 0, slower = 0;
    std::vector<peers_ratio> worst = worst_first(r.cells);
    std::erase_if(worst, [&](const peers_ratio& x) { return x.way != way; });
    for (const peers_ratio& x : worst) ++all, slower += x.ratio < 1;
    if (worst.empty()) return {};
    const auto where = [&](const peers_ratio& x) {
        return fmt::format("{}, {} on {} ranks, {}", heat::short_title(r.peers[x.peer]), name_of(x.cell->what),
            x.cell->ranks, show_size(x.cell->bytes));
    };
    const std::string
        title = fmt::format("Time of {} other libraries over ours", peers.size()),
        holds = r.ways[way] == "threads" ? "threads" : fmt::format("processes with {} buffers", r.ways[way]),
        says = fmt::format(
            "This library ({}) is at least as fast in {} of {} cells (blue: faster); those below 1 have a "
            "frame. The worst is {}: {}.",
            holds, all - slower, all, heat::number(worst[0].ratio), where(worst[0]));

    double names = 0;
    for (const auto& row : rows) names = std::max(names, svg::width_of(name_of(row.first), svg::small_size));
    const double left = svg::margin + names + 26, block_width = (svg::page_width - svg::margin - left - gap) / 2,
                 cell_width = block_width / static_cast<double>(columns.size());
    const svg::part head = svg::heading(title, says);
    std::string out = head.elements;

    // The scale, as wide as the page.
    double y = head.height + 4;
    const double step_width = (svg::page_width - 2 * svg::margin) / static_cast<double>(heat::scale.size());
    for (std::size_t i = 0; i < heat::scale.size(); ++i) {
        const double x = svg::margin + step_width * static_cast<double>(i);
        out += fmt::format(
            "<rect class=\"h{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"22\"/>\n", i, x, y, step_width);
        out +=
            svg::text(x + step_width / 2, y + 15.5, heat::scale[i].says, fmt::format("n{}", i), number_size, "middle");
    }
    y += 34;

    const double header = 58, block_height = header + cell_height * static_cast<double>(rows.size()) + 22;
    for (std::size_t b = 0; b < peers.size(); ++b) {
        const double x0 = left + (b % 2 == 0 ? 0 : block_width + gap),
                     y0 = y + block_height * static_cast<double>(b / 2);
        const std::size_t peer = peers[b];
        const peers_standing standing = standing_of(r.cells, way, peer);
        out += svg::text(x0, y0 + 14, heat::short_title(r.peers[peer]), "ink bold", svg::text_size);
        out += svg::text(x0 + block_width, y0 + 14,
            standing.slower == 0 ? "" : fmt::format("{} of {} below 1", standing.slower, standing.cells), "soft",
            number_size, "end");
        for (std::size_t c = 0; c < columns.size(); ++c) {
            const std::string size = show_size(columns[c].first);
            const double x = x0 + cell_width * (static_cast<double>(c) + 0.5);
            out += svg::text(x, y0 + 33, size.substr(0, size.find(' ')), "soft", number_size, "middle");
            out += svg::text(x, y0 + 48, size.substr(size.find(' ') + 1), "soft", number_size, "middle");
        }
        std::string frames;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const double top = y0 + header + cell_height * static_cast<double>(i);
            if (b % 2 == 0) {  // the rows of both blocks beside each other
                if (i == 0 || rows[i].first != rows[i - 1].first)
                    out += svg::text(left - 26, top + 14.5, name_of(rows[i].first), "ink", svg::small_size, "end");
                out += svg::text(left - 7, top + 14.5, std::to_string(rows[i].second), "soft", svg::small_size, "end");
                if (i == 0) out += svg::text(left - 7, top - 10, "ranks", "soft", number_size, "end");
            }
            for (std::size_t c = 0; c < columns.size(); ++c) {
                const auto cell = std::ranges::find_if(r.cells, [&](const peers_cell& one) {
                    return std::pair(one.what, one.ranks) == rows[i] && one.bytes >= columns[c].first &&
                           one.bytes <= columns[c].second && peer < one.ratios[way].size();
                });
                const double ratio = cell == r.cells.end() ? 0 : cell->ratios[way][peer],
                             x = x0 + cell_width * static_cast<double>(c);
                if (!(ratio > 0)) {
                    out += svg::text(x + cell_width / 2, top + 14.5, "-", "soft", number_size, "middle");
                    continue;
                }
                const std::size_t step = heat::step_of(ratio);
                const std::string place = fmt::format("x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"",
                    x + 0.75, top + 0.75, cell_width - 1.5, cell_height - 1.5);
                out += fmt::format("<rect class=\"h{}\" {}/>\n", step, place);
                if (ratio < 1) frames += fmt::format("<rect class=\"frame\" {}/>\n", place);
                out += svg::text(x + cell_width / 2, top + 14.5, heat::number(ratio),
                    fmt::format("n{}{}", step, ratio < 1 ? " bold" : ""), number_size, "middle");
            }
        }
        out += frames;
    }

    // The worst cells, in the place of a block where the number of peers leaves one, else below.
    double bottom = y + block_height * static_cast<double>((peers.size() + 1) / 2);
    const bool beside = peers.size() % 2 == 1 && peers.size() > 1;
    const double x0 = beside ? left + block_width + gap : svg::margin,
                 wide = beside ? block_width : svg::page_width - 2 * svg::margin;
    double line = beside ? bottom - block_height + 14 : bottom + 4;
    if (slower > 0) {
        out += svg::text(x0, line, "Where a peer is the fastest beside us", "ink bold", number_size);
        line += 4;
        const double end = beside ? bottom - 30 : line + 140;
        for (std::size_t i = 0; i < slower; ++i) {
            const auto words = svg::wrapped(where(worst[i]), number_size, wide - 38);
            if (line + 17 * static_cast<double>(words.size()) > end) break;
            for (std::size_t w = 0; w < words.size(); ++w) {
                line += 17;
                if (w == 0) out += svg::text(x0, line, heat::number(worst[i].ratio), "ink bold", number_size);
                out += svg::text(x0 + 38, line, words[w], "soft", number_size);
            }
        }
    }
    std::string note = "-: not measured. ";
    for (const auto& [least, most] : columns)
        if (least != most)
            note += fmt::format("{}: up to {}, so that each rank has a float. ", show_size(least), show_size(most));
    note += fmt::format("Machine: {}", r.machine);
    bottom = std::max(bottom, line + 8);
    for (const std::string& words : svg::wrapped(note, number_size, svg::page_width - 2 * svg::margin)) {
        out += svg::text(svg::margin, bottom + 6, words, "soft", number_size);
        bottom += 17;
    }
    return svg::document(title, says, svg::page_width, bottom + svg::margin, out, heat::style());
}

}  // namespace bench
