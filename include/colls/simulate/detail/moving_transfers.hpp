// Transfers that share the links of a topology, played event by event.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/simulate/detail/event_queue.hpp>
#include <colls/simulate/detail/fair_share.hpp>
#include <colls/step.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace colls::inline v1::detail {

/// What is said of a transfer when it ends.
struct transfer_ended {
    int from, to;
    long tag;
    double time;
};

template <class Topology>
class moving_transfers {
public:
    /// `t`: a topology, which stays as it is. A template, since simulate.hpp includes this header.
    moving_transfers(const Topology& t, double resolution)
        : topology_(t), resolution_(resolution), share_(bandwidths(t)) {}

    /// Begins one at `time`: its bytes flow after the latencies of its route, but not before `earliest`.
    void begin(int from, int to, double bytes, double time, double earliest = 0, long tag = 0) {
        int number = static_cast<int>(flows_.size());
        if (free_.empty()) {
            flows_.emplace_back();
        } else {
            number = free_.back();
            free_.pop_back();
        }
        flow& f = numbered(number);
        f.from = from;
        f.to = to;
        f.tag = tag;
        f.left = bytes;
        f.flows = false;
        topology_.route(from, to, f.route);
        for (const int l : f.route) time += topology_.links()[static_cast<std::size_t>(l)].latency;
        expect(number, std::max(time, earliest));
        ++begun_;
    }
    /// Plays until none is left. Calls ended(transfer_ended), which may begin others.
    template <class Ended>
    void play(Ended ended) {
        while (!events_.empty()) {
            play_moment(ended);
            if (!share_.settled()) {
                ++settlements_;
                share_.settle([&](int number, double rate) { change_rate(number, rate); });
            }
            if (events_.size() > 4 * flows_.size() + 64)
                events_.forget([&](const event& e) { return e.version != numbered(e.number).version; });
        }
    }
    long begun() const { return begun_; }
    long settlements() const { return settlements_; }

private:
    struct flow {
        int from = none, to = none;
        long tag = 0;
        double left = 0;  ///< bytes, at time `since`
        double rate = 0, since = 0;
        unsigned version = 0;  ///< of its one event that counts
        bool flows = false;    ///< past its latency
        std::vector<int> route;
    };

    static std::vector<double> bandwidths(const Topology& t) {
        std::vector<double> all;
        for (const auto& l : t.links()) all.push_back(l.bandwidth);
        return all;
    }
    flow& numbered(int number) { return flows_[static_cast<std::size_t>(number)]; }

    void expect(int number, double time) { events_.add(time, {number, ++numbered(number).version}); }
    /// All events that happen at once, and what follows from them at the same time.
    template <class Ended>
    void play_moment(Ended& ended) {
        const double until = events_.time() * (1 + 1e-13) + resolution_;
        while (!events_.empty() && events_.time() <= until) {
            const double time = events_.time();
            events_.take(due_);
            for (const event& e : due_) happen(e, time, ended);
        }
    }
    template <class Ended>
    void happen(const event& e, double time, Ended& ended) {
        flow& f = numbered(e.number);
        if (e.version != f.version) return;
        now_ = std::max(now_, time);
        if (f.flows || f.left <= 0 || f.route.empty()) {
            if (f.flows) share_.stop(e.number);
            ++f.version;
            const transfer_ended over{f.from, f.to, f.tag, time};
            free_.push_back(e.number);  // from here on f may be another transfer
            return ended(over);
        }
        f.flows = true;
        f.rate = 0;
        f.since = time;
        share_.start(e.number, f.route);
    }
    void change_rate(int number, double rate) {
        flow& f = numbered(number);
        f.left = std::max(0.0, f.left - f.rate * (now_ - f.since));
        f.since = now_;
        f.rate = rate;
        expect(number, now_ + f.left / rate);
    }

    const Topology& topology_;
    const double resolution_;
    std::vector<flow> flows_;
    std::vector<int> free_;  // numbers of flows that have ended
    event_queue events_;
    std::vector<event> due_;  // now
    fair_share share_;
    double now_ = 0;
    long begun_ = 0, settlements_ = 0;
};

}  // namespace colls::inline v1::detail
