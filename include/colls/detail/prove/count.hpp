// Counting what a schedule costs, by asking it for every step.
// IWYU pragma: private, include <colls/cost.hpp>
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/prove/liveness.hpp>
#include <colls/detail/prove/reader.hpp>
#include <colls/extend/host_map.hpp>

namespace colls::inline v1::detail {

/// Which messages are counted: all, or where `node` consecutive ranks share a host, or those of a host of `hosts`,
/// those within hosts, or those between hosts.
struct counted_messages {
    int node = 0;
    bool between = false;
    host_map hosts{};
    constexpr bool all() const { return node == 0 && !hosts.known(); }
    constexpr bool operator()(int a, int b) const {
        if (all()) return true;
        return (node != 0 ? a / node != b / node : hosts.host_of(a) != hosts.host_of(b)) == between;
    }
    friend constexpr bool operator==(const counted_messages&, const counted_messages&) = default;
};

/// All of a cost but `scratch`. Where only some messages are counted, `rounds` are those in which one of them is sent.
/// `period`: if not 0, it divides n, rank r + period does the same as rank r with ranks and counted messages moved on
/// by as much, and only ranks below it are asked.
/// What a wrong schedule sends to no rank is not counted.
constexpr cost traffic(const schedule_reader& s, int n, counted_messages counts = {}, int period = 0) {
    const int rounds = s.rounds(n), ranks = period > 0 ? period : n;
    cost c{.rounds = counts.all() ? rounds : 0, .blocks = s.blocks(n), .ports = s.ports(n)};
    buffer<long> sent(ranks), received(ranks), reduced(ranks);
    buffer<int> reduced_from(ranks);  // the first round in which the rank reduces, + 1
    for (int round = 0; round < rounds; ++round) {
        long most_sent = 0, most_received = 0, most_reduced = 0, most_messages = 0;
        for (int r = 0; r < ranks; ++r) {
            long out = 0, into = 0, fold = 0, sends = 0, messages = 0;
            for (int port = 0; port < c.ports; ++port) {
                const step st = s.at(r, n, round, port);
                if (exists(st.send.peer, n) && st.send.peer != r && counts(r, st.send.peer))
                    out += size_of(st.send.blocks), ++sends, ++messages;
                if (!exists(st.recv.peer, n) || !counts(r, st.recv.peer)) continue;
                const long in = size_of(st.recv.blocks);
                if (st.recv.peer != r) into += in, ++messages;
                if (st.recv.action != action::reduce) continue;
                fold += in;
                const int from = reduced_from.p[st.recv.peer % ranks];
                if (st.recv.peer != r && from != 0 && from <= round) c.all_partial += in;
            }
            sent.p[r] += out;
            received.p[r] += into;
            reduced.p[r] += fold;
            if (fold > 0 && reduced_from.p[r] == 0) reduced_from.p[r] = round + 1;
            if (out > most_sent) most_sent = out;
            if (into > most_received) most_received = into;
            if (fold > most_reduced) most_reduced = fold;
            if (messages > most_messages) most_messages = messages;
            c.messages += sends;
            c.all_sent += out;
            c.all_reduced += fold;
        }
        c.critical_messages += most_messages;
        if (!counts.all()) c.rounds += most_messages > 0;
        c.critical_sent += most_sent;
        c.critical_received += most_received;
        c.critical_reduced += most_reduced;
    }
    c.messages *= n / ranks;
    c.all_sent *= n / ranks;
    c.all_reduced *= n / ranks;
    c.all_partial *= n / ranks;
    for (int r = 0; r < ranks; ++r) {
        if (sent.p[r] > c.blocks_sent) c.blocks_sent = sent.p[r];
        if (received.p[r] > c.blocks_received) c.blocks_received = received.p[r];
        if (reduced.p[r] > c.blocks_reduced) c.blocks_reduced = reduced.p[r];
    }
    return c;
}

constexpr cost count_cost(const schedule_reader& s, int n, bool scratch) {
    cost c = traffic(s, n);
    if (scratch && s.kind() != collective::barrier) c.scratch = liveness(s, n).peak();
    return c;
}

}  // namespace colls::inline v1::detail
