// A topology of any shape, with the shortest routes.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/detail/simulate/topologies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

/// The nodes of a network, and for each rank how far it is from each node.
class shortest_routes {
public:
    shortest_routes(int ranks, const std::vector<simulation::cable>& cables) {
        int nodes = ranks;
        for (const simulation::cable& c : cables) nodes = std::max({nodes, c.from + 1, c.to + 1});
        out_.resize(static_cast<std::size_t>(nodes));
        std::vector<std::vector<int>> into(out_.size());
        const auto add = [&](int from, int to, const simulation::link& each) {
            out_[static_cast<std::size_t>(from)].push_back({to, static_cast<int>(links_.size())});
            into[static_cast<std::size_t>(to)].push_back(from);
            links_.push_back(each);
        };
        for (const simulation::cable& c : cables) {
            message text;
            if (c.from < 0 || c.to < 0 || c.from == c.to)
                refuse_topology(text << "a cable joins two different nodes, not " << c.from << " and " << c.to);
            add(c.from, c.to, c.each);
            if (c.both_ways) add(c.to, c.from, c.each);
        }
        product(ranks, nodes, "pairs of a rank and a node");
        for (int to = 0; to < ranks; ++to) distances_.push_back(distances_to(to, into));
        for (int to = 0; to < ranks; ++to)
            for (int from = 0; from < ranks; ++from) {
                message text;
                if (distance(from, to) == far)
                    refuse_topology(text << "rank " << from << " has no route to rank " << to);
            }
    }

    const std::vector<simulation::link>& links() const { return links_; }

    void append(int from, int to, std::vector<int>& route) const {
        const std::uint64_t pair = hash_of_pair(from, to);
        for (int at = from; at != to;) {
            const auto nearer = [&](const exit& e) { return distance(e.to, to) + 1 == distance(at, to); };
            const std::vector<exit>& exits = out_[static_cast<std::size_t>(at)];
            const auto equal = static_cast<std::uint64_t>(std::count_if(exits.begin(), exits.end(), nearer));
            std::uint64_t skip = (hash_mix(pair, static_cast<std::uint64_t>(at)) >> 8) % equal;
            const auto taken =
                std::find_if(exits.begin(), exits.end(), [&](const exit& e) { return nearer(e) && skip-- == 0; });
            route.push_back(taken->link);
            at = taken->to;
        }
    }

private:
    struct exit {
        int to, link;
    };
    static constexpr int far = std::numeric_limits<std::uint16_t>::max();

    int distance(int from, int to) const {
        return distances_[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)];
    }
    /// In links, from each node: by a search backwards.
    std::vector<std::uint16_t> distances_to(int to, const std::vector<std::vector<int>>& into) const {
        std::vector<std::uint16_t> found(out_.size(), far);
        std::vector<int> reached{to};
        found[static_cast<std::size_t>(to)] = 0;
        for (std::size_t i = 0; i < reached.size(); ++i) {
            const auto at = static_cast<std::size_t>(reached[i]);
            for (const int before : into[at]) {
                auto& d = found[static_cast<std::size_t>(before)];
                if (d != far || found[at] + 1 >= far) continue;
                d = static_cast<std::uint16_t>(found[at] + 1);
                reached.push_back(before);
            }
        }
        return found;
    }

    std::vector<simulation::link> links_;
    std::vector<std::vector<exit>> out_;                 // by node
    std::vector<std::vector<std::uint16_t>> distances_;  // by destination, then by node
};

}  // namespace colls::inline v1::detail

namespace colls::inline v1::simulation {

inline topology graph(int ranks, const std::vector<cable>& cables) {
    for (std::size_t i = 0; i < cables.size(); ++i) detail::check_link(cables[i].each, static_cast<long long>(i));
    const auto routes = std::make_shared<const detail::shortest_routes>(ranks, cables);
    return {ranks, routes->links(),
        [routes](int from, int to, std::vector<int>& route) { routes->append(from, to, route); }};
}

}  // namespace colls::inline v1::simulation
