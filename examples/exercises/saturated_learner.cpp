// A learner whose link is saturated by about 200 actors, by simulation: more actors wait instead of working.
// Aggregators between them and the learner save messages; aggregators that compress let 1,000 actors work, at the same
// link.
//
// ranks: 2 0 0
#include "../common/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

struct system_of_actors {
    int actors = 200;
    int group = 0;             // actors of an aggregator; 0: they send to the learner themselves
    double compression = 1;    // by the aggregators
    double period = 1;         // mean seconds that an actor needs for a trajectory
    double bytes = 1e6;        // of a trajectory
    double bandwidth = 200e6;  // bytes a second into the learner, and into each aggregator
    double overhead = 20e-6;   // seconds that a message takes at its receiver beside its bytes
};

struct measured {
    double trajectories = 0;  // a second, at the learner
    double busy = 0;          // part of the time that the learner's link is in use
    double messages = 0;      // a second, at the learner
    double most_busy_aggregator = 0;
};

/// Discrete events. An actor works for a time drawn around the period, then sends, and works on when its message has
/// been received: a receiver that is behind makes its senders wait. A receiver takes messages one at a time, in order.
/// An aggregator sends as many trajectories as it has actors in one message, and collects the next meanwhile; while
/// that is full too, its actors wait.
class simulation {
public:
    explicit simulation(const system_of_actors& s) : s_(s), random_(1) {
        const int groups = s.group > 0 ? (s.actors + s.group - 1) / s.group : 0;
        receivers_.resize(static_cast<std::size_t>(groups) + 1);  // the last one is the learner
        for (int a = 0; a < s.actors; ++a) at(work() * a / s.actors, [this, a] { send_from_actor(a); });
    }

    measured run(double warm_up, double seconds) {
        receiver& learner = receivers_.back();
        const auto go_to = [&](double end) {
            while (!events_.empty() && events_.top().time <= end) {
                const event e = events_.top();
                events_.pop();
                now_ = e.time;
                e.action();
            }
        };
        go_to(warm_up);
        for (receiver& r : receivers_) r.busy = 0, r.messages = 0, r.trajectories = 0;
        go_to(warm_up + seconds);
        measured m{static_cast<double>(learner.trajectories) / seconds, learner.busy / seconds,
            static_cast<double>(learner.messages) / seconds, 0};
        for (std::size_t g = 0; g + 1 < receivers_.size(); ++g)
            m.most_busy_aggregator = std::max(m.most_busy_aggregator, receivers_[g].busy / seconds);
        return m;
    }

private:
    struct event {
        double time;
        std::uint64_t number;  // equal times: in order of their making
        std::function<void()> action;
        bool operator<(const event& o) const { return time != o.time ? time > o.time : number > o.number; }
    };
    struct receiver {
        double free_at = 0, busy = 0;
        long messages = 0, trajectories = 0;
        int collected = 0;         // aggregators: trajectories of the message being collected
        bool sending = false;      // ... and whether the one before is on its way
        std::vector<int> waiting;  // ... and actors whose trajectory finds no room
    };

    void at(double time, std::function<void()> action) { events_.push({time, made_++, std::move(action)}); }
    double work() { return s_.period * (0.5 + static_cast<double>(random_() >> 11) * 0x1p-53); }

    /// Takes a message of so many trajectories and bytes; `received` is called when it is over.
    void receive(receiver& r, int trajectories, double bytes, std::function<void()> received) {
        const double takes = s_.overhead + bytes / s_.bandwidth;
        r.free_at = std::max(r.free_at, now_) + takes;
        at(r.free_at, [&r, takes, trajectories, received] {
            r.busy += takes;
            ++r.messages;
            r.trajectories += trajectories;
            received();
        });
    }

    void work_on(int actor) {
        at(now_ + work(), [this, actor] { send_from_actor(actor); });
    }

    void send_from_actor(int actor) {
        if (s_.group == 0) return receive(receivers_.back(), 1, s_.bytes, [this, actor] { work_on(actor); });
        const int group = actor / s_.group;
        receive(
            receivers_[static_cast<std::size_t>(group)], 1, s_.bytes, [this, group, actor] { collect(group, actor); });
    }

    void collect(int group, int actor) {
        receiver& r = receivers_[static_cast<std::size_t>(group)];
        const int size = std::min(s_.group, s_.actors - group * s_.group);
        if (r.collected == size) return r.waiting.push_back(actor);
        ++r.collected;
        work_on(actor);
        send_from_aggregator(group, size);
    }

    void send_from_aggregator(int group, int size) {
        receiver& r = receivers_[static_cast<std::size_t>(group)];
        if (r.sending || r.collected < size) return;
        r.sending = true;
        r.collected = 0;
        receive(receivers_.back(), size, size * s_.bytes / s_.compression, [this, group, size] {
            receivers_[static_cast<std::size_t>(group)].sending = false;
            send_from_aggregator(group, size);
        });
        for (const int actor : std::exchange(r.waiting, {})) collect(group, actor);
    }

    system_of_actors s_;
    std::mt19937_64 random_;
    std::priority_queue<event> events_;
    std::vector<receiver> receivers_;
    double now_ = 0;
    std::uint64_t made_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    example::program program("A learner saturated at 200 actors; aggregators and compression carry it to 1,000.");
    system_of_actors base;
    double compression = 4;
    int group = 25;
    program.options.add(
        "--compression", compression, "factor by which aggregators compress", example::between(1.0, 100.0));
    program.options.add("--group", group, "actors of an aggregator", example::between(2, 200));
    program.default_ranks(1);
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        measured at_200, flat_1000, grouped_1000, compressed_1000;
        if (comm.rank() == 0) {
            example::table table({"actors", "flat: trajectories/s", "link busy", "aggregators", "link busy",
                "and compression", "link busy", "messages/s"});
            example::plot chart(
                "What one learner takes in, simulated", {.label = "actors"}, {.label = "trajectories a second"});
            const double seconds = out.quick() ? 20 : 60;
            for (const int actors : {50, 100, 150, 200, 300, 400, 600, 800, 1000}) {
                system_of_actors s = base;
                s.actors = actors;
                const measured flat = simulation(s).run(10, seconds);
                s.group = group;
                const measured grouped = simulation(s).run(10, seconds);
                s.compression = compression;
                const measured packed = simulation(s).run(10, seconds);
                const auto part = [](double x) { return fmt::format("{:.0f} %", x * 100); };
                table.add(actors, fmt::format("{:.1f}", flat.trajectories), part(flat.busy),
                    fmt::format("{:.1f}", grouped.trajectories), part(grouped.busy),
                    fmt::format("{:.1f}", packed.trajectories), part(packed.busy),
                    fmt::format("{:.1f}", packed.messages));
                chart.add("flat", actors, flat.trajectories);
                chart.add("aggregators", actors, grouped.trajectories);
                chart.add("aggregators and compression", actors, packed.trajectories);
                if (actors == 200) at_200 = flat;
                if (actors == 1000) flat_1000 = flat, grouped_1000 = grouped, compressed_1000 = packed;
            }
            out.print(table);
            out.print("At 1,000 actors: {:.2f} times the trajectories of the flat learner, by the same link.\n",
                compressed_1000.trajectories / flat_1000.trajectories);
            chart.says(fmt::format(
                "The learner's link takes {:.0f} trajectories a second and is full at {:.0f} actors. Aggregators "
                "save it messages, not bytes; where they compress, it takes {:.1f} times as many.",
                base.bandwidth / base.bytes, base.bandwidth / base.bytes,
                compressed_1000.trajectories / flat_1000.trajectories));
            chart.mark(200, at_200.trajectories,
                fmt::format("200 actors: the link is busy for {:.0f} % of the time", at_200.busy * 100));
            out.draw(chart);
        }
        const double bound = base.bandwidth / base.bytes;  // trajectories a second, uncompressed
        const bool here = comm.rank() == 0;
        out.check("the link bounds the flat learner",
            !here || (flat_1000.trajectories <= bound && flat_1000.trajectories > 0.97 * bound));
        out.check("it is nearly saturated at 200 actors", !here || at_200.busy > 0.9);
        out.check("aggregators alone change little: the bytes are the same",
            !here || grouped_1000.trajectories < 1.05 * flat_1000.trajectories);
        out.check("with compression: about as many times as the factor, or as the actors allow",
            !here || std::abs(compressed_1000.trajectories / flat_1000.trajectories / std::min(compression, 5.0) - 1) <
                         0.15);
        out.check("no aggregator is saturated", !here || compressed_1000.most_busy_aggregator < 0.5);
    });
}
