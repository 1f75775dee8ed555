// What a schedule costs: counted from its steps, at compile time or at run time by the same code.
#pragma once

#include <colls/detail/prove/schedule_reader.hpp>

namespace colls::inline v1 {

/// A machine in the alpha-beta-gamma model: a round in which a rank sends x bytes and reduces y takes alpha + beta x +
/// gamma y.
struct model {
    double alpha = 0;  ///< seconds a round
    double beta = 0;   ///< seconds a byte sent
    double gamma = 0;  ///< seconds a byte reduced
};

/// The cost of a schedule at one group size. Blocks are slots: blocks(n) of them make up the user's whole buffer.
/// Local transfers (a rank to itself) count as reduced where they reduce, never as sent or received.
struct cost {
    int rounds = 0;
    int blocks = 0;              ///< slots a rank
    int ports = 0;               ///< the most sends, or receives, of a rank in one round
    long blocks_sent = 0;        ///< by one rank in all rounds, the most over the ranks
    long blocks_received = 0;    ///< by one rank in all rounds, the most over the ranks
    long blocks_reduced = 0;     ///< by one rank in all rounds, the most over the ranks
    long critical_sent = 0;      ///< sum over the rounds of the most blocks that a rank sends in that round
    long critical_received = 0;  ///< sum over the rounds of the most blocks that a rank receives in that round
    long critical_reduced = 0;   ///< sum over the rounds of the most blocks that a rank reduces in that round
    long messages = 0;           ///< sent by all ranks together
    long critical_messages = 0;  ///< sum over the rounds of the most that any rank sends and receives in that round
    long all_sent = 0;           ///< blocks, by all ranks together
    long all_reduced = 0;        ///< blocks, by all ranks together
    /// Those of all_reduced that come from a rank that has reduced in an earlier round: partial results, by all ranks.
    long all_partial = 0;
    /// The most partial results that a rank holds at a time beyond its output: slots that are not part of its result,
    /// each from the round in which data first arrives in it to the round that last sends it on. (reduce_scatter at
    /// n = 64: direct 0, ring 2, PAT 3, halving and circulant 31.)
    int scratch = 0;

    /// Predicted seconds for a user's buffer of `bytes` bytes: each round takes as long as its busiest rank needs.
    constexpr double seconds(const model& m, double bytes) const {
        const double block = blocks > 0 ? bytes / blocks : 0;
        return m.alpha * rounds + m.beta * static_cast<double>(critical_sent) * block +
               m.gamma * static_cast<double>(critical_reduced) * block;
    }
    friend constexpr bool operator==(const cost&, const cost&) = default;
};

/// The cost of s in a group of n, which s must support. Calls at() three times for each of the n · rounds · ports
/// steps, and walks the blocks that they name: all_to_all by bruck on 100,000 ranks has 10^11, minutes. traffic_of does
/// not.
template <class S>
constexpr cost cost_of(const S& s, int n) {
    return count_cost(detail::readable(s), n, true);
}
/// cost_of(S{}, n).
template <class S>
constexpr cost cost_of(int n) {
    return cost_of(S{}, n);
}

/// The same without `scratch`, which stays 0: what a prediction of time needs, in one call of at() for each step.
template <class S>
constexpr cost traffic_of(const S& s, int n) {
    return count_cost(detail::readable(s), n, false);
}

}  // namespace colls::inline v1

#include <colls/detail/prove/count.hpp>  // count_cost
