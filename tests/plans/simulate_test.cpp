// The simulator: against closed forms, hand-computed rates, and a second simulation written in the plainest way.
#include "catch.hpp"
#include "support/schedules.hpp"

#include <colls/cost.hpp>
#include <colls/simulate.hpp>
#include <colls/simulate/detail/event_queue.hpp>
#include <colls/verify.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace colls::simulation;

// The collectives hide the calls of the same names, which are in namespace colls.
namespace simulate_test {
using enum colls::collective;

namespace {

constexpr double exactly = 1e-9;

template <colls::collective C, class F>
auto of(const F& f) {
    return colls::schedule_of<C>(f);
}
std::string refusal(const auto& call) {
    try {
        call();
    } catch (const colls::error& e) {
        return e.what();
    }
    return "nothing is refused";
}
bool contains(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

/// Rank 1 names a rank that there is not.
struct astray {
    static constexpr colls::collective implements = broadcast;
    int peer;
    bool sends;

    static int rounds(int) { return 1; }
    colls::step at(int rank, int, int) const {
        colls::step s;
        if (rank == 1 && sends) s.send = {peer, colls::block(0)};
        if (rank == 1 && !sends) s.recv = {peer, colls::block(0)};
        return s;
    }
};

/// A barrier in which rank 1 waits for a message that nobody sends.
struct lonely {
    static constexpr colls::collective implements = barrier;
    static constexpr int rounds(int) { return 2; }
    static constexpr colls::step at(int rank, int, int round) {
        colls::step s;
        if (rank == 1 && round == 1) s.recv.peer = 0;
        return s;
    }
};

// ---- the plainest way ----

/// Max-min fair rates by filling all open flows evenly until a link is full, again and again.
std::vector<double> filled(const std::vector<double>& capacity, const std::vector<std::vector<int>>& routes) {
    std::vector<double> rates(routes.size(), 0), left = capacity;
    std::vector<bool> open(routes.size(), true);
    for (;;) {
        std::vector<int> users(capacity.size(), 0);
        for (std::size_t f = 0; f < routes.size(); ++f)
            for (const int l : routes[f]) users[static_cast<std::size_t>(l)] += open[f];
        double step = std::numeric_limits<double>::infinity();
        for (std::size_t l = 0; l < capacity.size(); ++l)
            if (users[l] > 0) step = std::min(step, left[l] / users[l]);
        if (std::isinf(step)) return rates;
        std::vector<bool> full(capacity.size());
        for (std::size_t l = 0; l < capacity.size(); ++l) {
            full[l] = users[l] > 0 && left[l] / users[l] <= step * (1 + 1e-9);
            left[l] -= step * users[l];
        }
        for (std::size_t f = 0; f < routes.size(); ++f) {
            if (!open[f]) continue;
            rates[f] += step;
            for (const int l : routes[f])
                if (full[static_cast<std::size_t>(l)]) open[f] = false;
        }
    }
}

/// The model of simulate.hpp, with every rate computed anew at every event.
double plain_seconds(
    const colls::any_schedule& s, int n, const topology& t, double bytes, const colls::simulation::options& o) {
    struct message {
        int from, to;
        double left, flows_from = -1;  // -1: its ranks are not both in the round
        std::vector<int> route;
        double rate = 0;
    };
    const double block = s.kind() == barrier ? 0 : bytes / s.blocks(n), never = std::numeric_limits<double>::infinity();
    std::vector<int> round(static_cast<std::size_t>(n), -1), pending(static_cast<std::size_t>(n), 0);
    std::vector<double> ready(static_cast<std::size_t>(n), 0), fold(static_cast<std::size_t>(n), 0), capacity;
    for (const colls::simulation::link& l : t.links()) capacity.push_back(l.bandwidth);
    std::vector<message> all;
    double now = 0, ended = 0;
    const auto advance = [&](int r) {
        const auto at = static_cast<std::size_t>(r);
        double time = std::max(now, ready[at]);
        int sends = 0, receives = 0;
        if (round[at] >= 0) time = now + fold[at] * o.gamma;
        while (pending[at] == 0 && ++round[at] < s.rounds(n)) {
            fold[at] = 0;
            sends = receives = 0;
            for (int port = 0; port < s.ports(n); ++port) {
                const colls::step st = s.at(r, n, round[at], port);
                sends += st.send.peer != colls::none && st.send.peer != r;
                receives += st.recv.peer != colls::none && st.recv.peer != r;
                if (st.recv.peer != colls::none && st.recv.action == colls::action::reduce)
                    fold[at] += block * st.recv.blocks.size();
            }
            pending[at] = sends + receives;
            if (pending[at] == 0) time += fold[at] * o.gamma;
        }
        ready[at] = pending[at] > 0
                        ? time + o.overhead * std::max(sends, receives) + (o.late ? o.late(r, round[at]) : 0)
                        : time;
        ended = std::max(ended, ready[at]);
        for (int port = 0; port < s.ports(n) && pending[at] > 0; ++port) {
            const colls::step st = s.at(r, n, round[at], port);
            if (st.send.peer == colls::none || st.send.peer == r) continue;
            message m{r, st.send.peer, block * st.send.blocks.size(), -1, {}};
            t.route(m.from, m.to, m.route);
            all.push_back(m);
        }
    };
    for (int r = 0; r < n; ++r) advance(r);
    while (!all.empty()) {
        for (message& m : all) {
            const auto from = static_cast<std::size_t>(m.from), to = static_cast<std::size_t>(m.to);
            if (m.flows_from >= 0 || round[from] != round[to]) continue;
            m.flows_from = std::max(ready[from], ready[to]);
            for (const int l : m.route) m.flows_from += t.links()[static_cast<std::size_t>(l)].latency;
        }
        std::vector<std::vector<int>> routes;
        std::vector<message*> flowing;
        for (message& m : all)
            if (m.flows_from >= 0 && m.flows_from <= now && m.left > 0)
                flowing.push_back(&m), routes.push_back(m.route);
        const std::vector<double> rates = filled(capacity, routes);
        double next = never;
        for (message& m : all)
            if (m.flows_from > now) next = std::min(next, m.flows_from);
        for (std::size_t f = 0; f < flowing.size(); ++f) next = std::min(next, now + flowing[f]->left / rates[f]);
        for (message& m : all)
            if (m.flows_from >= 0 && m.flows_from <= now && m.left <= 0) next = now;
        REQUIRE(next < never);
        for (std::size_t f = 0; f < flowing.size(); ++f) {
            flowing[f]->left -= rates[f] * (next - now);
            if (flowing[f]->left <= 1e-9 * rates[f] * next) flowing[f]->left = 0;
        }
        now = next;
        std::vector<int> ends;
        std::erase_if(all, [&](const message& m) {
            const bool done = m.flows_from >= 0 && m.flows_from <= now && m.left <= 0;
            if (done) ends.push_back(m.from), ends.push_back(m.to);
            return done;
        });
        for (const int r : ends)
            if (--pending[static_cast<std::size_t>(r)] == 0) advance(r);
    }
    return ended;
}

/// The model of options.buffered: at every event each rank goes on as far as it can, and every rate is computed anew.
double plain_buffered_seconds(
    const colls::any_schedule& s, int n, const topology& t, double bytes, const colls::simulation::options& o) {
    struct message {
        int from, to, chunk, round;
        double left, flows_from;
        std::vector<int> route;
        bool done = false;
    };
    const double block = s.kind() == barrier ? 0 : bytes / s.blocks(n), never = std::numeric_limits<double>::infinity();
    const double chunk = o.chunk > 0 ? o.chunk : std::max(block, 1.0);
    const int rounds = s.rounds(n), stagger = (rounds + o.under_way) / o.under_way;
    std::vector<std::pair<int, int>> order;  // chunk, and the round before which it waits
    for (int c = 0; c == 0 || c * chunk < block; ++c)
        for (int k = 0; k <= rounds; ++k) order.emplace_back(c, k);
    std::ranges::stable_sort(order, {}, [&](const auto& of) { return of.first * stagger + of.second; });
    const auto part = [&](const colls::block_set& b, int c) {
        return std::min(chunk, block - c * chunk) * static_cast<double>(b.size());
    };
    std::vector<std::size_t> next(static_cast<std::size_t>(n), 0);
    std::vector<double> ready(static_cast<std::size_t>(n), 0), capacity;
    for (const colls::simulation::link& l : t.links()) capacity.push_back(l.bandwidth);
    std::vector<message> all;
    double now = 0;
    const auto go_on = [&](int r) {  // one segment, if it need not wait
        const auto at = static_cast<std::size_t>(r);
        if (next[at] == order.size()) return false;
        const auto [c, k] = order[next[at]];
        int sends = 0, receives = 0, missing = 0;
        double fold = 0;
        for (int port = 0; port < s.ports(n); ++port) {
            if (k > 0) {
                const colls::receive_part before = s.at(r, n, k - 1, port).recv;
                if (before.peer != colls::none && before.peer != r) ++missing;
                if (before.peer != colls::none && before.action == colls::action::reduce)
                    fold += part(before.blocks, c);
            }
            if (k == rounds) continue;
            const colls::step st = s.at(r, n, k, port);
            sends += st.send.peer != colls::none && st.send.peer != r;
            receives += st.recv.peer != colls::none && st.recv.peer != r;
        }
        const bool waits = missing > 0;
        for (const message& m : all) missing -= m.done && m.to == r && m.chunk == c && m.round == k - 1;
        if (missing > 0) return false;
        ++next[at];
        if (waits) ready[at] = std::max(ready[at], now);
        ready[at] += fold * o.gamma;
        if (sends + receives == 0) return true;
        ready[at] += o.overhead * std::max(sends, receives) + (o.late && c == 0 ? o.late(r, k) : 0);
        for (int port = 0; port < s.ports(n) && k < rounds; ++port) {
            const colls::send_part to = s.at(r, n, k, port).send;
            if (to.peer == colls::none || to.peer == r) continue;
            message m{r, to.peer, c, k, part(to.blocks, c), ready[at], {}};
            t.route(m.from, m.to, m.route);
            for (const int l : m.route) m.flows_from += t.links()[static_cast<std::size_t>(l)].latency;
            all.push_back(m);
        }
        return true;
    };
    for (;;) {
        for (int r = 0; r < n; ++r)
            while (go_on(r)) {}
        std::vector<std::vector<int>> routes;
        std::vector<message*> flowing;
        double next_event = never;
        std::map<std::pair<int, int>, bool> taken;  // a message between two ranks waits for the ones before
        for (message& m : all) {
            if (m.done || std::exchange(taken[{m.from, m.to}], true)) continue;
            if (m.flows_from > now)
                next_event = std::min(next_event, m.flows_from);
            else
                flowing.push_back(&m), routes.push_back(m.route);
        }
        const std::vector<double> rates = filled(capacity, routes);
        for (std::size_t f = 0; f < flowing.size(); ++f)
            next_event = std::min(next_event, flowing[f]->left > 0 ? now + flowing[f]->left / rates[f] : now);
        if (next_event == never) break;
        for (std::size_t f = 0; f < flowing.size(); ++f) {
            flowing[f]->left -= rates[f] * (next_event - now);
            flowing[f]->done = flowing[f]->left <= 1e-9 * rates[f] * next_event;
        }
        now = next_event;
    }
    for (const std::size_t at : next) REQUIRE(at == order.size());
    return std::ranges::max(ready);
}

/// A connected network of `ranks` ranks and some switches, with links of different speeds.
topology random_network(int ranks, std::mt19937& random) {
    const auto up_to = [&](int last) { return std::uniform_int_distribution<int>(0, last)(random); };
    const auto speed = [&] { return colls::simulation::link{1e-6 * up_to(3), 1e9 * (1 + up_to(3))}; };
    const int switches = 1 + up_to(4);
    std::vector<cable> cables;
    for (int r = 0; r < ranks; ++r) cables.push_back({r, ranks + up_to(switches - 1), speed()});
    for (int i = 1; i < switches; ++i) cables.push_back({ranks + i, ranks + up_to(i - 1), speed()});
    for (int i = up_to(3); i > 0 && switches > 1; --i) {
        const int a = up_to(switches - 1);
        cables.push_back({ranks + a, ranks + (a + 1) % switches, speed()});
    }
    return graph(ranks, cables);
}

}  // namespace

TEST_CASE("simulate: without contention a schedule takes what the cost model says", "[simulate]") {
    const double latency = 1.5e-6, bandwidth = 12.5e9, gamma = 0.3e-9, overhead = 0.7e-6, bytes = 3e6;
    int exact = 0;
    for (const support::row& row : support::all_schedules())
        for (const int n : {1, 2, 3, 4, 6, 7, 8, 13, 16}) {
            if (!row.supports(n)) continue;
            INFO(row.name << ", " << colls::name_of(row.schedule.implements) << " on " << n);
            const colls::cost c = colls::traffic_of(row.schedule, n);
            // The model has no time for a message beside that of a round.
            const colls::simulation::options o{.gamma = gamma, .overhead = c.ports > 1 ? 0 : overhead};
            const colls::model m{2 * latency + o.overhead, 1 / bandwidth, gamma};
            const double user = row.schedule.implements == barrier ? 0 : bytes,
                         seconds = simulate(row.schedule, n, flat(n, {latency, bandwidth}), user, o).seconds;
            // At a rank, the bytes in and out of a round share its two links: neither takes longer than both together.
            const double received = m.beta * static_cast<double>(c.critical_received) * user / std::max(c.blocks, 1);
            CHECK(seconds <= (c.seconds(m, user) + (c.ports > 1 ? received : 0)) * (1 + exactly));
            if (n < 2 || !colls::properties_of(row.schedule, n).symmetric) continue;
            CHECK(seconds == Approx(c.seconds(m, user)).epsilon(exactly));
            ++exact;
        }
    CHECK(exact > 50);
}

TEST_CASE("simulate: closed forms of schedules whose ranks differ", "[simulate]") {
    const double latency = 2e-6, bandwidth = 1e10, bytes = 1 << 22;
    const colls::model m{2 * latency, 1 / bandwidth, 1e-10};
    const auto check = [&](const auto& s, int n) {
        INFO(colls::name_of(s.implements) << " on " << n);
        CHECK(simulate(s, n, flat(n, {latency, bandwidth}), bytes, {.gamma = m.gamma}).seconds ==
              Approx(colls::traffic_of(s, n).seconds(m, bytes)).epsilon(exactly));
    };
    for (int n = 2; n <= 256; n *= 2) {
        check(of<all_reduce>(colls::halving_doubling{}), n);
        check(of<reduce_scatter>(colls::halving_doubling{}), n);
        check(of<all_gather>(colls::distance_doubling{}), n);
        check(of<all_reduce>(colls::recursive_doubling{}), n);
        check(of<all_reduce>(colls::swing{}), n);
        check(of<broadcast>(colls::bine{}), n);
        check(of<broadcast>(colls::tree<2>{}), n);
        check(of<reduce>(colls::tree<2>{}), n);
        check(of<scatter>(colls::tree<2>{}), n);
        check(of<broadcast>(colls::pipelined_broadcast{}), n);
        check(colls::ring::inclusive_scan{}, n);
    }
}

TEST_CASE("simulate: shares of links, computed by hand", "[simulate]") {
    using share = colls::detail::fair_share;
    const auto rates_of = [](const std::vector<double>& capacity, const std::vector<std::vector<int>>& routes) {
        share net(capacity);
        std::vector<double> rates(routes.size(), -1);
        for (std::size_t f = 0; f < routes.size(); ++f) net.start(static_cast<int>(f), routes[f]);
        net.settle([&](int f, double rate) { rates[static_cast<std::size_t>(f)] = rate; });
        return rates;
    };
    using list = std::vector<double>;
    CHECK(rates_of({6}, {{0}, {0}, {0}}) == list{2, 2, 2});
    // The parking lot: a long flow over three links, each with a flow of its own.
    CHECK(rates_of({1, 1, 1}, {{0, 1, 2}, {0}, {1}, {2}}) == list{0.5, 0.5, 0.5, 0.5});
    CHECK(rates_of({1, 2, 3}, {{0, 1, 2}, {0}, {1}, {2}}) == list{0.5, 0.5, 1.5, 2.5});
    // What a narrow link holds back is left for the others.
    CHECK(rates_of({10, 2}, {{0, 1}, {0}, {0}}) == list{2, 4, 4});
    CHECK(rates_of({12, 4, 3}, {{0, 1}, {0, 1}, {0, 2}, {0}, {0}}) == list{2, 2, 8.0 / 3, 8.0 / 3, 8.0 / 3});
}

TEST_CASE("simulate: an oversubscribed uplink, and one that latency empties", "[simulate]") {
    // Two leaves of four ranks, two uplinks each: in the last round of the exchange four flows share two uplinks.
    const colls::simulation::link cable{1e-6, 1e9};
    const double bytes = 1e6;
    const auto seconds = [&](int up) {
        return simulate(
            of<all_reduce>(colls::recursive_doubling{}), 8, fat_tree({{4, 1, cable}, {2, up, cable}}), bytes)
            .seconds;
    };
    CHECK(seconds(4) == Approx(2 * (2e-6 + 1e-3) + 4e-6 + 1e-3).epsilon(exactly));
    CHECK(seconds(2) == Approx(2 * (2e-6 + 1e-3) + 4e-6 + 2e-3).epsilon(exactly));
    CHECK(seconds(1) == Approx(2 * (2e-6 + 1e-3) + 4e-6 + 4e-3).epsilon(exactly));

    // Rank 0 sends a block to each of 1, 2 and 3; rank 3 is 5 us farther away. 9 kB take 9 us alone, and the first two
    // 18 us together. Each of the first two has 2.5 kB after 5 us; 6.5 kB of three last 19.5 us; 2.5 kB are left then.
    const topology star = graph(4, {{0, 4, {0, 1e9}}, {1, 4, {0, 1e9}}, {2, 4, {0, 1e9}}, {3, 4, {5e-6, 1e9}}});
    CHECK(simulate(colls::direct::broadcast{}, 4, star, 9e3).seconds == Approx(27e-6).epsilon(exactly));
    // Three messages to be sent, at 2 us each.
    CHECK(simulate(colls::direct::broadcast{}, 4, star, 9e3, {.overhead = 2e-6}).seconds ==
          Approx(33e-6).epsilon(exactly));
}

TEST_CASE("simulate: rates of random flows are max-min fair, whatever came and went before", "[simulate]") {
    std::mt19937 random(7);
    const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
    for (int trial = 0; trial < 200; ++trial) {
        std::vector<double> capacity;
        for (int l = 1 + below(12); l > 0; --l) capacity.push_back(1 + below(5));
        colls::detail::fair_share net(capacity);
        std::map<int, std::vector<int>> routes;
        std::map<int, double> rates;
        for (int change = 0; change < 40; ++change) {
            for (int i = 1 + below(3); i > 0; --i) {
                const int flow = below(20);
                if (routes.contains(flow)) {
                    net.stop(flow);
                    routes.erase(flow);
                    continue;
                }
                std::vector<int> route(capacity.size());
                std::iota(route.begin(), route.end(), 0);
                std::shuffle(route.begin(), route.end(), random);
                route.resize(static_cast<std::size_t>(1 + below(static_cast<int>(route.size()))));
                routes[flow] = route;
                net.start(flow, routes[flow]);
            }
            net.settle([&](int flow, double rate) { rates[flow] = rate; });
            std::vector<std::vector<int>> listed;
            std::vector<double> load(capacity.size(), 0);
            for (const auto& [flow, route] : routes) {
                listed.push_back(route);
                for (const int l : route) load[static_cast<std::size_t>(l)] += rates[flow];
            }
            for (std::size_t l = 0; l < capacity.size(); ++l) REQUIRE(load[l] <= capacity[l] * (1 + exactly));
            const std::vector<double> expected = filled(capacity, listed);
            std::size_t i = 0;
            for (const auto& [flow, route] : routes) {
                INFO("trial " << trial << ", change " << change << ", flow " << flow);
                REQUIRE(rates[flow] == Approx(expected[i++]).epsilon(exactly));
            }
        }
    }
}

TEST_CASE("simulate: schedules on random networks take what the plainest simulation says", "[simulate]") {
    std::mt19937 random(11);
    for (const support::named_schedule& named : support::every_schedule())
        for (const int n : {3, 4, 6, 8}) {
            if (!named.schedule.supports(n)) continue;
            const topology net = random_network(n, random);
            colls::simulation::options o{.gamma = 0.2e-9, .overhead = 1e-6};
            if (n % 2 == 0) o.late = exponential_noise(3e-6, random());
            INFO(named.name << " on " << n);
            CHECK(simulate(named.schedule, n, net, 1e5, o).seconds ==
                  Approx(plain_seconds(named.schedule, n, net, 1e5, o)).epsilon(1e-8));
            o.buffered = true;
            o.chunk = n == 8 ? 0 : n == 3 ? 7e3 : 4e4;
            o.under_way = n == 4 ? 2 : 4;
            CHECK(simulate(named.schedule, n, net, 1e5, o).seconds ==
                  Approx(plain_buffered_seconds(named.schedule, n, net, 1e5, o)).epsilon(1e-8));
        }
}

TEST_CASE("simulate: routes of the generators", "[simulate]") {
    const colls::simulation::link each{1e-6, 1e9};
    const auto lengths_agree = [](const topology& made, const topology& shortest) {
        std::vector<int> a, b;
        for (int from = 0; from < made.ranks(); ++from)
            for (int to = 0; to < made.ranks(); ++to) {
                if (from == to) continue;
                made.route(from, to, a);
                shortest.route(from, to, b);
                INFO(from << " to " << to);
                REQUIRE(a.size() == b.size());
                std::ranges::sort(a);
                REQUIRE(std::ranges::adjacent_find(a) == a.end());
                REQUIRE((a.front() >= 0 && a.back() < static_cast<int>(made.links().size())));
            }
    };
    const auto torus_graph = [&](const std::vector<int>& sides) {
        int n = 1;
        for (const int side : sides) n *= side;
        std::vector<cable> cables;
        for (int r = 0; r < n; ++r)
            for (std::size_t d = sides.size(), stride = 1; d-- > 0; stride *= static_cast<std::size_t>(sides[d])) {
                const int s = static_cast<int>(stride), x = r / s % sides[d];
                if (sides[d] > 1) cables.push_back({r, r + ((x + 1) % sides[d] - x) * s, each});
            }
        return graph(n, cables);
    };
    for (const std::vector<int>& sides : {std::vector{7}, {4, 4}, {3, 2, 5}})
        lengths_agree(torus(sides, each), torus_graph(sides));

    // 5 groups of 2 routers, 2 global links each, 3 ranks a router. The shortest route over another group is as long as
    // the one by the groups' own link at most where both ends are away from it.
    std::vector<cable> cables;
    for (int r = 0; r < 30; ++r) cables.push_back({r, 30 + r / 3, each});
    for (int g = 0; g < 5; ++g) cables.push_back({30 + 2 * g, 31 + 2 * g, each});
    for (int a = 0; a < 5; ++a)
        for (int b = a + 1; b < 5; ++b)
            cables.push_back({30 + 2 * a + (b - a - 1) / 2, 30 + 2 * b + (a - b + 4) / 2, each});
    lengths_agree(dragonfly({5, 2, 3, 2, each, each, each}), graph(30, cables));

    // A fat tree of three levels: up as far as needed, and down. By destination, an exchange loads all uplinks evenly.
    for (const spread how : {spread::by_destination, spread::hashed}) {
        const topology tree = fat_tree({{4, 1, each}, {3, 2, each}, {2, 2, each}}, how);
        REQUIRE(tree.ranks() == 24);
        CHECK(tree.links().size() == 2 * (24 + 6 * 2 + 2 * 4));
        std::vector<int> route;
        std::map<int, int> load;
        for (int r = 0; r < 24; ++r) {
            tree.route(r, (r + 12) % 24, route);
            CHECK(route.size() == 6);
            for (const int l : route) ++load[l];
            tree.route(r, r ^ 1, route);
            CHECK(route.size() == 2);
            tree.route(r, r / 12 * 12 + (r + 4) % 12, route);
            CHECK(route.size() == 4);
        }
        if (how == spread::by_destination)
            for (const auto& [l, flows] : load) CHECK(flows == (l < 48 ? 1 : l < 72 ? 2 : 3));
    }
    // The widest of the routes with as many links; of equal ones each is taken by some pair.
    std::vector<int> route, taken(3, 0);
    const colls::simulation::link wide{1e-6, 4e9};
    const topology two_ways = graph(2, {{0, 2, each}, {2, 1, each}, {0, 3, each}, {3, 1, wide}, {0, 4, wide},
                                           {4, 1, each}, {0, 5, wide}, {5, 1, wide}});
    two_ways.route(0, 1, route);
    CHECK(route == std::vector{12, 14});
    two_ways.route(1, 0, route);
    CHECK(route == std::vector{15, 13});
    std::vector<cable> three;
    for (int r = 0; r < 20; ++r) three.push_back({r, 20 + r / 10, wide});
    for (int s = 0; s < 3; ++s) three.push_back({20, 22 + s, each}), three.push_back({22 + s, 21, each});
    const topology spines = graph(20, three);
    for (int r = 0; r < 10; ++r) {
        spines.route(r, 10 + r, route);
        REQUIRE(route.size() == 4);
        ++taken[static_cast<std::size_t>(route[1] / 2 - 20) / 2];
    }
    CHECK(std::ranges::min(taken) > 0);
    two_level(3, 4, each, each).route(1, 10, route);
    CHECK(route.size() == 4);  // to rank 2 within the host, then by its rail
    two_level(3, 4, each, each).route(1, 9, route);
    CHECK(route.size() == 2);
}

TEST_CASE("simulate: with a barrier between rounds, and rounds of one shape once", "[simulate]") {
    const topology tree = fat_tree({{4, 1, {1e-6, 1e9}}, {4, 2, {1e-6, 1e9}}});
    const auto seconds = [&](const auto& s, bool in_step, bool symmetric) {
        return simulate(s, 16, tree, 1e6, {.gamma = 1e-10, .in_step = in_step, .symmetric = symmetric});
    };
    const auto ring = of<all_reduce>(colls::ring{});
    const auto once = seconds(ring, true, true), all = seconds(ring, true, false);
    CHECK(once.seconds == Approx(all.seconds).epsilon(exactly));
    CHECK(once.transfers == 2 * 16);  // of a round that reduces, and of one that does not
    CHECK(all.transfers == 30 * 16);
    CHECK(seconds(ring, false, false).seconds <= all.seconds * (1 + exactly));
    const auto tree_broadcast = of<broadcast>(colls::tree<2>{});
    CHECK(contains(refusal([&] { seconds(tree_broadcast, true, true); }), "not all ranks do the same"));
    // Without a barrier a straggler delays only those that wait for it: it receives last, from rank 14.
    const auto late = simulate(tree_broadcast, 16, tree, 1e6, {.late = [](int r, int) { return r == 15 ? 1.0 : 0.0; }});
    CHECK(late.finished[15] > 1);
    CHECK(late.finished[14] > 1);
    for (int r = 0; r < 14; ++r) CHECK(late.finished[static_cast<std::size_t>(r)] < 1);
    // With one, the others end the last round as they would without.
    const auto stepped = simulate(
        tree_broadcast, 16, tree, 1e6, {.late = [](int r, int) { return r == 15 ? 1.0 : 0.0; }, .in_step = true});
    CHECK(stepped.finished[15] == stepped.seconds);
    CHECK(stepped.finished[12] == Approx(stepped.finished[0]));
}

TEST_CASE("simulate: orderings that are known", "[simulate]") {
    const colls::simulation::link fast{1e-6, 1e10}, slow{2e-6, 1e9};
    const auto seconds = [&](const auto& s, const topology& t, double bytes) {
        return simulate(s, t.ranks(), t, bytes).seconds;
    };
    const auto ring = of<all_reduce>(colls::ring{});
    const auto tree = of<all_reduce>(colls::tree<2>{});
    const auto halving = of<all_reduce>(colls::halving_doubling{});
    const auto swing = of<all_reduce>(colls::swing{});

    // Few bytes go by a tree, many by a ring; between them is one crossing, at alpha (2 (n-1) - 2 q) over
    // beta (2 q - 2 (n-1) / n).
    const topology plain = flat(16, fast);
    CHECK(seconds(tree, plain, 1e3) < seconds(ring, plain, 1e3));
    CHECK(seconds(ring, plain, 1e8) < seconds(tree, plain, 1e8));
    const double crossing = 2e-6 * (30 - 8) * 1e10 / (8 - 30.0 / 16);
    CHECK(seconds(tree, plain, 0.99 * crossing) < seconds(ring, plain, 0.99 * crossing));
    CHECK(seconds(ring, plain, 1.01 * crossing) < seconds(tree, plain, 1.01 * crossing));

    // Swing keeps its peers nearer on a torus than halving does: less contention. Where nothing is shared they are
    // equal.
    for (const auto& sides : {std::vector{64}, {8, 8}})
        CHECK(seconds(swing, torus(sides, fast), 1e7) < seconds(halving, torus(sides, fast), 1e7));
    CHECK(seconds(swing, plain, 1e7) == Approx(seconds(halving, plain, 1e7)).epsilon(exactly));
    // On the torus the ring, which has neighbours alone, is the best for many bytes.
    CHECK(seconds(ring, torus({64}, fast), 1e9) < seconds(swing, torus({64}, fast), 1e9));

    // Within a host first: less goes over the slow links.
    const topology hosts = two_level(8, 8, fast, slow);
    const auto two = of<all_reduce>(colls::hierarchical<colls::ring, colls::ring>{8});
    for (const double bytes : {1e4, 1e6, 1e8}) CHECK(seconds(two, hosts, bytes) < seconds(ring, hosts, bytes));

    // PAT (arXiv 2506.20252): as few rounds as Bruck's, so it beats the ring where latency counts. It sends few blocks
    // far and many near, Bruck's many far: on a tree that narrows upwards it is the faster one for many bytes. With one
    // block a message it is as good as the ring where nothing is shared.
    const topology narrow = fat_tree({{8, 1, fast}, {8, 2, fast}});
    const auto pat = of<all_gather>(colls::pat<64>{});
    const auto pat_of_one = of<all_gather>(colls::pat<1>{});
    const auto bruck = of<all_gather>(colls::bruck<>{});
    const auto ring_gather = of<all_gather>(colls::ring{});
    CHECK(seconds(pat, narrow, 1e4) < 0.3 * seconds(ring_gather, narrow, 1e4));
    CHECK(seconds(pat, narrow, 1e8) < 0.5 * seconds(bruck, narrow, 1e8));
    CHECK(seconds(pat, flat(64, fast), 1e8) == Approx(seconds(bruck, flat(64, fast), 1e8)).epsilon(exactly));
    CHECK(
        seconds(pat_of_one, flat(64, fast), 1e8) == Approx(seconds(ring_gather, flat(64, fast), 1e8)).epsilon(exactly));
}

TEST_CASE("simulate: ranks that do not wait for what they send", "[simulate]") {
    const double part = 1e-3;  // seconds for the buffer
    const topology net = flat(8, {0, 1e9});
    const auto seconds = [&](const auto& s, int n, double chunk, int under_way = 4) {
        return simulate(s, n, net, 1e6, {.buffered = true, .chunk = chunk, .under_way = under_way}).seconds;
    };
    // A root that waits sends three messages one after another, and the first receiver goes on after one. One that does
    // not wait sends three at once, and its receivers have them after the time of three; so has the first of these.
    const auto tree = of<broadcast>(colls::tree<2>{});
    CHECK(simulate(tree, 8, net, 1e6).seconds == Approx(3 * part).epsilon(exactly));
    CHECK(seconds(tree, 8, 0) == Approx((3 + 2 + 1) * part).epsilon(exactly));
    // Where all ranks send one message in each round there is no difference.
    for (const auto& s :
        {colls::any_schedule(of<all_reduce>(colls::ring{})), colls::any_schedule(of<all_gather>(colls::circulant<>{}))})
        CHECK(seconds(s, 8, 0) == Approx(simulate(s, 8, net, 1e6).seconds).epsilon(exactly));
    // To the root and back: while one part goes back, the next comes.
    const auto back = of<all_reduce>(colls::tree<2>{});
    CHECK(seconds(back, 2, 0) == Approx(2 * part).epsilon(exactly));
    CHECK(seconds(back, 2, 1e5) == Approx((10 + 1) * part / 10).epsilon(exactly));
    CHECK(seconds(back, 2, 3e5) ==
          Approx((0.9 + 0.3 + 0.1) * part).epsilon(exactly));              // back: the third, the short fourth
    CHECK(seconds(back, 2, 1e5, 1) == Approx(2 * part).epsilon(exactly));  // one after another
    // A message that leaves before its receiver has come.
    CHECK(simulate(tree, 2, net, 1e6, {.late = [=](int r, int) { return r == 1 ? part : 0.0; }, .buffered = true})
              .seconds == Approx(part).epsilon(exactly));
}

TEST_CASE("simulate: placement puts shuffled ranks of a fat tree back in order", "[simulate]") {
    const topology tree = fat_tree({{8, 1, {1e-6, 1e10}}, {8, 2, {1e-6, 1e10}}});
    std::vector<int> shuffled(64);
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::mt19937 random(3);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const topology disordered = tree.placed(shuffled);
    const auto ring = of<all_reduce>(colls::ring{});
    const double in_order = simulate(ring, 64, tree, 1e6).seconds;
    const placement found = place(ring, 64, disordered, 1e6, {}, 20);
    CHECK(found.before > 2 * in_order);
    CHECK(found.after <= in_order * (1 + exactly));
    CHECK(found.before == Approx(simulate(ring, 64, disordered, 1e6).seconds).epsilon(exactly));
    // The ranks of a leaf follow each other again.
    int leaves_left = 0;
    for (std::size_t r = 0; r < 64; ++r) {
        const auto leaf = [&](std::size_t rank) {
            return shuffled[static_cast<std::size_t>(found.places()[rank % 64])] / 8;
        };
        leaves_left += leaf(r) != leaf(r + 1);
    }
    CHECK(leaves_left == 8);
    // Ranks that stay where they are, and a schedule whose roles move, are the same.
    const colls::permuted<std::decay_t<decltype(ring)>, placement::table> moved{{ring}, {found.mapping()}};
    REQUIRE(moved.supports(64));
    CHECK_FALSE(moved.supports(63));
    CHECK(simulate(moved, 64, disordered, 1e6).seconds == Approx(found.after).epsilon(exactly));

    // Exchanges help where an order of places alone does not: two ranks of a ring that have changed places.
    std::vector<int> exchanged{0, 1, 2, 6, 4, 5, 3, 7};
    const topology line = fat_tree({{2, 1, {0, 1e10}}, {4, 1, {0, 1e9}}}).placed(exchanged);
    const placement back = place(ring, 8, line, 1e6, {}, 100);
    CHECK(back.after < back.before);
}

TEST_CASE("simulate: stragglers and noise", "[simulate]") {
    const auto s = of<all_reduce>(colls::recursive_doubling{});
    const topology net = flat(64, {1e-6, 1e10});
    const double calm = simulate(s, 64, net, 1e3).seconds;
    // All wait for one rank that is late; all_reduce cannot end before it.
    CHECK(simulate(s, 64, net, 1e3, {.late = [](int r, int k) { return r == 17 && k == 0 ? 1e-3 : 0.0; }}).seconds ==
          Approx(calm + 1e-3).epsilon(exactly));
    const auto few = stragglers(16, 1e-3, 5);
    int late = 0;
    for (int r = 0; r < 16000; ++r) late += few(r, 0) > 0;
    CHECK(late > 800);
    CHECK(late < 1200);
    CHECK(few(3, 1) == 0);

    double sum = 0, sum_normal = 0, squares = 0;
    const auto noise = exponential_noise(2e-6, 9);
    const auto normal = normal_noise([](int r) { return 1e-3 * (1 + r % 2); }, [](int) { return 1e-5; }, 9);
    for (int r = 0; r < 1000; ++r)
        for (int k = 0; k < 20; ++k) {
            sum += noise(r, k);
            const double off = normal(r, k) - 1e-3 * (1 + r % 2);
            sum_normal += off;
            squares += off * off;
        }
    CHECK(sum / 20000 == Approx(2e-6).epsilon(0.03));
    CHECK(std::abs(sum_normal / 20000) < 3e-7);
    CHECK(std::sqrt(squares / 20000) == Approx(1e-5).epsilon(0.03));
    CHECK(noise(5, 5) == noise(5, 5));
    CHECK(noise(5, 5) != noise(5, 6));

    // A step waits for the slowest rank: noise costs more, the more ranks there are.
    double before = 0;
    for (const int n : {4, 16, 64}) {
        double extra = 0;
        for (std::uint64_t seed = 1; seed <= 20; ++seed)
            extra += simulate(s, n, net, 0, {.late = exponential_noise(1e-5, seed)}).seconds -
                     simulate(s, n, net, 0).seconds;
        CHECK(extra > before);
        before = extra;
    }
}

TEST_CASE("simulate: events that are near in time can be joined", "[simulate]") {
    const topology net = fat_tree({{8, 1, {1e-6, 1e10}}, {8, 3, {1e-6, 1e10}}}, spread::hashed);
    const auto s = of<all_reduce>(colls::halving_doubling{});
    const colls::simulation::options exact{.late = exponential_noise(1e-6)};
    colls::simulation::options coarse = exact;
    coarse.resolution = 2e-6;
    const auto a = simulate(s, 64, net, 1e6, exact), b = simulate(s, 64, net, 1e6, coarse);
    CHECK(b.settlements < a.settlements / 2);
    CHECK(b.seconds == Approx(a.seconds).epsilon(0.05));
}

TEST_CASE(
    "simulate: events of one time come together where they were added together, and in order of time", "[simulate]") {
    using colls::detail::event;
    colls::detail::event_queue q;
    const auto add = [&](double time, int number) { q.add(time, {number, 0}); };
    const auto take = [&] {
        std::vector<event> events;
        q.take(events);
        std::vector<int> numbers;
        for (const event& e : events) numbers.push_back(e.number);
        return numbers;
    };
    using numbers = std::vector<int>;
    for (int turn = 0; turn < 3; ++turn) {
        CHECK(q.empty());
        for (const int number : {0, 1, 2}) add(2, number);
        for (const int number : {3, 4}) add(1, number);
        CHECK(q.size() == 5);
        CHECK(q.time() == 1);
        CHECK(take() == numbers{3, 4});
        add(1, 5);  // after those of the time were taken
        add(1, 6);
        CHECK(take() == numbers{5, 6});
        CHECK(q.time() == 2);
        add(3, 7);
        add(3, 8);
        q.forget([](const event& e) { return e.number == 1 || e.number == 7; });
        CHECK(q.size() == 3);
        CHECK(take() == numbers{0, 2});
        CHECK(take() == numbers{8});
        CHECK(q.size() == 0);
    }
}

TEST_CASE("simulate: what is refused", "[simulate]") {
    const colls::simulation::link good{1e-6, 1e9};
    const auto refused = [](const std::string& words, const auto& call) {
        const std::string text = refusal(call);
        INFO(text);
        CHECK(contains(text, words));
    };
    const auto no_route = [](int, int, std::vector<int>&) {};
    refused("there is 1 rank or more, not 0", [&] { topology(0, {}, no_route); });
    refused("there is no router", [&] { topology(1, {}, {}); });
    refused("one rank in 1 or more, not in 0", [&] { stragglers(0, 1); });
    refused(
        "a cable leads to node 6, but 1 cables between 2 ranks do not name so many", [&] { graph(2, {{0, 6, good}}); });
    for (const int none : {0, -5})
        refused("the number of pairs of a rank and a node is not positive", [&] { graph(none, {}); });
    CHECK(torus({}, good).ranks() == 1);
    refused("link 0 has the bandwidth 0; it is above 0", [&] { flat(4, {1e-6, 0}); });
    refused("link 2 has the latency -1e-06; it is not negative", [&] { two_level(2, 2, good, {-1e-6, 1e9}); });
    refused("bandwidth nan", [&] { torus({4}, {0, std::nan("")}); });
    refused("bandwidth inf", [&] { torus({4}, {0, INFINITY}); });
    refused("latency inf", [&] { torus({4}, {INFINITY, 1}); });
    refused("rank 2 has no route to rank 0", [&] { graph(3, {{0, 1, good}}); });
    refused("rank 1 has no route to rank 0", [&] { graph(2, {{0, 1, good, false}}); });
    refused("two different nodes, not 1 and 1", [&] { graph(2, {{0, 1, good}, {1, 1, good}}); });
    refused("link 1 has the bandwidth -3", [&] { graph(2, {{0, 1, good}, {0, 1, {0, -3}}}); });
    refused("the number of ranks is not positive", [&] { torus({4, 0}, good); });
    refused("more than", [&] { torus({40000, 40000}, good); });
    refused("routers * global of 4 or more", [&] { dragonfly({5, 2, 1, 1, good, good, good}); });
    refused("place 1 is taken twice", [&] { flat(4, good).placed({1, 1}); });
    refused("not a permutation", [&] { placement({0, 2}); });
    refused(
        "8 ranks do not fit on a topology of 4", [&] { simulate(colls::ring::reduce_scatter{}, 8, flat(4, good), 1); });
    refused(
        "does not support 6 ranks", [&] { simulate(of<all_reduce>(colls::halving_doubling{}), 6, flat(8, good), 1); });
    refused("not negative", [&] { simulate(colls::ring::reduce_scatter{}, 4, flat(4, good), -1); });
    refused("rank 1 waits in round 1", [&] { simulate(lonely{}, 2, flat(2, good), 0); });
    refused("rank 1 waits in round 1", [&] { simulate(lonely{}, 2, flat(2, good), 0, {.buffered = true}); });
    for (const int peer : {-2, 2, 1 << 30})
        for (const bool sends : {false, true})
            for (const bool buffered : {false, true})
                refused("rank 1 names rank " + std::to_string(peer) + ", but the group has ranks 0 to 1",
                    [&] { simulate(astray{peer, sends}, 2, flat(2, good), 1, {.buffered = buffered}); });
    const auto with = [&](const colls::simulation::options& o) {
        return [o, good] { simulate(colls::ring::reduce_scatter{}, 4, flat(4, good), 1, o); };
    };
    refused("options.chunk needs options.buffered", with({.chunk = 1}));
    refused("options.buffered knows no options.in_step", with({.in_step = true, .buffered = true}));
    refused("options.under_way is 1 or more", with({.buffered = true, .under_way = 0}));
    refused("options.chunk is not negative", with({.buffered = true, .chunk = -1}));
    refused("more than can be simulated", with({.buffered = true, .chunk = 1e-8}));
    refused("more than can be simulated", with({.buffered = true, .chunk = 1e-300}));
}

TEST_CASE("simulate: 131,072 ranks on an oversubscribed fat tree", "[simulate]") {
    const colls::simulation::link cable{1e-6, 25e9};
    const topology tree = fat_tree({{32, 1, cable}, {64, 16, cable}, {64, 32, cable}});
    const int n = tree.ranks();
    REQUIRE(n == 131072);
    const double bytes = 1e6;
    const auto out = simulate(of<all_reduce>(colls::recursive_doubling{}), n, tree, bytes);
    CHECK(out.transfers == 17L * n);
    // Two ranks share each uplink of a leaf, and as many each link to the top.
    const double alone = bytes / 25e9;
    CHECK(out.seconds == Approx(5 * (2e-6 + alone) + 6 * (4e-6 + 2 * alone) + 6 * (6e-6 + 4 * alone)).epsilon(exactly));
    // A ring has 262,142 rounds, of two shapes.
    const auto ring = simulate(of<all_reduce>(colls::ring{}), n, tree, bytes, {.in_step = true, .symmetric = true});
    CHECK(ring.transfers == 2L * n);
    CHECK(ring.seconds == Approx((2.0 * n - 2) * (6e-6 + bytes / n / 25e9)).epsilon(exactly));
}

}  // namespace simulate_test
