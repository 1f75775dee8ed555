// What scripts/bench --peers writes: the page of tables and the JSON; the picture: peers_picture.hpp.
#pragma once

#include "peers_table.hpp"
#include "sides.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <istream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

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

/// The same without places, for a page of many tables: mean, worst, and how many cells are below 1.
inline std::string summary(const peers_report& r) {
    std::string out = "| peer |", rule = "|---|";
    for (const std::string& way : r.ways) out += fmt::format(" {} |", way), rule += "---|";
    out += "\n" + rule + "\n";
    for (std::size_t p = 0; p < r.peers.size(); ++p) {
        if (!r.measured(p)) continue;
        out += fmt::format("| {} |", r.peers[p].title);
        for (std::size_t w = 0; w < r.ways.size(); ++w) {
            const peers_standing s = standing_of(r.cells, w, p);
            out += s.cells == 0 ? std::string(" - |")
                                : fmt::format(" {:.2f}, {}, {} of {} |", s.mean, report::shown(s.worst.ratio), s.slower,
                                      s.cells);
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

/// What is too long for a page: each peer's mean and worst, the cells in which one is faster, and all cells.
inline std::string tables(const peers_report& r) {
    return "## Each peer\n\nMean: the geometric mean over all cells.\n\n" + standings(r) +
           "\n## Cells in which a peer is faster, worst first\n\n" + slower_cells(r, 60) + "\n## All cells\n\n" +
           all_cells(r);
}

/// The whole page. `picture` is the path of the picture as seen from the page, `cells` that of the file which has
/// `tables`; without it the page has them.
inline std::string page(const peers_report& r, const std::string& picture, const std::string& cells) {
    std::string out = fmt::format(
        "# Against other libraries\n\n"
        "For those who compare libraries on one host. Each ratio is the peer's time divided by ours: above 1 this\n"
        "library is faster, below 1 the peer, and the ratio is **bold**. All sides take short turns in one run, in\n"
        "an order that changes; a ratio is the median over turns of the ratio within one turn. This library runs in\n"
        "three ways: as threads, as processes with buffers from `comm.allocate` (allocated), and as processes with\n"
        "ordinary buffers (ordinary). The peers' ranks are processes with ordinary buffers. Outside the timed part,\n"
        "every rank rewrites its input before each call and checks its output after it. Ranks are pinned unless\n"
        "they outnumber the cores. `line ns` is the latency of a cache line, one way.\n\n"
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
    out += "\n## Cells in which a peer is faster, worst first\n\n" + slower_cells(r, 6);
    out += fmt::format("\n## Ratios over size\n\n![the peers' time over ours, a block for each peer]({})\n", picture);
    out += cells.empty()
               ? "\n" + tables(r)
               : fmt::format("\n[All cells, each peer's mean and worst, and where it is faster]({}).\n", cells);
    return out;
}

/// Reads the table of all cells, and what a page of `page` says before it of machine and peers: ratios and our times
/// with the digits that the table has. Throws std::runtime_error where there is no such table.
inline peers_report read_page(std::istream& in) {
    peers_report r;
    const auto words_of = [](const std::string& line) {  // the cells of a row, without the blanks around them
        std::vector<std::string> words;
        for (std::size_t at = 1, end = 0; (end = line.find(" |", at)) != std::string::npos; at = end + 2)
            words.push_back(line.substr(std::min(at + 1, end), end - std::min(at + 1, end)));
        return words;
    };
    std::map<std::string, peer_about> known;
    std::vector<std::string> heads;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("Machine: ")) r.machine = line.substr(9, line.find(". Load average") - 9);
        if (!line.starts_with("| ")) continue;
        const std::vector<std::string> words = words_of(line);
        if (words[0] == "collective") {
            heads = words;
            for (std::size_t i = 6; i < heads.size(); ++i)
                r.peers.push_back(known.contains(heads[i]) ? known[heads[i]] : peer_about{heads[i], "", "", {}, ""});
        } else if (heads.empty()) {
            if (words.size() == 3 && words[0] != "peer") known[words[0]] = {words[0], words[1], words[2], {}, ""};
        } else {
            const auto what = std::ranges::find(job_names, words[0]);
            std::size_t bytes = 0, end = 0;
            if (words.size() != heads.size() || what == std::end(job_names))
                throw std::runtime_error("no row of the table of all cells: " + line);
            bytes = std::stoul(words[2], &end);
            bytes <<= words[2].ends_with(" MB") ? 20 : words[2].ends_with(" KB") ? 10 : 0;
            const int ranks = std::stoi(words[1]);
            const job which = static_cast<job>(what - std::begin(job_names));
            if (r.cells.empty() || std::tuple(r.cells.back().what, r.cells.back().ranks, r.cells.back().bytes) !=
                                       std::tuple(which, ranks, bytes)) {
                peers_cell cell;
                cell.what = which, cell.ranks = ranks, cell.bytes = bytes, cell.line_ns = std::stod(words[3]);
                cell.peers_us.resize(r.peers.size());
                r.cells.push_back(std::move(cell));
            }
            peers_cell& cell = r.cells.back();
            if (std::ranges::find(r.ways, words[4]) == r.ways.end()) r.ways.push_back(words[4]);
            cell.ours_us.push_back(std::stod(words[5]));
            auto& ratios = cell.ratios.emplace_back();
            for (std::size_t i = 6; i < words.size(); ++i) {
                const bool bold = words[i].starts_with("**");  // below 1, even if it is rounded to 1
                const double ratio = words[i] == "-" ? 0 : std::stod(words[i].substr(bold ? 2 : 0));
                ratios.push_back(bold ? std::min(ratio, 0.999) : ratio);
                if (ratio > 0) cell.peers_us[i - 6] = ratio * cell.ours_us.back();
            }
        }
    }
    if (r.cells.empty()) throw std::runtime_error("it has no table of all cells");
    return r;
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
