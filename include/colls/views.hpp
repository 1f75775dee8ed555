// A schedule as ranges: its rounds, and its transfers, to be filtered, grouped, counted, drawn or exported.
//
// For host code with range-v3 in the include path. Not part of colls.hpp: nvcc cannot parse range-v3.
//
//     for (const auto& t : colls::views::transfers(schedule, n) | colls::views::sent_by(0)) ...
//
// Every view holds the schedule by value, asks it for a step when an element is read, and allocates nothing.
#pragma once

#include <colls/schedule.hpp>

#include <range/v3/algorithm/sort.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/chunk_by.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/transform.hpp>

#include <tuple>
#include <utility>
#include <vector>

namespace colls::inline v1::views {

/// One message of a schedule, or a local transfer of a rank to itself.
struct transfer {
    int round = 0;                               ///< in which it goes, from 0
    int port = 0;                                ///< of both ranks
    int from = none;                             ///< the rank that sends
    int to = none;                               ///< the rank that receives
    block_set blocks{};                          ///< the sender's slots, in the order in which they go
    block_set stored{};                          ///< the receiver's slots: stored[i] receives blocks[i]
    colls::action action = colls::action::copy;  ///< what becomes of the former value of the receiver's slots

    /// From a rank to itself.
    constexpr bool local() const { return from == to; }
    friend constexpr bool operator==(const transfer&, const transfer&) = default;
};

/// The transfers of rounds first, first + 1, ..., last - 1 of s on n ranks, ordered by round, then by sender, then by
/// port. `s`: any schedule, or an any_schedule, that supports n ranks, and each of whose sends meets a receive (law 2
/// of the proof). Reading an element calls at() three times; steps without a send are passed over by one call each.
template <class S>
auto transfers(const S& s, int n, int first, int last) {
    using ranges::views::ints;
    const auto sent = [s, n](const auto& at) {
        return step_of(s, std::get<1>(at), n, std::get<0>(at), std::get<2>(at)).send;
    };
    return ranges::views::cartesian_product(ints(first, last), ints(0, n), ints(0, ports_of(s, n))) |
           ranges::views::filter([sent](const auto& at) { return sent(at).peer != none; }) |
           ranges::views::transform([s, n, sent](const auto& at) {
               const auto& [round, from, port] = at;
               const send_part out = sent(at);
               const receive_part in = step_of(s, out.peer, n, round, port).recv;
               return transfer{round, port, from, out.peer, out.blocks, in.blocks, in.action};
           });
}
/// Those of all rounds.
template <class S>
auto transfers(const S& s, int n) {
    return transfers(s, n, 0, s.rounds(n));
}
/// The rounds of s on n ranks: a range of ranges of transfers. A round may be empty.
template <class S>
auto rounds(const S& s, int n) {
    return ranges::views::ints(0, s.rounds(n)) |
           ranges::views::transform([s, n](int round) { return transfers(s, n, round, round + 1); });
}

// What transfers can be filtered by: transfers(s, n) | sent_by(3) | reducing()

/// Those that a rank sends.
inline auto sent_by(int rank) {
    return ranges::views::filter([rank](const transfer& t) { return t.from == rank; });
}
/// Those that a rank receives.
inline auto received_by(int rank) {
    return ranges::views::filter([rank](const transfer& t) { return t.to == rank; });
}
/// Those that a rank sends or receives.
inline auto at_rank(int rank) {
    return ranges::views::filter([rank](const transfer& t) { return t.from == rank || t.to == rank; });
}
/// Those from one rank to another.
inline auto on_link(int from, int to) {
    return ranges::views::filter([from, to](const transfer& t) { return t.from == from && t.to == to; });
}
/// Those between two ranks.
inline auto messages() {
    return ranges::views::filter([](const transfer& t) { return !t.local(); });
}
/// Those whose receiver combines what arrives with what it has.
inline auto reducing() {
    return ranges::views::filter([](const transfer& t) { return t.action == colls::action::reduce; });
}
/// Groups of transfers of the same round, which follow each other: those of empty rounds are missing.
inline auto by_round() {
    return ranges::views::chunk_by([](const transfer& a, const transfer& b) { return a.round == b.round; });
}

/// What goes from one rank to another.
struct link {
    int from = none;                  ///< the rank that sends
    int to = none;                    ///< the rank that receives
    std::vector<transfer> transfers;  ///< in the order of rounds, then of ports

    /// Blocks that it carries in all rounds.
    long blocks() const {
        long sum = 0;
        for (const transfer& t : transfers) sum += t.blocks.size();
        return sum;
    }
};
/// The links that a range of transfers uses, ordered by sender, then by receiver. Local transfers have links, too.
template <class Transfers>
std::vector<link> links(Transfers&& of) {
    auto all = ranges::to<std::vector<transfer>>(std::forward<Transfers>(of));
    ranges::sort(all, {}, [](const transfer& t) { return std::tuple(t.from, t.to, t.round, t.port); });
    const auto same = [](const transfer& a, const transfer& b) { return a.from == b.from && a.to == b.to; };
    std::vector<link> made;
    for (const transfer& t : all) {
        if (made.empty() || !same(made.back().transfers.front(), t)) made.push_back({t.from, t.to, {}});
        made.back().transfers.push_back(t);
    }
    return made;
}

}  // namespace colls::inline v1::views
