// The schedules that the tests run: families, combinations, and schedules of a user's own. Compiled once, in
// schedules.cpp, each behind two function pointers.
#pragma once

#include "kinds.hpp"
#include "reference.hpp"

#include <colls/algebra.hpp>
#include <colls/any_schedule.hpp>
#include <colls/schedules.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace support {

// ---- a user's own schedules ----

/// The example of the README.
struct pairwise_reduce_scatter {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
        return {.send = {to, colls::block(to)}, .recv = {from, colls::block(rank), colls::action::reduce}};
    }
};
/// A broadcast down a chain in `parts` blocks: a schedule with state.
struct chain_broadcast {
    static constexpr colls::collective implements = colls::collective::broadcast;
    int parts = 1;
    constexpr int blocks(int) const { return parts; }
    constexpr int rounds(int n) const { return n < 2 ? 0 : n - 2 + parts; }
    constexpr colls::step at(int rank, int n, int round) const {
        colls::step s;
        const int sent = round - rank, received = round - rank + 1;
        if (rank + 1 < n && sent >= 0 && sent < parts) s.send = {rank + 1, colls::block(sent)};
        if (rank > 0 && received >= 0 && received < parts) s.recv = {rank - 1, colls::block(received)};
        return s;
    }
};
/// Each rank sends its buffer to the next, which combines its own on the right: an all_reduce that keeps rank order.
struct relay_all_reduce {
    static constexpr colls::collective implements = colls::collective::all_reduce;
    static constexpr int blocks(int) { return 1; }
    static constexpr int rounds(int n) { return 2 * (n - 1); }
    static constexpr colls::step at(int rank, int n, int round) {
        colls::step s;
        if (round < n - 1) {
            if (rank == round) s.send = {rank + 1, colls::block(0)};
            if (rank == round + 1) s.recv = {rank - 1, colls::block(0), colls::action::reduce};
        } else {
            const int back = 2 * (n - 1) - round;  // ranks n - 1 ... 1 send the result down
            if (rank == back) s.send = {rank - 1, colls::block(0)};
            if (rank == back - 1) s.recv = {rank + 1, colls::block(0)};
        }
        return s;
    }
};
/// all_gather by neighbour exchange, for even groups: one own block, then pairs of blocks.
struct neighbour_exchange {
    static constexpr colls::collective implements = colls::collective::all_gather;
    static constexpr bool supports(int n) { return n % 2 == 0; }
    static constexpr int rounds(int n) { return n / 2; }
    static constexpr colls::step at(int rank, int n, int round) {
        const auto partner = [&](int r, int k) { return colls::mod((r % 2 == 0) == (k % 2 == 0) ? r + 1 : r - 1, n); };
        const int peer = partner(rank, round);
        if (round == 0) return {.send = {peer, colls::block(rank)}, .recv = {peer, colls::block(peer)}};
        // The pair received last is sent on. Pairs are named by their even member.
        const auto received = [&](int r, int k) {  // the pair that r receives in round k (its own pair in round 0)
            const int own = r - r % 2, sign = r % 2 == 0 ? -1 : 1;
            int at = own, step = sign;
            for (int i = 1; i <= k; ++i) {
                at = colls::mod(own + step * 2 * ((i + 1) / 2), n);
                step = -step;
            }
            return at;
        };
        return {.send = {peer, colls::block_range(received(rank, round - 1), 2)},
            .recv = {peer, colls::block_range(received(peer, round - 1), 2)}};
    }
};

// ---- the list ----

struct row {
    std::string name;
    verb collective;
    colls::any_schedule schedule;

    bool supports(int n) const { return schedule.supports(n); }
};

/// Whether the schedule combines contributions in rank order, found by running it on intervals of ranks.
inline bool keeps_order(const row& row, int n) {
    const colls::any_schedule& s = row.schedule;
    const int rounds = s.rounds(n), ports = s.ports(n), slots = s.blocks(n) + s.scratch(n);
    struct span {
        int first, last;  // ranks [first, last]; -1, -1: not an interval
    };
    const auto join = [](span a, span b) {
        return a.last + 1 == b.first && a.first >= 0 ? span{a.first, b.last} : span{-1, -1};
    };
    std::vector<std::vector<std::optional<span>>> now(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r) {
        now[static_cast<std::size_t>(r)].resize(static_cast<std::size_t>(slots));
        for (int b = 0; b < s.blocks(n); ++b)
            now[static_cast<std::size_t>(r)][static_cast<std::size_t>(b)] = span{r, r};
    }
    for (int k = 0; k < rounds; ++k) {
        auto next = now;
        for (int r = 0; r < n; ++r) {
            std::map<int, std::map<int, span>> arrived;  // slot -> position in the order -> operand
            auto& mine = next[static_cast<std::size_t>(r)];
            for (int p = 0; p < ports; ++p) {
                const colls::step st = s.at(r, n, k, p);
                if (st.recv.peer == colls::none) continue;
                const colls::step from = s.at(st.recv.peer, n, k, p);
                for (int i = 0; i < st.recv.blocks.size(); ++i) {
                    const auto slot = static_cast<std::size_t>(st.recv.blocks[i]);
                    const auto value =
                        now[static_cast<std::size_t>(st.recv.peer)][static_cast<std::size_t>(from.send.blocks[i])];
                    if (!value) continue;
                    if (st.recv.action == colls::action::copy)
                        mine[slot] = value;
                    else  // a local operand is on the left of the own value
                        arrived[st.recv.blocks[i]][2 * st.recv.peer] = *value;
                }
            }
            for (auto& [slot, parts] : arrived) {
                auto& own = mine[static_cast<std::size_t>(slot)];
                if (own) parts[2 * r + 1] = *own;
                std::optional<span> all;
                for (const auto& [place, part] : parts) all = all ? join(*all, part) : part;
                own = all;
            }
        }
        now = std::move(next);
    }
    const auto right = [&](int r, int b, int first, int last) {
        const auto& v = now[static_cast<std::size_t>(r)][static_cast<std::size_t>(b)];
        return v && v->first == first && v->last == last;
    };
    for (int r = 0; r < n; ++r)
        for (int b = 0; b < s.blocks(n); ++b) {
            const verb c = row.collective;
            if (c == verb::reduce && r != s.root(n)) continue;
            if (c == verb::reduce_scatter && s.home(n, b) != r) continue;
            if (c == verb::exclusive_scan && r == 0) continue;
            const int last = c == verb::inclusive_scan ? r : c == verb::exclusive_scan ? r - 1 : n - 1;
            if (!right(r, b, 0, last)) return false;
        }
    return true;
}

/// Ranks in reverse.
struct backwards {
    static constexpr int role(int rank, int n) { return n - 1 - rank; }
    static constexpr int rank(int role, int n) { return n - 1 - role; }
};
/// Ranks in reverse, but for rank 0.
struct turned {
    static constexpr int role(int rank, int n) { return (n - rank) % n; }
    static constexpr int rank(int role, int n) { return (n - role) % n; }
};
/// Ranks moved on by three.
struct shifted {
    static constexpr int role(int rank, int n) { return (rank + 3) % n; }
    static constexpr int rank(int role, int n) { return colls::mod(role - 3, n); }
};

/// Every schedule: the families and one combination of each kind, then further combinations and a user's own.
const std::vector<row>& all_schedules();

struct named_schedule {
    std::string name;  ///< family and collective
    colls::any_schedule schedule;
};
/// The first part of all_schedules() alone, for tests that take long for each schedule.
const std::vector<named_schedule>& every_schedule();

}  // namespace support
