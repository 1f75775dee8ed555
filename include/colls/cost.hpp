// What a schedule costs: counted, not declared, at compile time or at run time by the same code.
#pragma once

#include <colls/detail/prove/reader.hpp>

#include <initializer_list>

namespace colls::inline v1 {

/// A machine in the alpha-beta-gamma model.
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
    int ports = 0;               ///< sends and receives that a rank has in one round, at most
    long blocks_sent = 0;        ///< by one rank in all, the most over the ranks
    long blocks_received = 0;    ///< likewise
    long blocks_reduced = 0;     ///< likewise
    long critical_sent = 0;      ///< sum over the rounds of the most that any rank sends in that round
    long critical_received = 0;  ///< likewise
    long critical_reduced = 0;   ///< likewise
    long messages = 0;           ///< of all ranks together
    long critical_messages = 0;  ///< sum over the rounds of the most that any rank sends and receives in that round
    long all_sent = 0;           ///< blocks, by all ranks together
    /// The most partial results that a rank holds at a time beyond its output, out of place: slots that are no result
    /// of this rank, from the round in which something first arrives in them to the round that last sends it on.
    /// (reduce_scatter at n = 64: direct 0, ring 2, PAT 3, halving and circulant 31.)
    int scratch = 0;

    /// Seconds for a buffer of `bytes` bytes in all, every round lasting as long as its busiest rank needs.
    constexpr double seconds(const model& m, double bytes) const {
        const double block = blocks > 0 ? bytes / blocks : 0;
        return m.alpha * rounds + m.beta * static_cast<double>(critical_sent) * block +
               m.gamma * static_cast<double>(critical_reduced) * block;
    }
    friend constexpr bool operator==(const cost&, const cost&) = default;
};

namespace detail {

constexpr long size_of(const block_set& b) { return b.empty() ? 0 : b.size(); }

/// Which messages are counted, where `node` consecutive ranks are on a host: all, those within hosts, those between.
struct counted_messages {
    int node = 0;
    bool between = false;
    constexpr bool operator()(int a, int b) const { return node == 0 || (a / node != b / node) == between; }
};

/// All of a cost but `scratch`. `rounds`: those in which something that counts happens, where not everything does.
constexpr cost traffic(const schedule_reader& s, int n, counted_messages counts = {}) {
    const int rounds = s.rounds(n);
    cost c{.rounds = counts.node == 0 ? rounds : 0, .blocks = s.blocks(n), .ports = s.ports(n)};
    buffer<long> sent(n), received(n), reduced(n);
    for (int round = 0; round < rounds; ++round) {
        long most_sent = 0, most_received = 0, most_reduced = 0, most_messages = 0;
        for (int r = 0; r < n; ++r) {
            long out = 0, into = 0, fold = 0, sends = 0, messages = 0;
            for (int port = 0; port < c.ports; ++port) {
                const step st = s.at(r, n, round, port);
                if (st.send.peer != none && st.send.peer != r && counts(r, st.send.peer))
                    out += size_of(st.send.blocks), ++sends, ++messages;
                if (st.recv.peer == none || !counts(r, st.recv.peer)) continue;
                const long in = size_of(st.recv.blocks);
                if (st.recv.peer != r) into += in, ++messages;
                if (st.recv.action == action::reduce) fold += in;
            }
            sent.p[r] += out;
            received.p[r] += into;
            reduced.p[r] += fold;
            if (out > most_sent) most_sent = out;
            if (into > most_received) most_received = into;
            if (fold > most_reduced) most_reduced = fold;
            if (messages > most_messages) most_messages = messages;
            c.messages += sends;
            c.all_sent += out;
        }
        c.critical_messages += most_messages;
        if (counts.node != 0) c.rounds += most_messages > 0;
        c.critical_sent += most_sent;
        c.critical_received += most_received;
        c.critical_reduced += most_reduced;
    }
    for (int r = 0; r < n; ++r) {
        if (sent.p[r] > c.blocks_sent) c.blocks_sent = sent.p[r];
        if (received.p[r] > c.blocks_received) c.blocks_received = received.p[r];
        if (reduced.p[r] > c.blocks_reduced) c.blocks_reduced = reduced.p[r];
    }
    return c;
}

/// Whether a slot of a rank is part of its result (then what arrives there needs no room of its own).
constexpr bool is_result(const schedule_reader& s, int n, int rank, int slot, int blocks, int home) {
    if (slot >= blocks) return false;
    switch (s.kind()) {
        case collective::scatter:
        case collective::reduce_scatter:
            return home == rank;
        case collective::gather:
        case collective::reduce:
            return rank == s.root(n);
        default:
            return true;
    }
}

/// How long the partial results of a rank live, slot by slot.
class liveness {
public:
    constexpr liveness(const schedule_reader& s, int n)
        : s_(s),
          n_(n),
          rounds_(s.rounds(n)),
          blocks_(s.blocks(n)),
          slots_(blocks_ + s.scratch(n)),
          home_(slots_),
          begin_(slots_),
          last_(slots_),
          change_(rounds_ + 2) {
        if (owned(s.kind()))
            for (int x = 0; x < blocks_; ++x) home_.p[x] = s.home(n, x);
    }
    constexpr int peak() {
        int most = 0;
        for (int rank = 0; rank < n_; ++rank) {
            const int here = peak_at(rank);
            if (here > most) most = here;
        }
        return most;
    }

private:
    constexpr int peak_at(int rank) {
        begin_.fill(none);
        change_.fill(0);
        const int ports = s_.ports(n_);
        for (int round = 0; round < rounds_; ++round)
            for (const bool receiving : {false, true})
                for (int port = 0; port < ports; ++port) {
                    const step st = s_.at(rank, n_, round, port);
                    if ((receiving ? st.recv.peer : st.send.peer) == none) continue;
                    const block_set& b = receiving ? st.recv.blocks : st.send.blocks;
                    const long count = size_of(b);
                    list_.need(count);
                    expand(b, list_.p);
                    for (long j = 0; j < count; ++j)
                        if (receiving)
                            arrives(rank, list_.p[j], round, st.recv.action == action::copy);
                        else if (begin_.p[list_.p[j]] != none)
                            last_.p[list_.p[j]] = round;
                }
        for (int x = 0; x < slots_; ++x) ends(x);
        int live = 0, most = 0;
        for (int round = 0; round <= rounds_; ++round)
            if ((live += change_.p[round]) > most) most = live;
        return most;
    }
    constexpr void arrives(int rank, int slot, int round, bool replaces) {
        if (is_result(s_, n_, rank, slot, blocks_, home_.p[slot])) return;
        if (replaces) ends(slot);
        if (begin_.p[slot] != none) return;
        begin_.p[slot] = round;
        last_.p[slot] = none;
    }
    // What never goes on (or went on before it came) needs no room.
    constexpr void ends(int slot) {
        if (begin_.p[slot] != none && last_.p[slot] != none) {
            ++change_.p[begin_.p[slot]];
            --change_.p[last_.p[slot] + 1];
        }
        begin_.p[slot] = none;
    }

    const schedule_reader& s_;
    const int n_, rounds_, blocks_, slots_;
    buffer<int> home_, begin_, last_, change_, list_;
};

constexpr cost cost_of(const schedule_reader& s, int n) {
    cost c = traffic(s, n);
    if (s.kind() != collective::barrier) c.scratch = liveness(s, n).peak();
    return c;
}

}  // namespace detail

/// The cost of s in a group of n, which s must support. O(n · rounds · ports) calls of at(), twice, and once through
/// the blocks.
template <class S>
constexpr cost cost_of(const S& s, int n) {
    if constexpr (detail::expect_readable<S>())
        return detail::cost_of(detail::reader_of<S>(s), n);
    else
        return {};
}
template <class S>
constexpr cost cost_of(int n) {
    return cost_of(S{}, n);
}

/// The same without `scratch` (0): what a prediction of time needs.
template <class S>
constexpr cost traffic_of(const S& s, int n) {
    return detail::traffic(detail::reader_of<S>(s), n);
}

}  // namespace colls::inline v1
