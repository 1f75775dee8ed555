// What scripts/bench --peers writes: the page of tables, the picture and the JSON.
#pragma once

#include "peers_table.hpp"
#include "sides.hpp"

#include <nlohmann/json.hpp>

#include <iterator>
#include <map>
#include <optional>
#include <set>

namespace bench {

/// One peer: its folder's name, and the lines of its file `about`.
struct peer_about {
    std::string name, title, settings;
    std::set<std::string> lacks;  // names of collectives
    std::string left_out;         // where and why, if it did not run everywhere
};

struct peers_report {
    std::vector<std::string> ways;
    std::vector<peer_about> peers;
    std::vector<peers_cell> cells;
    std::string machine, command, note;
    double load_before = 0, load_after = 0, minutes = 0;

    /// Whether there is a figure of that peer.
    bool measured(std::size_t peer) const {
        return std::any_of(cells.begin(), cells.end(),
            [&](const peers_cell& c) { return peer < c.peers_us.size() && c.peers_us[peer] > 0; });
    }
};

namespace report {

/// A ratio, bold where the peer is faster.
inline std::string shown(double ratio) {
    if (!(ratio > 0)) return "-";
    const std::string text = ratio < 9.995 ? fmt::format("{:.2f}", ratio) : fmt::format("{:.0f}", ratio);
    return ratio < 1 ? "**" + text + "**" : text;
}
inline std::string place(const peers_cell& c) {
    return fmt::format("{}, {} ranks, {}", name_of(c.what), c.ranks, show_size(c.bytes));
}

}  // namespace report

/// One line a peer and way: mean and worst ratio.
inline std::string standings(const peers_report& r) {
    std::string out = "| peer |";
    for (const std::string& way : r.ways) out += fmt::format(" {}: mean | worst | at | cells below 1 |", way);
    out += "\n|---|";
    for (std::size_t w = 0; w < r.ways.size(); ++w) out += "---|---|---|---|";
    out += "\n";
    for (std::size_t p = 0; p < r.peers.size(); ++p) {
        if (!r.measured(p)) continue;
        out += fmt::format("| {} |", r.peers[p].title);
        for (std::size_t w = 0; w < r.ways.size(); ++w) {
            const peers_standing s = standing_of(r.cells, w, p);
            out += s.cells == 0 ? std::string(" - | - | - | - |")
                                : fmt::format(" {:.2f} | {} | {} | {} of {} |", s.mean, report::shown(s.worst.ratio),
                                      report::place(*s.worst.cell), s.slower, s.cells);
        }
        out += "\n";
    }
    return out;
}

/// The cells in which a peer is faster, worst first, at most `limit` of them.
inline std::string slower_cells(const peers_report& r, std::size_t limit) {
    std::vector<peers_ratio> slower = worst_first(r.cells);
    std::erase_if(slower, [](const peers_ratio& x) { return x.ratio >= 1; });
    if (slower.empty()) return "No cell is slower than a peer.\n";
    std::string out = "| ratio | ours | ours us | peer us | peer | cell | line ns |\n|---|---|---|---|---|---|---|\n";
    for (const peers_ratio& x : std::span(slower).first(std::min(limit, slower.size())))
        out += fmt::format("| {} | {} | {:.2f} | {:.2f} | {} | {} | {:.0f} |\n", report::shown(x.ratio), r.ways[x.way],
            x.cell->ours_us[x.way], x.cell->peers_us[x.peer], r.peers[x.peer].name, report::place(*x.cell),
            x.cell->line_ns);
    if (slower.size() > limit) out += fmt::format("\nand {} more.\n", slower.size() - limit);
    return out;
}

/// Every ratio.
inline std::string all_cells(const peers_report& r) {
    std::string out = "| collective | ranks | size | line ns | ours | ours us |", rule = "|---|---|---|---|---|---|";
    for (std::size_t p = 0; p < r.peers.size(); ++p)
        if (r.measured(p)) out += fmt::format(" {} |", r.peers[p].name), rule += "---|";
    out += "\n" + rule + "\n";
    for (const peers_cell& c : r.cells)
        for (std::size_t w = 0; w < c.ours_us.size(); ++w) {
            out += fmt::format("| {} | {} | {} | {:.0f} | {} | {:.2f} |", name_of(c.what), c.ranks, show_size(c.bytes),
                c.line_ns, r.ways[w], c.ours_us[w]);
            for (std::size_t p = 0; p < r.peers.size(); ++p)
                if (r.measured(p)) out += fmt::format(" {} |", report::shown(c.ratios[w][p]));
            out += "\n";
        }
    return out;
}

/// The whole page. `picture` is the path of the picture as seen from the page.
inline std::string page(const peers_report& r, const std::string& picture) {
    std::string out = fmt::format(
        "# Against other libraries\n\n"
        "For those who compare this library with others on one host. Each ratio is the peer's time divided by\n"
        "ours: above 1 this library is faster, and where the peer is faster the ratio is **bold**. It is the median\n"
        "over turns of the ratio within one turn. All sides take short turns in one run, in an order that changes\n"
        "from turn to turn. This library runs in three ways: ranks as threads; processes with buffers from\n"
        "`comm.allocate` (allocated); processes with ordinary buffers (ordinary). The peers' ranks are processes\n"
        "with ordinary buffers. Before each call every rank rewrites its input, and after it every rank reads and\n"
        "checks its output, outside the timed part. If each rank has a core, every rank of every side is pinned to\n"
        "one, and the launchers' own binding is off; with more ranks than cores none is pinned. `line ns` is the\n"
        "latency of a cache line, one way, before and after the turns.\n\n"
        "Machine: {}. Load average {:.1f} at the start, {:.1f} at the end (the ranks themselves count). {:.0f} "
        "minutes.\n\n"
        "    {}\n\n",
        r.machine, r.load_before, r.load_after, r.minutes, r.command);
    if (!r.note.empty()) out += r.note + "\n\n";
    out += "| peer | version | settings |\n|---|---|---|\n";
    for (const peer_about& p : r.peers)
        out += fmt::format("| {} | {} | {}{}{} |\n", p.name, p.title.empty() ? "-" : p.title, p.settings,
            p.settings.empty() || p.left_out.empty() ? "" : "; ",
            p.left_out.empty() ? "" : "**left out** " + p.left_out);
    out += "\n## Each peer\n\nMean: the geometric mean over all cells.\n\n" + standings(r);
    out += "\n## Cells in which a peer is faster, worst first\n\n" + slower_cells(r, 60);
    out += fmt::format("\n## Ratios over size\n\n![the peers' time over ours, by collective and size]({})\n", picture);
    out += "\n## All cells\n\n" + all_cells(r);
    return out;
}

/// Small charts of the ratios over size: a column for each collective, a row for each way and number of ranks, a line
/// for each peer. Ratios beyond the axis are drawn at its end.
inline std::string picture(const peers_report& r) {
    constexpr double low = 0.125, high = 16;
    constexpr int panel_width = 190, panel_height = 130, left = 120, top = 70, gap = 14;
    constexpr std::array colours{
        "#1f77b4", "#17becf", "#d62728", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2"};
    std::vector<job> jobs;
    std::vector<int> ranks;
    std::set<std::size_t> sizes;
    for (const peers_cell& c : r.cells) {
        if (std::find(jobs.begin(), jobs.end(), c.what) == jobs.end()) jobs.push_back(c.what);
        if (std::find(ranks.begin(), ranks.end(), c.ranks) == ranks.end()) ranks.push_back(c.ranks);
        sizes.insert(c.bytes);
    }
    if (sizes.empty()) return {};
    const double first = std::log2(static_cast<double>(*sizes.begin())),
                 width = std::max(1.0, std::log2(static_cast<double>(*sizes.rbegin())) - first);
    const auto x_of = [&](std::size_t bytes) {
        return 8 + (panel_width - 16) * (std::log2(static_cast<double>(bytes)) - first) / width;
    };
    const auto y_of = [&](double ratio) {
        return panel_height * (1 - std::log2(std::clamp(ratio, low, high) / low) / std::log2(high / low));
    };
    const int rows = static_cast<int>(r.ways.size() * ranks.size()), columns = static_cast<int>(jobs.size());
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{}\" y=\"20\" font-size=\"14\">Time of other libraries over the time of this one; above 1 this one "
        "is "
        "faster</text>\n",
        left + columns * (panel_width + gap) + 20, top + rows * (panel_height + gap) + 30, left);
    int legend = left;
    for (std::size_t p = 0; p < r.peers.size(); ++p) {
        if (!r.measured(p)) continue;
        out +=
            fmt::format("<path d=\"M{} 36 h18\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{}\" y=\"40\">{}</text>\n",
                legend, colours[p % colours.size()], legend + 24, r.peers[p].name);
        legend += 110;
    }
    int row = 0;
    for (const int n : ranks)
        for (std::size_t w = 0; w < r.ways.size(); ++w, ++row) {
            const int y0 = top + row * (panel_height + gap);
            out += fmt::format("<text x=\"8\" y=\"{}\">{},</text><text x=\"8\" y=\"{}\">{} ranks</text>\n",
                y0 + panel_height / 2, r.ways[w], y0 + panel_height / 2 + 14, n);
            for (int column = 0; column < columns; ++column) {
                const int x0 = left + column * (panel_width + gap);
                const job j = jobs[static_cast<std::size_t>(column)];
                if (row == 0)
                    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                        x0 + panel_width / 2, top - 8, name_of(j));
                out += fmt::format("<g transform=\"translate({} {})\">\n", x0, y0);
                out += fmt::format("<rect y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"#fde8e8\"/>\n", y_of(1),
                    panel_width, panel_height - y_of(1));
                for (double tick = low; tick <= high; tick *= 2) {
                    out += fmt::format("<path d=\"M0 {:.1f} h{}\" stroke=\"{}\"/>\n", y_of(tick), panel_width,
                        tick == 1 ? "black" : "#ddd");
                    if (column == 0)
                        out += fmt::format(
                            "<text x=\"-6\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", y_of(tick) + 4, tick);
                }
                // all_gather and the like round 8 B up to a float a rank: labels of equal places would overlap
                double labelled = -100;
                for (const std::size_t bytes : sizes)
                    if (row == rows - 1 && x_of(bytes) - labelled > 25) {
                        labelled = x_of(bytes);
                        out += fmt::format(
                            "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" font-size=\"9\">{}</text>\n", labelled,
                            panel_height + 14, show_size(bytes));
                    }
                for (std::size_t p = 0; p < r.peers.size(); ++p) {
                    std::string path;
                    for (const peers_cell& c : r.cells)
                        if (c.what == j && c.ranks == n && c.ratios[w][p] > 0)
                            path += fmt::format(
                                "{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x_of(c.bytes), y_of(c.ratios[w][p]));
                    if (!path.empty())
                        out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n", path,
                            colours[p % colours.size()]);
                }
                out += "</g>\n";
            }
        }
    return out + "</svg>\n";
}

inline nlohmann::json json_of(const peers_report& r) {
    nlohmann::json all{{"machine", r.machine}, {"command", r.command}, {"ways", r.ways}, {"load_before", r.load_before},
        {"load_after", r.load_after}, {"peers", nlohmann::json::array()}, {"cells", nlohmann::json::array()}};
    for (const peer_about& p : r.peers)
        all["peers"].push_back(
            {{"name", p.name}, {"title", p.title}, {"settings", p.settings}, {"left_out", p.left_out}});
    for (const peers_cell& c : r.cells) {
        nlohmann::json cell{{"collective", name_of(c.what)}, {"ranks", c.ranks}, {"bytes", c.bytes},
            {"line_ns", c.line_ns}, {"turns", c.turns}};
        for (std::size_t w = 0; w < c.ours_us.size(); ++w) cell["ours_us"][r.ways[w]] = c.ours_us[w];
        for (std::size_t p = 0; p < c.peers_us.size(); ++p)
            if (c.peers_us[p] > 0) {
                cell["peers_us"][r.peers[p].name] = c.peers_us[p];
                for (std::size_t w = 0; w < c.ours_us.size(); ++w)
                    cell["ratio"][r.ways[w]][r.peers[p].name] = c.ratios[w][p];
            }
        all["cells"].push_back(std::move(cell));
    }
    return all;
}

}  // namespace bench
