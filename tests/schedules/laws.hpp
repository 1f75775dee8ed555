// What the tests of all families share.
#pragma once

#include "catch.hpp"
#include "support/proven.hpp"

#include <colls/cost.hpp>
#include <colls/family.hpp>
#include <colls/verify.hpp>

#include <string>
#include <utility>

namespace laws {

using colls::collective;

/// Group sizes that find bugs.
inline constexpr int awkward_sizes[] = {1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 17, 31, 32, 33, 48, 64, 65, 66, 129};
inline constexpr int largest = 129;

/// Calls f(schedule) for each collective that the family provides.
template <class Family, class F>
void for_each_schedule(const Family& family, F f) {
    const auto one = [&]<int C>(std::integral_constant<int, C>) {
        if constexpr (constexpr auto c = static_cast<collective>(C); colls::provides<Family, c>) {
            INFO(colls::name_of(c));
            f(colls::schedule_of<c>(family));
        }
    };
    [&]<int... C>(std::integer_sequence<int, C...>) { (one(std::integral_constant<int, C>{}), ...); }(
        std::make_integer_sequence<int, colls::collective_count>{});
}

/// Calls f(rank, round, port, step) for each step of s at n.
template <class S, class F>
void for_each_step(const S& s, int n, F f) {
    for (int rank = 0; rank < n; ++rank)
        for (int round = 0; round < s.rounds(n); ++round)
            for (int port = 0; port < colls::ports_of(s, n); ++port)
                f(rank, round, port, colls::step_of(s, rank, n, round, port));
}

/// Every law, for every collective of the family, at every legal size of the list; and no rank sends to itself.
template <class Family>
void prove(const Family& family = {}) {
    for_each_schedule(family, [](const auto& s) {
        for (const int n : awkward_sizes)
            if (colls::supports(s, n)) {
                const colls::report r = colls::verify(s, n);
                INFO("n = " << n << ": " << r.text());
                CHECK(r.ok());
                bool to_self = false;
                for_each_step(s, n, [&](int rank, int, int, const colls::step& st) {
                    to_self = to_self || st.send.peer == rank || st.recv.peer == rank;
                });
                CHECK(!to_self);
            }
    });
}

/// The collectives of the family, in the order of the enumeration: "broadcast all_gather ...".
template <class Family>
std::string collectives_of(const Family& family = {}) {
    std::string names;
    for_each_schedule(family, [&](const auto& s) {
        names += (names.empty() ? "" : " ") + std::string(colls::name_of(colls::implemented_by<decltype(s)>));
    });
    return names;
}

/// The rounds, and the blocks that the busiest rank sends, as closed formulas: f(n), for every legal n to 129.
template <collective C, class Family, class Rounds, class Sent>
void check_cost(const Family& family, Rounds rounds, Sent sent) {
    const auto s = colls::schedule_of<C>(family);
    for (int n = 1; n <= largest; ++n) {
        if (!colls::supports(s, n)) continue;
        const colls::cost cost = colls::traffic_of(s, n);
        INFO(colls::name_of(C) << ", n = " << n);
        CHECK(cost.rounds == rounds(n));
        CHECK(cost.blocks_sent == sent(n));
    }
}

/// The group sizes from 1 to 66 among the awkward ones at which s does not combine in rank order.
template <class S>
std::string sizes_out_of_order(const S& s) {
    std::string sizes;
    for (const int n : awkward_sizes)
        if (n <= 66 && colls::supports(s, n) && !colls::properties_of(s, n).order_preserving)
            sizes += (sizes.empty() ? "" : " ") + std::to_string(n);
    return sizes;
}
template <collective C, class Family>
bool keeps_order(const Family& family) {
    return sizes_out_of_order(colls::schedule_of<C>(family)).empty();
}
/// All ranks that hold a result have the same bits.
template <class Family>
void check_identical(const Family& family = {}) {
    for_each_schedule(family, [](const auto& s) {
        for (const int n : awkward_sizes)
            if (n <= 66 && colls::supports(s, n)) {
                INFO("n = " << n);
                CHECK(colls::properties_of(s, n).rank_identical);
            }
    });
}

/// Two schedules have the same steps, block by block. Round k, port 0 of a is round `round_of(n, k)`, port
/// `port_of(n, k)` of b.
template <class A, class B, class RoundOf, class PortOf>
bool same_steps(const A& a, const B& b, int n, RoundOf round_of, PortOf port_of) {
    const auto same_blocks = [](const colls::block_set& x, const colls::block_set& y) {
        bool same = x.size() == y.size();
        for (int i = 0; same && i < x.size(); ++i) same = x[i] == y[i];
        return same;
    };
    bool same = true;
    for_each_step(a, n, [&](int rank, int round, int, const colls::step& x) {
        const colls::step y = colls::step_of(b, rank, n, round_of(n, round), port_of(n, round));
        same = same && x.send.peer == y.send.peer && x.recv.peer == y.recv.peer && x.recv.action == y.recv.action &&
               same_blocks(x.send.blocks, y.send.blocks) && same_blocks(x.recv.blocks, y.recv.blocks);
    });
    return same;
}

/// Average hops of a block in a message, where the ranks form a ring.
template <class S>
double mean_hops(const S& s, int n) {
    double hops = 0, blocks = 0;
    for_each_step(s, n, [&](int rank, int, int, const colls::step& st) {
        if (st.send.peer == colls::none) return;
        const int ahead = colls::mod(st.send.peer - rank, n), way = ahead < n - ahead ? ahead : n - ahead;
        hops += way * st.send.blocks.size();
        blocks += st.send.blocks.size();
    });
    return hops / blocks;
}

}  // namespace laws
