// A topology, and those whose routes follow from the numbers of the ranks.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <colls/simulate.hpp>
#include <colls/simulate/detail/checks.hpp>
#include <colls/step.hpp>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace colls::inline v1::simulation {

inline topology::topology(int ranks, std::vector<link> links, router routes)
    : ranks_(ranks), links_(std::move(links)), routes_(std::move(routes)) {
    detail::error_text text;
    if (ranks < 1) detail::refuse_topology(text << "there is 1 rank or more, not " << ranks);
    if (!routes_) detail::refuse_topology(text << "there is no router");
    for (std::size_t i = 0; i < links_.size(); ++i) detail::check_link(links_[i].latency, links_[i].bandwidth, i);
}
inline void topology::route(int from, int to, std::vector<int>& into) const {
    into.clear();
    routes_(from, to, into);
}
inline topology topology::placed(std::vector<int> places) const {
    std::vector<bool> taken(static_cast<std::size_t>(ranks_));
    for (const int p : places) {
        detail::error_text text;
        if (p < 0 || p >= ranks_ || taken[static_cast<std::size_t>(p)])
            detail::refuse_topology(text << "place " << p << " is taken twice, or is not one of the " << ranks_);
        taken[static_cast<std::size_t>(p)] = true;
    }
    const int n = static_cast<int>(places.size());
    return {n, links_, [inner = routes_, places = std::move(places)](int from, int to, std::vector<int>& route) {
                inner(places[static_cast<std::size_t>(from)], places[static_cast<std::size_t>(to)], route);
            }};
}

inline topology flat(int ranks, link each) {
    const int count = detail::product(ranks, 2, "links");
    return {
        ranks, std::vector<link>(static_cast<std::size_t>(count), each), [](int from, int to, std::vector<int>& route) {
            route.push_back(2 * from);
            route.push_back(2 * to + 1);
        }};
}

inline topology two_level(int nodes, int per_node, link inside, link rail) {
    const int ranks = detail::product(nodes, per_node, "ranks"), count = detail::product(ranks, 4, "links");
    std::vector<link> links;
    for (int i = 0; i < count; ++i) links.push_back(i % 4 < 2 ? inside : rail);
    return {ranks, std::move(links), [per_node](int from, int to, std::vector<int>& route) {
                const int gate = from - from % per_node + to % per_node;  // of the own host, on the receiver's rail
                const auto step = [&](int first, int second) {
                    route.push_back(first);
                    route.push_back(second);
                };
                if (gate != from) step(4 * from, 4 * gate + 1);
                if (gate != to) step(4 * gate + 2, 4 * to + 3);
            }};
}

/// The links of a level are named by the child, x, and the digits y of the switches that were chosen on the way up to
/// the level: x · (product of `up`) + y. A route by destination has y = to mod that product.
inline topology fat_tree(const std::vector<tree_level>& levels, spread how) {
    struct cut {
        int below, width, first;  ///< ranks below a child, the product of `up`, the number of the first link
    };
    int ranks = 1, width = 1, count = 0;
    for (const tree_level& l : levels) ranks = detail::product(ranks, l.down, "ranks");
    std::vector<cut> cuts;
    std::vector<link> links;
    int below = 1;
    for (const tree_level& l : levels) {
        width = detail::product(width, l.up, "switches");
        cuts.push_back({below, width, count});
        count += 2 * detail::product(ranks / below, width, "links");
        detail::product(count, 1, "links");
        links.resize(static_cast<std::size_t>(count), l.each);
        below *= l.down;
    }
    return {ranks, std::move(links), [cuts, how](int from, int to, std::vector<int>& route) {
                const auto chosen = how == spread::by_destination ? static_cast<std::uint64_t>(to)
                                                                  : detail::hash_of_pair(from, to) >> 8;
                const auto number = [&](const cut& c, int rank) {
                    return c.first + 2 * (rank / c.below * c.width +
                                             static_cast<int>(chosen % static_cast<std::uint64_t>(c.width)));
                };
                std::size_t top = 0;
                for (; top < cuts.size() && from / cuts[top].below != to / cuts[top].below; ++top)
                    route.push_back(number(cuts[top], from));
                while (top-- > 0) route.push_back(number(cuts[top], to) + 1);
            }};
}

inline topology torus(const std::vector<int>& sides, link each) {
    int ranks = 1;
    for (const int side : sides) ranks = detail::product(ranks, side, "ranks");
    const int dimensions = static_cast<int>(sides.size()),
              count = dimensions == 0 ? 0 : detail::product(ranks, 2 * dimensions, "links");
    return {ranks, std::vector<link>(static_cast<std::size_t>(count), each),
        [sides, dimensions](int from, int to, std::vector<int>& route) {
            int at = from;
            for (int d = dimensions - 1, stride = 1; d >= 0; stride *= sides[static_cast<std::size_t>(d--)]) {
                const int side = sides[static_cast<std::size_t>(d)], x = at / stride % side,
                          ahead = mod(to / stride % side - x, side);
                const bool up = 2 * ahead < side || (2 * ahead == side && x % 2 == 0);
                for (int left = up ? ahead : side - ahead, now = x; left > 0; --left) {
                    route.push_back(2 * (at * dimensions + d) + (up ? 0 : 1));
                    const int next = mod(up ? now + 1 : now - 1, side);
                    at += (next - now) * stride;
                    now = next;
                }
            }
        }};
}

inline topology dragonfly(const dragonfly_shape& shape) {
    const int all_routers = detail::product(shape.groups, shape.routers, "routers"),
              ranks = detail::product(all_routers, shape.ranks, "ranks");
    detail::error_text text;
    if (shape.groups > 1 && detail::product(shape.routers, shape.global, "global links") < shape.groups - 1)
        detail::refuse_topology(text << "a dragonfly of " << shape.groups << " groups needs routers * global of "
                                     << shape.groups - 1 << " or more");
    // Links: of the ranks; then of each router to each other one of its group; then of each group to each other one.
    const int local = detail::product(ranks, 2, "links"),
              between = local + detail::product(all_routers, shape.routers, "links"),
              count = between + detail::product(shape.groups, shape.groups, "links");
    std::vector<link> links(static_cast<std::size_t>(local), shape.rank);
    links.resize(static_cast<std::size_t>(between), shape.routers > 1 ? shape.local : shape.rank);
    links.resize(static_cast<std::size_t>(count), shape.groups > 1 ? shape.between : shape.rank);
    return {ranks, std::move(links), [shape, local, between](int from, int to, std::vector<int>& route) {
                const auto group_of = [&](int router) { return router / shape.routers; };
                const auto walk = [&](int a, int b) {
                    if (a != b) route.push_back(local + a * shape.routers + b % shape.routers);
                };
                // The router of group a that has the link to group b.
                const auto gate = [&](int a, int b) {
                    return a * shape.routers + mod(b - a - 1, shape.groups) / shape.global;
                };
                const int first = from / shape.ranks, last = to / shape.ranks, a = group_of(first), b = group_of(last);
                route.push_back(2 * from);
                if (a == b) {
                    walk(first, last);
                } else {
                    walk(first, gate(a, b));
                    route.push_back(between + a * shape.groups + b);
                    walk(gate(b, a), last);
                }
                route.push_back(2 * to + 1);
            }};
}

}  // namespace colls::inline v1::simulation
