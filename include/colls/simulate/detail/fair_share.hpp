// The rates of flows that share links by max-min fairness, kept up to date while flows come and go.
// IWYU pragma: private, include <colls/simulate.hpp>
//
// A flow alone has the bandwidth of its narrowest link, its peak. A link on which the peaks of all flows fit is not
// crowded: it limits none of them. So a flow that comes or goes changes the rates only of those that are joined to it
// by a chain of crowded links. These are filled anew: the link with the least left for each of its open flows, or the
// least peak, is next, and closes its flows at that rate. A link's share only grows while others are closed, so a heap
// whose entries are corrected when they come up finds the least.
#pragma once

#include <colls/config.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace colls::inline v1::detail {

class fair_share {
public:
    /// By link: bytes a second.
    explicit fair_share(const std::vector<double>& capacities) : links_(capacities.size()) {
        for (std::size_t i = 0; i < capacities.size(); ++i) links_[i].capacity = capacities[i];
    }

    /// A flow begins, under a number that no other one has. `route` stays as it is until the flow stops. Its rate
    /// stands after settle().
    void start(int flow, std::span<const int> route) {
        if (static_cast<std::size_t>(flow) >= flows_.size()) flows_.resize(static_cast<std::size_t>(flow) + 1);
        flow_state& f = flows_[static_cast<std::size_t>(flow)];
        f.route = route;
        f.peak = std::numeric_limits<double>::infinity();
        f.rate = -1;
        ++f.life;
        for (const int l : route) f.peak = std::min(f.peak, at(l).capacity);
        for (const int l : route) {
            link_state& on = at(l);
            if (on.riders.size() > 2 * static_cast<std::size_t>(on.count) + 8) forget_stopped(on);
            on.riders.push_back({flow, f.life});
            ++on.count;
            on.demand += f.peak;
            if (crowded(on)) touch(l);
        }
        fresh_.push_back(flow);
    }
    /// Its places among the riders stay until they are found to be stale, or no flow is left.
    void stop(int flow) {
        flow_state& f = flows_[static_cast<std::size_t>(flow)];
        for (const int l : f.route) {
            link_state& on = at(l);
            if (crowded(on)) touch(l);
            on.demand -= f.peak;
            if (--on.count > 0) continue;
            on.demand = 0;  // rounding does not add up
            on.riders.clear();
        }
        f.route = {};
        ++f.life;
    }
    /// Brings the rates up to date, and calls changed(flow, rate) for each that is not what it was.
    template <class Changed>
    void settle(Changed changed) {
        gather();
        fill();
        for (const int l : reached_) at(l).reached = false;
        for (const int flow : open_) {
            flow_state& f = flows_[static_cast<std::size_t>(flow)];
            f.reached = false;
            if (f.rate != f.next) changed(flow, f.rate = f.next);
        }
        reached_.clear();
        open_.clear();
        fresh_.clear();
    }
    /// True where a settlement would change nothing.
    bool settled() const { return fresh_.empty() && reached_.empty(); }

private:
    struct rider {
        int flow;
        unsigned life;  ///< of the flow: another one, and it has stopped
    };
    struct flow_state {
        std::span<const int> route;  ///< empty: no such flow
        double peak = 0, rate = 0, next = 0;
        unsigned life = 0;
        bool reached = false, open = false;
    };
    struct link_state {
        double capacity = 0, demand = 0, left = 0;  ///< demand: the peaks of all flows
        int count = 0, open = 0;                    ///< flows, and those without a rate, while filled
        bool reached = false;
        std::vector<rider> riders;
    };
    struct offer {
        double share;
        int link;
        bool operator<(const offer& o) const { return share > o.share; }  // the least on top of a heap
    };
    static constexpr double slack = 1 + 1e-12;

    link_state& at(int link) { return links_[static_cast<std::size_t>(link)]; }
    static bool crowded(const link_state& l) { return l.demand > l.capacity * slack; }
    void touch(int link) {
        if (at(link).reached) return;
        at(link).reached = true;
        reached_.push_back(link);
    }
    void reach(int flow) {
        flow_state& f = flows_[static_cast<std::size_t>(flow)];
        if (f.reached || f.route.empty()) return;
        f.reached = f.open = true;
        open_.push_back(flow);
        for (const int l : f.route)
            if (crowded(at(l))) touch(l);
    }
    void forget_stopped(link_state& on) {
        std::erase_if(
            on.riders, [&](const rider& r) { return flows_[static_cast<std::size_t>(r.flow)].life != r.life; });
    }
    /// All flows whose rates may change, into open_, and the links by which they are joined, into reached_.
    void gather() {
        for (const int flow : fresh_) reach(flow);
        for (std::size_t i = 0; i < reached_.size(); ++i) {
            link_state& on = at(reached_[i]);
            if (static_cast<std::size_t>(on.count) != on.riders.size()) forget_stopped(on);
            for (const rider& r : on.riders) reach(r.flow);
        }
    }
    void fill() {
        offers_.clear();
        for (const int l : reached_) {
            link_state& on = at(l);
            on.left = on.capacity;
            on.open = on.count;
            if (crowded(on)) offers_.push_back({on.capacity / on.open, l});
        }
        std::make_heap(offers_.begin(), offers_.end());
        const auto by_peak = [&](int a, int b) {
            return flows_[static_cast<std::size_t>(a)].peak < flows_[static_cast<std::size_t>(b)].peak;
        };
        if (!std::is_sorted(open_.begin(), open_.end(), by_peak)) std::sort(open_.begin(), open_.end(), by_peak);
        for (const int flow : open_) {
            flow_state& f = flows_[static_cast<std::size_t>(flow)];
            while (f.open && correct_top() && offers_.front().share * slack < f.peak) close_riders();
            if (f.open) close(f, f.peak);
        }
    }
    /// Makes the first offer one that holds; false where there is none.
    bool correct_top() {
        while (!offers_.empty()) {
            const offer top = offers_.front();
            const link_state& on = at(top.link);
            const double share = on.open > 0 ? std::max(on.left, 0.0) / on.open : 0;
            if (on.open > 0 && share <= top.share * slack) return true;
            std::pop_heap(offers_.begin(), offers_.end());
            offers_.pop_back();
            if (on.open == 0) continue;
            offers_.push_back({share, top.link});
            std::push_heap(offers_.begin(), offers_.end());
        }
        return false;
    }
    void close_riders() {
        const offer top = offers_.front();
        for (const rider& r : at(top.link).riders)
            if (flow_state& f = flows_[static_cast<std::size_t>(r.flow)]; f.open) close(f, top.share);
    }
    void close(flow_state& f, double rate) {
        f.open = false;
        f.next = rate;
        for (const int l : f.route) {
            link_state& on = at(l);
            on.left -= rate;
            --on.open;
        }
    }

    std::vector<link_state> links_;
    std::vector<flow_state> flows_;
    std::vector<int> fresh_;    // flows that have started since the last settlement
    std::vector<int> reached_;  // links that join the flows whose rates may change
    std::vector<int> open_;     // these flows
    std::vector<offer> offers_;
};

}  // namespace colls::inline v1::detail
