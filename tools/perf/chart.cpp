#include "chart.hpp"

#include "../../examples/common/plot.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <set>
#include <stdexcept>

namespace perf {

namespace {

/// What the points of one line have in common.
std::string series(const row& r) {
    std::string out(name_of(r.what));
    if (!r.type.empty()) out += fmt::format(" {}", r.type);
    if (r.op != reduction::none) out += fmt::format(" {}", name_of(r.op));
    if (r.root > 0) out += fmt::format(" root {}", r.root);
    return out;
}

bool compares(const peer_row& p, const row& r) {
    return (p.collective.empty() || p.collective == name_of(r.what)) && (p.type.empty() || p.type == r.type) &&
           (p.op.empty() || p.op == name_of(r.op)) && (p.ranks == 0 || p.ranks == r.ranks);
}

}  // namespace

peer read_peer(const std::string& name, const std::string& file) {
    try {
        std::ifstream in(file);
        if (!in) throw std::runtime_error("it cannot be read");
        const nlohmann::json all = nlohmann::json::parse(in);
        const nlohmann::json& rows = all.is_array() ? all : all.at("rows");
        peer out{name, {}};
        for (const nlohmann::json& r : rows) {
            const double seconds =
                r.contains("seconds") ? r["seconds"].get<double>() : r.at("peer_us").get<double>() / 1e6;
            if (seconds > 0)
                out.rows.push_back({r.value("collective", ""), r.value("type", ""), r.value("redop", ""),
                    r.value("ranks", 0), r.at("bytes").get<double>(), seconds});
        }
        if (out.rows.empty()) throw std::runtime_error("it has no rows with a time");
        return out;
    } catch (const std::exception& e) {
        throw std::runtime_error(fmt::format("--peer {}={}: {}", name, file, e.what()));
    }
}

std::string draw(const options& o, const std::vector<row>& rows, const std::vector<peer>& peers) {
    std::set<std::string> all;
    for (const row& r : rows) all.insert(series(r));
    const int ranks = rows.empty() ? 0 : rows.front().ranks;
    const std::string title =
        fmt::format("{}, {} ranks, {}", all.size() == 1 ? *all.begin() : "collectives", ranks, o.transport);
    example::plot times(title, {"size", true, example::unit::binary_bytes}, {"time", true, example::unit::seconds}),
        widths("Bus bandwidth", {"size", true, example::unit::binary_bytes},
            {"bus bandwidth", true, example::unit::bytes_a_second});
    const auto add = [&](const std::string& name, const row& like, double bytes, double seconds) {
        if (bytes <= 0 || seconds <= 0) return;
        const std::string label = all.size() == 1 ? name : name + ": " + series(like);
        times.add(label, bytes, seconds);
        const double factor = bus_factor(like.what, like.ranks);
        if (factor > 0) widths.add(label, bytes, bytes / seconds * factor);
    };
    for (const row& r : rows) add(o.name, r, static_cast<double>(r.size.bytes()), r.seconds());
    for (const row& r : rows)
        if (r.bound_seconds) add("bound", r, static_cast<double>(r.size.bytes()), *r.bound_seconds);
    for (const peer& p : peers) {
        std::set<std::string> drawn;
        for (const row& r : rows)
            if (drawn.insert(series(r)).second)
                for (const peer_row& q : p.rows)
                    if (compares(q, r)) add(p.name, r, q.bytes, q.seconds);
    }
    // What is seen: the smallest and the largest size of this run, and its best bandwidth.
    const row* least = nullptr;
    const row* most = nullptr;
    const row* best = nullptr;
    const auto bandwidth = [](const row& r) {
        return static_cast<double>(r.size.bytes()) / r.seconds() * bus_factor(r.what, r.ranks);
    };
    for (const row& r : rows) {
        if (r.size.bytes() == 0 || !(r.seconds() > 0)) continue;
        if (!least || r.size.bytes() < least->size.bytes()) least = &r;
        if (!most || r.size.bytes() > most->size.bytes()) most = &r;
        if (bus_factor(r.what, r.ranks) > 0 && (!best || bandwidth(r) > bandwidth(*best))) best = &r;
    }
    const auto size = [](const row& r) {
        return example::shown(static_cast<double>(r.size.bytes()), example::unit::binary_bytes);
    };
    const auto time = [](const row& r) { return example::shown(r.seconds(), example::unit::seconds); };
    if (least)
        times.says(fmt::format(
            "{} takes {} for {}, and {} for {}.", o.name, time(*least), size(*least), time(*most), size(*most)));
    if (best) {
        const std::string rate = example::shown(bandwidth(*best), example::unit::bytes_a_second);
        widths.says(fmt::format("{} moves at most {}, at {}.", o.name, rate, size(*best)));
        widths.mark(static_cast<double>(best->size.bytes()), bandwidth(*best), rate);
        return example::plots({times, widths}).svg();
    }
    return times.svg();
}

}  // namespace perf
