// What the tests of all families share.
#pragma once

#include "catch.hpp"
#include "support/proven.hpp"

#include <colls/any_schedule.hpp>
#include <colls/cost.hpp>
#include <colls/family.hpp>
#include <colls/verify.hpp>

#include <functional>
#include <string>
#include <utility>

namespace laws {

using colls::any_schedule;
using colls::collective;

/// Group sizes that find bugs.
inline constexpr int awkward_sizes[] = {1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 17, 31, 32, 33, 48, 64, 65, 66, 129};
inline constexpr int largest = 129;

/// Calls f(schedule) for each collective that the family provides. The schedules' types are erased, so that what
/// follows is compiled once.
template <class Family>
void for_each_schedule(const Family& family, const std::function<void(const any_schedule&)>& f) {
    const auto one = [&]<int C>(std::integral_constant<int, C>) {
        if constexpr (constexpr auto c = static_cast<collective>(C); colls::provides<Family, c>)
            f(any_schedule(colls::schedule_of<c>(family)));
    };
    [&]<int... C>(std::integer_sequence<int, C...>) { (one(std::integral_constant<int, C>{}), ...); }(
        std::make_integer_sequence<int, colls::collective_count>{});
}
template <collective C, class Family>
any_schedule erased(const Family& family) {
    return any_schedule(colls::schedule_of<C>(family));
}

/// An argument: any schedule, its type erased.
struct given {
    any_schedule schedule;
    given(const any_schedule& s) : schedule(s) {}
    template <colls::schedule S>
    given(const S& s) : schedule(s) {}
    const any_schedule* operator->() const { return &schedule; }
};

/// Calls f(rank, round, port, step) for each step of s at n.
inline void for_each_step(const given& s, int n, const std::function<void(int, int, int, const colls::step&)>& f) {
    const int rounds = s->rounds(n), ports = s->ports(n);
    for (int rank = 0; rank < n; ++rank)
        for (int round = 0; round < rounds; ++round)
            for (int port = 0; port < ports; ++port) f(rank, round, port, s->at(rank, n, round, port));
}

/// Every law, at every legal size to 16 and of the list; and no rank sends to itself.
inline void prove_schedule(const any_schedule& s) {
    INFO(colls::name_of(s.implements));
    const auto prove_at = [&](int n) {
        if (!s.supports(n)) return;
        const colls::report r = colls::verify(s, n);
        INFO("n = " << n << ": " << r.text());
        CHECK(r.ok());
        bool to_self = false;
        for_each_step(s, n, [&](int rank, int, int, const colls::step& st) {
            to_self = to_self || st.send.peer == rank || st.recv.peer == rank;
        });
        CHECK(!to_self);
    };
    for (int n = 1; n <= 16; ++n) prove_at(n);
    for (const int n : awkward_sizes)
        if (n > 16) prove_at(n);
}
/// For every collective of the family.
template <class Family>
void prove(const Family& family = {}) {
    for_each_schedule(family, prove_schedule);
}

/// The collectives of the family, in the order of the enumeration: "broadcast all_gather ...".
template <class Family>
std::string collectives_of(const Family& family = {}) {
    std::string names;
    for_each_schedule(family, [&](const any_schedule& s) {
        names += (names.empty() ? "" : " ") + std::string(colls::name_of(s.implements));
    });
    return names;
}

/// With the schedule's own type the cost would be a constant, which compilers evaluate, slowly, wherever it stands.
inline colls::cost cost_at(const given& s, int n) { return colls::cost_of(s.schedule, n); }

using formula = std::function<int(int)>;

inline void check_cost(const any_schedule& s, const formula& rounds, const formula& sent) {
    for (int n = 1; n <= largest; ++n) {
        if (!s.supports(n)) continue;
        const colls::cost cost = colls::traffic_of(s, n);
        INFO(colls::name_of(s.implements) << ", n = " << n);
        CHECK(cost.rounds == rounds(n));
        CHECK(cost.blocks_sent == sent(n));
    }
}
/// The rounds, and the blocks that the busiest rank sends, as closed formulas: f(n), for every legal n to 129.
template <collective C, class Family>
void check_cost(const Family& family, const formula& rounds, const formula& sent) {
    check_cost(erased<C>(family), rounds, sent);
}

/// The group sizes from 1 to 66 among the awkward ones at which s does not combine in rank order.
inline std::string sizes_out_of_order(const given& s) {
    std::string sizes;
    for (const int n : awkward_sizes)
        if (n <= 66 && s->supports(n) && !colls::properties_of(s.schedule, n).order_preserving)
            sizes += (sizes.empty() ? "" : " ") + std::to_string(n);
    return sizes;
}
template <collective C, class Family>
bool keeps_order(const Family& family) {
    return sizes_out_of_order(erased<C>(family)).empty();
}
/// All ranks that hold a result have the same bits.
template <class Family>
void check_identical(const Family& family = {}) {
    for_each_schedule(family, [](const any_schedule& s) {
        INFO(colls::name_of(s.implements));
        for (const int n : awkward_sizes)
            if (n <= 66 && s.supports(n)) {
                INFO("n = " << n);
                CHECK(colls::properties_of(s, n).rank_identical);
            }
    });
}

/// Two schedules have the same steps, block by block. Round k, port 0 of a is round `round_of(n, k)`, port
/// `port_of(n, k)` of b.
inline bool same_steps(const given& a, const given& b, int n, const std::function<int(int, int)>& round_of,
    const std::function<int(int, int)>& port_of) {
    const auto same_blocks = [](const colls::block_set& x, const colls::block_set& y) {
        bool same = x.size() == y.size();
        for (int i = 0; same && i < x.size(); ++i) same = x[i] == y[i];
        return same;
    };
    bool same = true;
    for_each_step(a, n, [&](int rank, int round, int, const colls::step& x) {
        const colls::step y = b->at(rank, n, round_of(n, round), port_of(n, round));
        same = same && x.send.peer == y.send.peer && x.recv.peer == y.recv.peer && x.recv.action == y.recv.action &&
               same_blocks(x.send.blocks, y.send.blocks) && same_blocks(x.recv.blocks, y.recv.blocks);
    });
    return same;
}

/// Average hops of a block in a message, where the ranks form a ring.
inline double mean_hops(const given& s, int n) {
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
