// What `automatic` would choose, and a table of what it weighs: behind colls/explain.hpp.
// IWYU pragma: private, include <colls/explain.hpp>
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/choose/choose.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace colls::inline v1::detail {

/// The demand of a call with an operator that commutes.
inline demand demand_of(const rank_context& self, collective what, std::size_t bytes, bool reproducible) {
    const bool unsized = owned(what) && rooted(what);
    const bool eager = !unsized && !self.by_messages && posted_of(what, bytes, self.size) <= eager_capacity;
    return {what, class_bytes(unsized ? 0 : bytes), posted_of(what, most_of_class(bytes), self.size), false, unsized,
        eager, reduces(what) && (reproducible || self.env.reproducible), 0, near_so_far(self)};
}

/// The rounds in which the schedule sends between hosts, as ranges: "0-2,5", or "none".
inline std::string rounds_between_hosts(const any_schedule& s, const host_map& hosts, int n) {
    std::string text;
    const auto add = [&](int first, int last) {
        if (first == none) return;
        text += (text.empty() ? "" : ",") + std::to_string(first);
        if (last > first) text += "-" + std::to_string(last);
    };
    int first = none, last = none;
    for (int k = 0; k < s.rounds(n); ++k) {
        bool far = false;
        for (int r = 0; r < n && !far; ++r)
            for (int p = 0; p < s.ports(n) && !far; ++p) {
                const int peer = s.at(r, n, k, p).send.peer;
                far = peer != none && hosts.host_of(peer) != hosts.host_of(r);
            }
        if (!far) continue;
        if (first == none || k > last + 1) {
            add(first, last);
            first = k;
        }
        last = k;
    }
    add(first, last);
    return text.empty() ? "none" : text;
}

inline std::string explanation(const rank_context& self, collective what, std::size_t bytes, bool reproducible) {
    const candidates list = all_candidates_of(what);
    const demand d = demand_of(self, what, bytes, reproducible);
    const machine figures = figures_now(self, d.near);
    const shared_machine m = model_of(figures, self.size);
    const prediction chosen = choose(self, d, list);
    std::string text;
    const auto add = [&](const char* format, auto... values) {
        char row[160];
        std::snprintf(row, sizeof row, format, values...);
        text += row;
    };
    add("%s of %zu bytes, %d ranks: alpha %.2f us, beta %.3f ns/B, gamma %.3f ns/B%s%s%s\n", name_of(what), bytes,
        self.size, m.alpha * 1e6, m.beta * 1e9, m.gamma * 1e9, self.env.schedule ? ", COLLS_SCHEDULE=" : "",
        self.env.schedule ? self.env.schedule : "", d.reproducible ? ", reproducible" : "");
    if (const tuned_schedule by = tuned_for(what, self.size, d.bytes); !by.name.empty())
        text += std::string("  by COLLS_TUNE: ") + by.path + "\n";
    const candidates by_hosts = two_level_candidates(self, what, d.root);
    const auto fits = [&](const candidate& c) { return !d.reproducible || c.single_fold; };
    int width = 20;
    for (int i = 0; i < by_hosts.count; ++i) width = std::max(width, static_cast<int>(by_hosts.first[i].name.size()));
    const host_map& hosts = self.layout.hosts;
    add("  %-*s %7s %14s %10s %14s%s\n", width, "schedule", "rounds", "bytes sent", "chunk", "predicted us",
        hosts.known() ? "  between hosts in rounds" : "");
    const auto add_row = [&](std::string_view name, int rounds, double sent, std::size_t chunk, double seconds,
                             bool taken, bool suits, const any_schedule* counted = nullptr) {
        const char* const mark = taken ? "  <- chosen" : suits ? "" : "  not reproducible";
        char chunk_text[24] = "-";
        if (chunk > 0 && chunk < whole_unit_bytes) std::snprintf(chunk_text, sizeof chunk_text, "%zu", chunk);
        add("  %-*.*s %7d %14.0f %10s %14.2f", width, static_cast<int>(name.size()), name.data(), rounds, sent,
            chunk_text, seconds * 1e6);
        if (hosts.known() && counted != nullptr) text += "  " + rounds_between_hosts(*counted, hosts, self.size);
        text += std::string(mark) + "\n";
    };
    const auto add_weighed = [&](const candidate& c, bool in_chunks) {
        const cost counted = traffic_of_candidate(c, self.size);
        const prediction p = predicted(c, self, m, d.bytes);
        const double block = counted.blocks > 0 ? static_cast<double>(bytes) / counted.blocks : 0;
        add_row(c.name, counted.rounds, static_cast<double>(counted.blocks_sent) * block, in_chunks ? p.chunk : 0,
            p.seconds, chosen.of == &c, fits(c), &c.schedule);
    };
    if (d.eager) {
        const double seconds = predict_eager(m, figures, what, self.size, static_cast<double>(d.posted));
        add_row(eager_name, 1, static_cast<double>(posted_of(what, bytes, self.size)), 0, seconds, chosen.of == nullptr,
            true);
    }
    for (int i = 0; i < list.count; ++i) {
        const candidate& c = list.first[i];
        if (!c.schedule.supports(self.size)) continue;
        if (!is_weighed(c, self, reached_by(self))) {
            add_row(c.name, c.schedule.rounds(self.size), 0, 0, 0, chosen.of == &c, fits(c));
            text.insert(text.size() - 1, "  not weighed: too large for this group");
            continue;
        }
        add_weighed(c, true);
    }
    for (int i = 0; i < by_hosts.count; ++i)
        if (const candidate& c = by_hosts.first[i];
            c.schedule.supports(self.size) && is_weighed(c, self, reached_by(self)))
            add_weighed(c, false);
    if (!self.by_messages && self.size > 1)
        add("  cores are %s each other (near: a line takes less than %.0f ns): copies are %s\n",
            d.near ? "near" : "far from", figures.near_below * 1e9,
            self.crowded ? "pulled up to 4 MB, since ranks outnumber cores"
            : d.near     ? "pulled, while they fit the caches"
                         : "pushed past the caches");
    return text;
}

inline std::string choice(const rank_context& self, collective what, std::size_t bytes, bool reproducible) {
    const prediction p = choose(self, demand_of(self, what, bytes, reproducible), all_candidates_of(what));
    return std::string(p.of ? p.of->name : eager_name);
}
inline model group_model(const rank_context& self) {
    const shared_machine m = model_of(self.backend->figures(), self.size);
    return {m.alpha, m.beta, m.gamma};
}

}  // namespace colls::inline v1::detail
