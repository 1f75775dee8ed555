// The arithmetic of the table of peers: ratios of times, and which of them are the worst.
#pragma once

#include "jobs.hpp"
#include "statistics.hpp"

#include <array>
#include <cmath>
#include <string>
#include <tuple>

namespace bench {

/// The times of one turn of all sides, ns a call: those of our ways to hold ranks and buffers, and those of the peers.
/// 0: the side took no part. `line_before` and `line_after`: latency of a cache line around the turn.
struct peers_turn {
    double line_before = 0, line_after = 0;
    std::vector<double> ours, peers;
};

/// What was measured of one collective at one size: medians over turns.
struct peers_cell {
    job what = job::all_reduce;
    int ranks = 0;
    std::size_t bytes = 0;
    double line_ns = 0;
    std::size_t turns = 0;                    // those that count
    std::vector<double> ours_us, peers_us;    // 0 where a side took no part
    std::vector<std::vector<double>> ratios;  // [way][peer]: the peer's time over ours; 0 where one took no part
};

/// The turns that count: those during which the machine kept its state, and of these the ones of the state that was
/// seen most often (the nearer one of two). All turns where there is no such turn.
inline std::vector<peers_turn> turns_of_one_state(const std::vector<peers_turn>& all) {
    std::array<std::vector<peers_turn>, states> by_state;
    for (const peers_turn& t : all)
        if (state_of(t.line_before) == state_of(t.line_after))
            by_state[static_cast<std::size_t>(state_of(t.line_before))].push_back(t);
    const auto most = std::max_element(
        by_state.begin(), by_state.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    return most->empty() ? all : *most;
}

/// The cell of these turns. A ratio is the median over turns of the ratios within one turn, since the sides of a turn
/// met the same machine.
inline peers_cell cell_of(job what, int ranks, std::size_t bytes, const std::vector<peers_turn>& all) {
    const std::vector<peers_turn> turns = turns_of_one_state(all);
    const auto over_turns = [&](auto value) {
        std::vector<double> values;
        for (const peers_turn& t : turns)
            if (const double v = value(t); v > 0) values.push_back(v);
        return median(values);
    };
    peers_cell cell;
    cell.what = what;
    cell.ranks = ranks;
    cell.bytes = bytes;
    cell.turns = turns.size();
    cell.line_ns = over_turns([](const peers_turn& t) { return (t.line_before + t.line_after) / 2; });
    if (turns.empty()) return cell;
    const std::size_t ways = turns.front().ours.size(), peers = turns.front().peers.size();
    for (std::size_t p = 0; p < peers; ++p)
        cell.peers_us.push_back(over_turns([&](const peers_turn& t) { return t.peers[p] / 1e3; }));
    for (std::size_t w = 0; w < ways; ++w) {
        cell.ours_us.push_back(over_turns([&](const peers_turn& t) { return t.ours[w] / 1e3; }));
        auto& row = cell.ratios.emplace_back();
        for (std::size_t p = 0; p < peers; ++p)
            row.push_back(over_turns([&](const peers_turn& t) { return t.ours[w] > 0 ? t.peers[p] / t.ours[w] : 0; }));
    }
    return cell;
}

/// One ratio of the table, and where it stands.
struct peers_ratio {
    const peers_cell* cell;
    std::size_t way, peer;
    double ratio;
};

/// All ratios that were measured, the smallest first: there the peer is the fastest beside us.
inline std::vector<peers_ratio> worst_first(const std::vector<peers_cell>& cells) {
    std::vector<peers_ratio> all;
    for (const peers_cell& cell : cells)
        for (std::size_t w = 0; w < cell.ratios.size(); ++w)
            for (std::size_t p = 0; p < cell.ratios[w].size(); ++p)
                if (cell.ratios[w][p] > 0) all.push_back({&cell, w, p, cell.ratios[w][p]});
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
        return std::tie(a.ratio, a.cell, a.way, a.peer) < std::tie(b.ratio, b.cell, b.way, b.peer);
    });
    return all;
}

/// How one of our ways stands beside one peer, over all cells.
struct peers_standing {
    std::size_t cells = 0, slower = 0;  // measured; of these with a ratio below 1
    double mean = 0;                    // the geometric mean of the ratios; 0 where there is none
    peers_ratio worst{nullptr, 0, 0, 0};
};
inline peers_standing standing_of(const std::vector<peers_cell>& cells, std::size_t way, std::size_t peer) {
    peers_standing s;
    double logarithms = 0;
    for (const peers_ratio& r : worst_first(cells)) {
        if (r.way != way || r.peer != peer) continue;
        if (s.cells++ == 0) s.worst = r;
        s.slower += r.ratio < 1;
        logarithms += std::log(r.ratio);
    }
    if (s.cells > 0) s.mean = std::exp(logarithms / static_cast<double>(s.cells));
    return s;
}

}  // namespace bench
