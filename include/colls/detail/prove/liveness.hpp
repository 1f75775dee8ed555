// How many partial results a rank holds at a time: cost::scratch.
// IWYU pragma: private, include <colls/cost.hpp>
#pragma once

#include <colls/detail/prove/reader.hpp>

#include <initializer_list>

namespace colls::inline v1::detail {

/// Whether a slot of a rank is part of its result: what arrives there needs no memory of its own.
constexpr bool is_result(const schedule_reader& s, int n, int rank, int slot, int blocks, int home) {
    if (slot >= blocks) return false;
    const collective_traits& t = traits_of(s.kind());
    if (t.out_at_root) return rank == s.root(n);
    return t.out != content::own_block || home == rank;
}

/// Finds from which round to which each slot of a rank holds a partial result, and how many do at a time.
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

}  // namespace colls::inline v1::detail
