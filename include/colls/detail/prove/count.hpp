// Counting what a schedule costs, by asking it for every step.
// IWYU pragma: private, include <colls/cost.hpp>
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/prove/reader.hpp>
#include <colls/extend/host_map.hpp>

#include <initializer_list>

namespace colls::inline v1::detail {

/// Whether a slot of a rank is part of its result: what arrives there needs no memory of its own.
constexpr bool is_result(const schedule_reader& s, int n, int rank, int slot, int blocks, int home) {
    if (slot >= blocks) return false;
    const collective_traits& t = traits_of(s.kind());
    if (t.out_at_root) return rank == s.root(n);
    return t.out != content::own_block || home == rank;
}

/// Finds from which round to which each slot of a rank holds a partial result, and how many do at a time:
/// cost::scratch.
class liveness {
public:
    constexpr liveness(const schedule_reader& s, int n) : s_(s), n_(n) {
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
                    if (!well_formed(b, slots_)) continue;
                    const long count = size_of(b);
                    list_.need(count);
                    expand(b, list_.p);
                    for (long j = 0; j < count; ++j)
                        if (const int slot = list_.p[j]; !exists(slot, slots_))
                            continue;
                        else if (receiving)
                            receive(rank, slot, round, st.recv.action == action::copy);
                        else if (begin_.p[slot] != none)
                            last_.p[slot] = round;
                }
        for (int x = 0; x < slots_; ++x) end(x);
        int live = 0, most = 0;
        for (int round = 0; round <= rounds_; ++round)
            if ((live += change_.p[round]) > most) most = live;
        return most;
    }
    constexpr void receive(int rank, int slot, int round, bool replaces) {
        if (is_result(s_, n_, rank, slot, blocks_, home_.p[slot])) return;
        if (replaces) end(slot);
        if (begin_.p[slot] != none) return;
        begin_.p[slot] = round;
        last_.p[slot] = none;
    }
    // What is never sent on after it arrived needs no memory.
    constexpr void end(int slot) {
        if (begin_.p[slot] != none && last_.p[slot] != none) {
            ++change_.p[begin_.p[slot]];
            --change_.p[last_.p[slot] + 1];
        }
        begin_.p[slot] = none;
    }

    const schedule_reader& s_;
    const int n_, rounds_ = s_.rounds(n_), blocks_ = s_.blocks(n_), slots_ = blocks_ + s_.scratch(n_);
    buffer<int> home_{slots_}, begin_{slots_}, last_{slots_}, change_{rounds_ + 2}, list_;
};

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

/// The widest round: how many transfers a rank takes part in at a time, and how many blocks they carry.
struct width {
    int transfers = 0;
    long blocks = 0;
};

/// All of a cost but `scratch`. Where only some messages are counted, `rounds` are those in which one of them is sent.
/// `period`: if not 0, it divides n, rank r + period does the same as rank r with ranks and counted messages moved on
/// by as much, and only ranks below it are asked.
/// What a wrong schedule sends to no rank is not counted.
constexpr cost traffic(
    const schedule_reader& s, int n, counted_messages counts = {}, int period = 0, width* widest = nullptr) {
    const int rounds = s.rounds(n), ranks = period > 0 ? period : n;
    cost c{.rounds = counts.all() ? rounds : 0, .blocks = s.blocks(n), .ports = s.ports(n)};
    buffer<long> sent(ranks), received(ranks), reduced(ranks);
    buffer<int> reduced_from(ranks);  // the first round in which the rank reduces, + 1
    for (int round = 0; round < rounds; ++round) {
        long most_sent = 0, most_received = 0, most_reduced = 0, most_messages = 0;
        for (int r = 0; r < ranks; ++r) {
            long out = 0, into = 0, fold = 0;
            int sends = 0, messages = 0;
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
            for (const int k : {sends, messages - sends})
                if (widest && k > widest->transfers) widest->transfers = k;
            for (const long k : {out, into})
                if (widest && k > widest->blocks) widest->blocks = k;
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
