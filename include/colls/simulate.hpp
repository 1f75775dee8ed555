// How long a schedule takes on a network whose links have latencies and bandwidths, and are shared.
//
// For host code; needs the standard library alone. Not part of colls.hpp.
//
//     using namespace colls::simulation;
//     const topology net = fat_tree({{32, 1, {1e-6, 25e9}}, {32, 16, {1e-6, 25e9}}});     // 1024 ranks, 2:1
//     simulate(colls::ring::reduce_scatter{}, 1024, net, 64e6, {.gamma = 1e-11}).seconds
//
// The model:
// - A rank begins a round when its transfers of the round before are done and folded. There is no barrier between
//   rounds. Rounds in which it neither sends nor receives take no time.
// - A transfer begins when both of its ranks are in its round. After the sum of its route's latencies its bytes flow.
// - The transfers that flow at a time share the links by max-min fairness: no transfer can have more without another
//   one, that has no more, getting less. Rates change whenever a transfer begins or ends to flow.
// - What a rank receives to be reduced is folded when all its transfers of the round are done, at gamma seconds a byte.
// - A rank can send and receive at the same time. Local transfers cost their fold alone.
// That is a rank that waits for what it sends, as one without buffers does. options.buffered is the other way, that of
// the library over TCP: a rank goes on when it has received, and its messages leave whether or not their receivers have
// come. So the messages of several rounds may share its link. docs/simulate.md compares both with measured runs.
//
// Where all routes have the latency alpha, and only the links of the ranks themselves limit, this is the model of
// cost.hpp: a schedule in which all ranks do the same takes exactly cost::seconds, others of one port at most that.
#pragma once

#include <colls/detail/prove/schedule_reader.hpp>
#include <colls/error.hpp>
#include <colls/schedule.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace colls::inline v1::simulation {

/// One direction of a cable.
struct link {
    double latency = 0;    ///< seconds
    double bandwidth = 0;  ///< bytes a second
};

/// Ranks, links, and the route between each two ranks.
class topology {
public:
    /// Appends the links from one rank to another one, in their order.
    using router = std::function<void(int from, int to, std::vector<int>& route)>;

    /// Throws invalid_argument where there is no rank, a link has a negative latency, or no bandwidth.
    topology(int ranks, std::vector<link> links, router routes);

    /// How many there are.
    int ranks() const { return ranks_; }
    /// By the numbers that routes name.
    const std::vector<link>& links() const { return links_; }
    /// The links from `from` to `to`, two ranks; `into` is overwritten. The same each time.
    void route(int from, int to, std::vector<int>& into) const;

    /// The same network with rank r at the place of its rank places[r]; the places are different from each other. With
    /// fewer places than ranks, the others are left idle.
    topology placed(std::vector<int> places) const;

private:
    int ranks_;
    std::vector<link> links_;
    router routes_;
};

/// Every rank has a link of its own into a switch that nothing slows, and one out of it. A route has two links.
topology flat(int ranks, link each);

/// `nodes` hosts of `per_node` ranks. Within a host, ranks are joined as in flat(). The i-th ranks of all hosts are
/// joined by a switch of their own, the i-th rail. From rank i of a host to rank j of another one, data goes to rank j
/// of the own host first. Ranks of one host follow each other.
topology two_level(int nodes, int per_node, link inside, link rail);

/// How a route chooses among equal ones.
enum class spread : unsigned char {
    by_destination,  ///< by the number of the receiving rank, as D-mod-k does: shifts and exchanges load links evenly
    hashed  ///< by a hash of both ranks, as ECMP does: some links carry several transfers while others are idle
};
/// A level of a fat tree, from the lowest: each switch has `down` children, and each child has links to `up` switches
/// of the level. The next level is oversubscribed where its `up` is below this one's `down`.
struct tree_level {
    int down = 1;  ///< children of a switch
    int up = 1;    ///< switches of the level that each child has links to
    link each{};   ///< of these links
};
/// A tree of switches, of which each child has several parents (XGFT). Its ranks are the product of all `down`.
topology fat_tree(const std::vector<tree_level>& levels, spread how = spread::by_destination);

/// A torus with these sides. The last coordinate of a rank varies fastest. Routes go the shorter way around, one
/// dimension after another, from the last one; where both ways are equal, even coordinates go up and odd ones down.
topology torus(const std::vector<int>& sides, link each);

/// Groups of routers, all joined within a group, and one link between each two groups.
struct dragonfly_shape {
    int groups = 1;   ///< in all
    int routers = 1;  ///< a group
    int ranks = 1;    ///< a router
    int global = 1;   ///< links to other groups, a router: routers * global is at least groups - 1
    link rank{};      ///< between a rank and its router
    link local{};     ///< between the routers of a group
    link between{};   ///< between groups
};
/// Routes are the shortest ones.
topology dragonfly(const dragonfly_shape& shape);

/// A cable between two nodes: nodes 0 ... ranks - 1 are ranks, greater numbers are switches.
struct cable {
    int from = 0;           ///< a node
    int to = 0;             ///< another node
    link each{};            ///< of each direction
    bool both_ways = true;  ///< else data goes from `from` to `to` only
};
/// Any network. Routes have the fewest links, and of these the widest narrowest link; among equal ones a hash of the
/// two ranks chooses. Takes 8 bytes for each pair of a rank and a node. Throws invalid_argument where a rank cannot
/// reach another one.
topology graph(int ranks, const std::vector<cable>& cables);

/// Seconds that a rank loses before it begins a round in which it takes part: a straggler, or noise.
using delay = std::function<double(int rank, int round)>;

/// In every round each rank loses a time of its own, exponentially distributed.
delay exponential_noise(double mean, std::uint64_t seed = 1);
/// In every round each rank loses its time, normally distributed, where that is above 0: mean and deviation by rank.
delay normal_noise(
    std::function<double(int rank)> mean, std::function<double(int rank)> deviation, std::uint64_t seed = 1);
/// One rank in `one_in` comes `late` seconds too late to the first round.
delay stragglers(int one_in, double late, std::uint64_t seed = 1);

/// What a simulation counts besides the network.
struct options {
    double gamma = 0;        ///< seconds a byte reduced
    double overhead = 0;     ///< seconds before the transfers of a round begin, for each that the rank sends in it, or
                             ///< receives where these are more: messages are handed to the network one by one
    delay late{};            ///< seconds that it loses besides; empty: none
    bool in_step = false;    ///< a barrier between rounds: each round begins when all ranks have ended the one before
    bool symmetric = false;  ///< with in_step: the schedule has properties::symmetric, so rounds in which rank 0 does
                             ///< the same are simulated once. Throws wrong_schedule where another rank differs.
    double resolution = 0;   ///< seconds within which events happen at once: faster where many ranks differ a little
    bool buffered = false;   ///< a rank waits for what it receives alone, and a message is under way as soon as its
                             ///< sender is in the round; those from one rank to another one follow each other. Not
                             ///< with in_step.
    double chunk = 0;        ///< with buffered: bytes of a block that go through the rounds at a time, so that one part
                             ///< is folded while another travels; 0: whole blocks. The library's: 524,288. `late`
                             ///< is for the first chunk.
    int under_way = 4;       ///< with chunk: chunks that are in the rounds at once, at most
};
/// What came out.
struct outcome {
    double seconds = 0;            ///< until the last rank is done
    std::vector<double> finished;  ///< by rank
    long transfers = 0;            ///< simulated, local ones not counted
    long settlements = 0;          ///< how often rates were computed
};

/// s on n ranks, which it must support, on the first n ranks of `t`: the user's buffer has `bytes` bytes. In time about
/// linear in transfers where they begin and end together; each time that differs costs the transfers whose rates
/// depend on it. Throws invalid_argument where n is too large, and wrong_schedule where a send meets no receive.
template <class S>
outcome simulate(const S& s, int n, const topology& t, double bytes, const options& o = {});

/// Ranks on places of a topology.
class placement {
public:
    /// Rank r at places[r]; place() makes them.
    explicit placement(std::vector<int> places);

    /// places()[r]: where rank r is.
    const std::vector<int>& places() const { return places_; }
    double before = 0;  ///< seconds with rank r at place r
    double after = 0;   ///< seconds with rank r at its place

    /// The mapping for permuted<S, table>, valid as long as the placement is: the schedule for ranks that stay where
    /// they are.
    struct table {
        const placement* of = nullptr;  ///< where the ranks are
        int role(int rank, int n) const { return of->find(of->roles_, rank, n); }
        int rank(int role, int n) const { return of->find(of->places_, role, n); }
    };
    table mapping() const { return {this}; }

private:
    int find(const std::vector<int>& in, int at, int n) const {
        return n == static_cast<int>(in.size()) && at >= 0 && at < n ? in[static_cast<std::size_t>(at)] : none;
    }
    std::vector<int> places_, roles_;
};

/// Looks for places of the n ranks on the first n places of `t`, so that s takes less time: the order in which each
/// place is followed by the nearest one left, then exchanges of two ranks, `tries` of them, of which those that help
/// stay. Simulates tries + 2 times.
template <class S>
placement place(
    const S& s, int n, const topology& t, double bytes, const options& o = {}, int tries = 200, std::uint64_t seed = 1);

}  // namespace colls::inline v1::simulation

#include <colls/simulate/detail/graph.hpp>
#include <colls/simulate/detail/noise.hpp>
#include <colls/simulate/detail/placement.hpp>
#include <colls/simulate/detail/played_group.hpp>
#include <colls/simulate/detail/played_messages.hpp>
#include <colls/simulate/detail/topologies.hpp>
