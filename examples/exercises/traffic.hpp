// What each rank sends and receives in a schedule, counted step by step, and how long that takes on links of two kinds.
#pragma once

#include <colls/colls.hpp>

#include <algorithm>
#include <vector>

namespace example {

/// The traffic of one rank, in blocks and messages; transfers of a rank to itself are not counted.
struct rank_traffic {
    long sent = 0, received = 0, messages_sent = 0, messages_received = 0;
    long sent_between = 0, messages_between = 0;  ///< to ranks of other nodes
};

struct traffic {
    std::vector<rank_traffic> ranks;
    int blocks = 1;  ///< that the collective's buffer is cut into

    long most(long rank_traffic::* what) const { return std::ranges::max(ranks, {}, what).*what; }
    long sum(long rank_traffic::* what) const {
        long total = 0;
        for (const rank_traffic& r : ranks) total += r.*what;
        return total;
    }
    /// `count` blocks, as bytes where the whole buffer is of `buffer` bytes.
    double bytes(long count, double buffer) const { return static_cast<double>(count) * buffer / blocks; }
};

/// Calls visit(round, rank, send_part) for each message of s in a group of n, round by round.
template <class S, class Visit>
void for_each_message(const S& s, int n, Visit visit) {
    for (int round = 0; round < s.rounds(n); ++round)
        for (int rank = 0; rank < n; ++rank)
            for (int port = 0; port < colls::ports_of(s, n); ++port)
                if (const colls::send_part send = colls::step_of(s, rank, n, round, port).send;
                    send.peer != colls::none && send.peer != rank)
                    visit(round, rank, send);
}

/// Counts the messages of s in a group of n, in nodes of `node` consecutive ranks.
template <class S>
traffic count_traffic(const S& s, int n, int node = 1) {
    traffic t{.ranks = std::vector<rank_traffic>(static_cast<std::size_t>(n)), .blocks = colls::blocks_of(s, n)};
    for_each_message(s, n, [&](int, int rank, const colls::send_part& send) {
        rank_traffic& from = t.ranks[static_cast<std::size_t>(rank)];
        rank_traffic& to = t.ranks[static_cast<std::size_t>(send.peer)];
        const long blocks = send.blocks.size();
        from.sent += blocks;
        ++from.messages_sent;
        to.received += blocks;
        ++to.messages_received;
        if (rank / node != send.peer / node) {
            from.sent_between += blocks;
            ++from.messages_between;
        }
    });
    return t;
}

/// A cluster of nodes of `node` consecutive ranks. Each rank has a link inside its node and one to other nodes, which
/// work at the same time.
struct cluster {
    int node = 8;
    colls::model inside, between;  ///< alpha and beta of the two kinds of links
};

/// Seconds that s takes for a buffer of `bytes` bytes. A link carries one message at a time each way, alpha and beta
/// for each; a round ends when the busiest link of any rank has carried what the schedule asks of it.
template <class S>
double seconds_on(const S& s, int n, double bytes, const cluster& c) {
    const double block = bytes / colls::blocks_of(s, n);
    struct load {
        double in[2] = {}, out[2] = {};  // seconds of this rank's two links
    };
    std::vector<load> ranks(static_cast<std::size_t>(n));
    double total = 0;
    int current = 0;
    const auto finish_round = [&] {
        double longest = 0;
        for (load& l : ranks) {
            longest = std::max({longest, l.in[0], l.in[1], l.out[0], l.out[1]});
            l = {};
        }
        total += longest;
    };
    for_each_message(s, n, [&](int round, int rank, const colls::send_part& send) {
        if (round != current) finish_round();
        current = round;
        const int kind = rank / c.node == send.peer / c.node ? 0 : 1;
        const colls::model& link = kind == 0 ? c.inside : c.between;
        const double seconds = link.alpha + link.beta * send.blocks.size() * block;
        ranks[static_cast<std::size_t>(rank)].out[kind] += seconds;
        ranks[static_cast<std::size_t>(send.peer)].in[kind] += seconds;
    });
    finish_round();
    return total;
}

}  // namespace example
