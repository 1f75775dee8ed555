// Every schedule that the tests hand over: families, combinations, and schedules of a user's own.
#pragma once

#include "kinds.hpp"
#include "reference.hpp"

#include <colls/colls.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace support {

// ---- a user's own schedules ----

/// The example of the documentation.
struct pairwise_reduce_scatter {
    static constexpr colls::collective implements = colls::collective::reduce_scatter;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr colls::step at(int rank, int n, int round) {
        const int to = (rank + round + 1) % n, from = (rank - round - 1 + n) % n;
        return {.send = {to, colls::block(to)}, .recv = {from, colls::block(rank), colls::action::reduce}};
    }
};
/// A broadcast down a chain, in as many parts as the value says: a schedule with state.
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
/// Everyone hands everything to the next rank, which adds its own on the right: an all_reduce that keeps the order.
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
            const int back = 2 * (n - 1) - round;  // n - 1 ... 1 hands down
            if (rank == back) s.send = {rank - 1, colls::block(0)};
            if (rank == back - 1) s.recv = {rank + 1, colls::block(0)};
        }
        return s;
    }
};
/// all_gather by neighbour exchange, even groups only: the home of a slot is its number, one pair at a time.
struct neighbour_exchange {
    static constexpr colls::collective implements = colls::collective::all_gather;
    static constexpr bool supports(int n) { return n % 2 == 0; }
    static constexpr int rounds(int n) { return n / 2; }
    static constexpr colls::step at(int rank, int n, int round) {
        const auto partner = [&](int r, int k) { return colls::mod((r % 2 == 0) == (k % 2 == 0) ? r + 1 : r - 1, n); };
        const int peer = partner(rank, round);
        if (round == 0) return {.send = {peer, colls::block(rank)}, .recv = {peer, colls::block(peer)}};
        // The pair that was learnt last goes on; pairs are named by their even member.
        const auto learnt = [&](int r, int k) {  // pair that r got in round k (its own pair in round 0)
            const int own = r - r % 2, sign = r % 2 == 0 ? -1 : 1;
            int at = own, step = sign;
            for (int i = 1; i <= k; ++i) {
                at = colls::mod(own + step * 2 * ((i + 1) / 2), n);
                step = -step;
            }
            return at;
        };
        return {.send = {peer, colls::block_range(learnt(rank, round - 1), 2)},
            .recv = {peer, colls::block_range(learnt(peer, round - 1), 2)}};
    }
};

// ---- the list ----

struct row {
    std::string name;
    what collective;
    colls::any_schedule schedule;

    bool supports(int n) const { return schedule.supports(n); }
};

/// Does the schedule combine contributions in rank order? Found by running it serially on intervals of ranks.
inline bool keeps_order(const row& row, int n) {
    const colls::any_schedule& s = row.schedule;
    const int rounds = s.rounds(n), ports = s.ports(n), slots = s.blocks(n) + s.scratch(n);
    struct span {
        int first, last;  // ranks [first, last]; first > last: nothing; spoilt: -1, -1
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
            std::map<int, std::map<int, span>> arrived;  // slot -> place in the order -> operand
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
                    else  // a local operand goes on the left of the own value
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
            const what c = row.collective;
            if (c == what::reduce && r != s.root(n)) continue;
            if (c == what::reduce_scatter && s.home(n, b) != r) continue;
            if (c == what::exclusive_scan && r == 0) continue;
            const int last = c == what::inclusive_scan ? r : c == what::exclusive_scan ? r - 1 : n - 1;
            if (!right(r, b, 0, last)) return false;
        }
    return true;
}

namespace detail {
template <class F, std::size_t... I>
void add_all(std::vector<row>& rows, const std::string& name, const F& f, std::index_sequence<I...>) {
    const auto add = [&](auto index) {
        constexpr auto c = static_cast<colls::collective>(decltype(index)::value);
        if constexpr (colls::provides<F, c>)
            rows.push_back(
                {name, static_cast<what>(decltype(index)::value), colls::any_schedule(colls::schedule_of<c>(f))});
    };
    (add(std::integral_constant<std::size_t, I>{}), ...);
}
}  // namespace detail

/// Every collective that the family (or the schedule) provides.
template <class F>
void add(std::vector<row>& rows, const std::string& name, const F& f = F{}) {
    detail::add_all(rows, name, f, std::make_index_sequence<what_count>{});
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

/// All of them. Compiled once, in schedules.cpp.
const std::vector<row>& all_schedules();

}  // namespace support
