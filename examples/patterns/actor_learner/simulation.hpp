// A discrete-event model of many actors and one learner: links that take alpha + beta * bytes for each message, one
// after the other.
#pragma once

#include "../../common/program.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace example {

struct simulated_cluster {
    double alpha = 5e-6;      ///< seconds a message, on any link
    double beta = 0.1e-9;     ///< seconds a byte, on any link
    double trajectory = 1e6;  ///< bytes
    double period = 21e-3;    ///< seconds in which an actor acts a trajectory, on average; each 0.8 to 1.2 of it
    double compression = 4;   ///< bytes before by bytes after
    double packing = 0.1e-9;  ///< seconds a byte that an aggregator, or an actor, takes to compress

    void add_options(example::options& options) {
        options.add("--alpha", alpha, "simulation: seconds a message", example::positive);
        options.add("--beta", beta, "simulation: seconds a byte", example::positive);
        options.add("--trajectory", trajectory, "simulation: bytes of a trajectory", example::positive);
        options.add("--period", period, "simulation: seconds of acting a trajectory", example::positive);
        options.add("--compression", compression, "simulation: factor of compression", example::positive);
        options.add("--packing", packing, "simulation: seconds a byte of compressing", example::not_negative);
    }
    /// Seconds of the learner's link for one trajectory, where `together` of them are one message.
    double learner_time(int together, bool compressed) const {
        return alpha / together + beta * trajectory / (compressed ? compression : 1);
    }
};

/// Trajectories a second that reach the learner. groups: of aggregators; 0: none. An actor hands a trajectory over and
/// acts the next, and waits before it hands that over until the learner has the one before. An aggregator sends on when
/// it has one from each of its actors.
inline double simulate(const simulated_cluster& c, int actors, int groups, bool compressed, double seconds) {
    struct event {
        double time;
        enum { acted, received, packed, delivered } what;
        int who;  // an actor, or an aggregator
        bool operator>(const event& other) const { return time > other.time; }
    };
    struct actor_state {
        bool in_flight = false, waiting = false;
        int group = 0;
    };
    struct group_state {
        std::vector<int> members, arrived;  // `arrived` have a trajectory in the next message
        std::queue<std::vector<int>> sent;  // messages on their way to the learner
        double link_free = 0;
    };
    std::mt19937 random(1);
    const auto acting = [&] { return c.period * (0.8 + 0.4 * static_cast<double>(random() % 4096) / 4095); };
    std::priority_queue<event, std::vector<event>, std::greater<>> events;
    std::vector<actor_state> all(static_cast<std::size_t>(actors));
    const int boxes = groups == 0 ? actors : groups;  // without aggregators each actor is a group of its own
    std::vector<group_state> group(static_cast<std::size_t>(boxes));
    for (int a = 0; a < actors; ++a) {
        all[static_cast<std::size_t>(a)].group = static_cast<int>(static_cast<long>(a) * boxes / actors);
        group[static_cast<std::size_t>(all[static_cast<std::size_t>(a)].group)].members.push_back(a);
        events.push({acting() * (a + 1) / actors, event::acted, a});  // they begin at different times
    }
    double learner_free = 0;
    long counted = 0;
    const double warm_up = seconds / 4;

    const auto hand_over = [&](int a, double now) {
        all[static_cast<std::size_t>(a)].in_flight = true;
        group_state& g = group[static_cast<std::size_t>(all[static_cast<std::size_t>(a)].group)];
        double arrives = now;  // at the aggregator, by its link
        if (groups > 0) arrives = g.link_free = std::max(now, g.link_free) + c.alpha + c.beta * c.trajectory;
        events.push({arrives, event::received, a});
        events.push({now + acting(), event::acted, a});
    };
    while (!events.empty() && events.top().time < seconds) {
        const auto [now, what, who] = events.top();
        events.pop();
        if (what == event::acted) {
            actor_state& a = all[static_cast<std::size_t>(who)];
            if (a.in_flight)
                a.waiting = true;
            else
                hand_over(who, now);
        } else if (what == event::received) {
            const int box = all[static_cast<std::size_t>(who)].group;
            group_state& g = group[static_cast<std::size_t>(box)];
            g.arrived.push_back(who);
            if (g.arrived.size() < g.members.size()) continue;
            const double bytes = c.trajectory * static_cast<double>(g.arrived.size());
            g.sent.push(std::exchange(g.arrived, {}));
            events.push({now + (compressed ? c.packing * bytes : 0), event::packed, box});
        } else if (what == event::packed) {
            const group_state& g = group[static_cast<std::size_t>(who)];
            const int together = static_cast<int>(g.sent.back().size());
            learner_free = std::max(now, learner_free) + together * c.learner_time(together, compressed);
            events.push({learner_free, event::delivered, who});
        } else {
            group_state& g = group[static_cast<std::size_t>(who)];
            for (const int a : g.sent.front()) {
                counted += now >= warm_up;
                actor_state& sender = all[static_cast<std::size_t>(a)];
                sender.in_flight = false;
                if (std::exchange(sender.waiting, false)) hand_over(a, now);
            }
            g.sent.pop();
        }
    }
    return static_cast<double>(counted) / (seconds - warm_up);
}

/// Simulates 50 to 1,000 actors four ways, prints the parameters and a table, and adds the curves. Returns whether the
/// rates are those that actors and the learner's link allow: at most 5 % above these and 15 % below.
inline bool simulate_all(const simulated_cluster& c, double seconds, output& out, plot& chart) {
    struct way {
        const char* name;
        bool aggregators, compressed;
    };
    const way ways[] = {{"flat", false, false}, {"aggregators", true, false}, {"compression", false, true},
        {"aggregators, compression", true, true}};
    out.print(
        "\nSimulated: alpha {:g} us a message, beta {:g} ns a byte; trajectories of {:g} MB, one each {:g} ms; "
        "compression {:g}, at {:g} ns a byte; sqrt(K) aggregators; {:g} s\n",
        c.alpha * 1e6, c.beta * 1e9, c.trajectory / 1e6, c.period * 1e3, c.compression, c.packing * 1e9, seconds);
    table rows({"actors", "flat /s", "aggregators /s", "compression /s", "both /s", "both by flat at 200"});
    bool right = true;
    double base = 0, both = 0;
    for (const int actors : {50, 100, 150, 200, 300, 400, 600, 800, 1000}) {
        const int groups = static_cast<int>(std::lround(std::sqrt(actors)));
        std::vector<double> rates;
        for (const way& w : ways) {
            rates.push_back(simulate(c, actors, w.aggregators ? groups : 0, w.compressed, seconds));
            chart.add(w.name, actors, rates.back());
            double bound =
                std::min(actors / c.period, 1 / c.learner_time(w.aggregators ? actors / groups : 1, w.compressed));
            if (w.aggregators) bound = std::min(bound, groups / (c.alpha + c.beta * c.trajectory));
            // Near saturation the queue makes actors wait, and the slowest of a group delays its message.
            right = right && rates.back() < 1.05 * bound && rates.back() > 0.85 * bound;
        }
        if (actors == 200) base = rates[0];
        both = rates[3];
        rows.add(actors, std::lround(rates[0]), std::lround(rates[1]), std::lround(rates[2]), std::lround(rates[3]),
            base > 0 ? fmt::format("{:.2f}", rates[3] / base) : "");
    }
    out.print(rows);
    chart.mark(200, base, "200 actors fill the learner's link");
    chart.says(
        fmt::format("A flat learner is saturated by 200 actors. Aggregators alone save it little; where they compress, "
                    "the same link takes {:.1f} times as many trajectories.",
            both / base));
    return right;
}

}  // namespace example
