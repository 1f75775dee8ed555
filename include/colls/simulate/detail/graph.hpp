// A topology of any shape, with the shortest routes, and the widest of these.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/simulate.hpp>
#include <colls/simulate/detail/checks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

/// The nodes of a network, and for each rank the best route to it from each node.
class shortest_routes {
public:
    shortest_routes(int ranks, const std::vector<simulation::cable>& cables) {
        int last = ranks - 1;
        for (const simulation::cable& c : cables) {
            error_text text;
            if (c.from < 0 || c.to < 0 || c.from == c.to || std::max(c.from, c.to) == far)
                refuse_topology(text << "a cable joins two different nodes, not " << c.from << " and " << c.to);
            last = std::max({last, c.from, c.to});
        }
        // So a large number, which no node can have, is refused before memory is taken for the nodes below it.
        if (error_text text; last >= ranks && last / 2 >= ranks + static_cast<long>(cables.size()))
            refuse_topology(text << "a cable leads to node " << last << ", but " << static_cast<long>(cables.size())
                                 << " cables between " << ranks
                                 << " ranks do not name so many: number nodes without gaps");
        const int nodes = last + 1;
        product(ranks, nodes, "pairs of a rank and a node");
        out_.resize(static_cast<std::size_t>(nodes));
        std::vector<std::vector<exit>> into(out_.size());
        const auto add = [&](int from, int to, const simulation::link& each) {
            out_[static_cast<std::size_t>(from)].push_back({to, static_cast<int>(links_.size())});
            into[static_cast<std::size_t>(to)].push_back({from, static_cast<int>(links_.size())});
            links_.push_back(each);
        };
        for (const simulation::cable& c : cables) {
            add(c.from, c.to, c.each);
            if (c.both_ways) add(c.to, c.from, c.each);
        }
        for (int to = 0; to < ranks; ++to) routes_.push_back(routes_to(to, into));
        for (int to = 0; to < ranks; ++to)
            for (int from = 0; from < ranks; ++from) {
                error_text text;
                if (at(from, to).links == far)
                    refuse_topology(text << "rank " << from << " has no route to rank " << to);
            }
    }

    const std::vector<simulation::link>& links() const { return links_; }

    void append(int from, int to, std::vector<int>& links) const {
        const std::uint64_t pair = hash_of_pair(from, to);
        for (int node = from; node != to;) {
            const route& left = at(node, to);
            const auto good = [&](const exit& e) {
                const route& then = at(e.to, to);
                return then.links + 1 == left.links && std::min(then.narrowest, bandwidth(e)) == left.narrowest;
            };
            const std::vector<exit>& exits = out_[static_cast<std::size_t>(node)];
            const auto equal = static_cast<std::uint64_t>(std::count_if(exits.begin(), exits.end(), good));
            std::uint64_t skip = (hash_mix(pair, static_cast<std::uint64_t>(node)) >> 8) % equal;
            const auto taken =
                std::find_if(exits.begin(), exits.end(), [&](const exit& e) { return good(e) && skip-- == 0; });
            links.push_back(taken->link);
            node = taken->to;
        }
    }

private:
    struct exit {
        int to, link;
    };
    /// From a node to a rank, by the best route.
    struct route {
        int links = far;
        float narrowest = 0;  ///< the least bandwidth on it
    };
    static constexpr int far = std::numeric_limits<int>::max();

    const route& at(int from, int to) const {
        return routes_[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)];
    }
    float bandwidth(const exit& e) const {
        return static_cast<float>(links_[static_cast<std::size_t>(e.link)].bandwidth);
    }
    /// From each node, by a search backwards. A node is searched from when all that are nearer have been.
    std::vector<route> routes_to(int to, const std::vector<std::vector<exit>>& into) const {
        std::vector<route> found(out_.size());
        std::vector<int> reached{to};
        found[static_cast<std::size_t>(to)] = {0, std::numeric_limits<float>::infinity()};
        for (std::size_t i = 0; i < reached.size(); ++i) {
            const route here = found[static_cast<std::size_t>(reached[i])];
            for (const exit& before : into[static_cast<std::size_t>(reached[i])]) {
                route& there = found[static_cast<std::size_t>(before.to)];
                if (there.links == far) {
                    there.links = here.links + 1;
                    reached.push_back(before.to);
                }
                if (there.links == here.links + 1)
                    there.narrowest = std::max(there.narrowest, std::min(here.narrowest, bandwidth(before)));
            }
        }
        return found;
    }

    std::vector<simulation::link> links_;
    std::vector<std::vector<exit>> out_;      // by node
    std::vector<std::vector<route>> routes_;  // by destination, then by node
};

}  // namespace colls::inline v1::detail

namespace colls::inline v1::simulation {

inline topology graph(int ranks, const std::vector<cable>& cables) {
    for (std::size_t i = 0; i < cables.size(); ++i)
        detail::check_link(cables[i].each.latency, cables[i].each.bandwidth, i);
    const auto routes = std::make_shared<const detail::shortest_routes>(ranks, cables);
    return {ranks, routes->links(),
        [routes](int from, int to, std::vector<int>& route) { routes->append(from, to, route); }};
}

}  // namespace colls::inline v1::simulation
