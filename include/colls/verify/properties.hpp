// What follows from a schedule beyond being right: derived by the same symbolic execution, never declared.
#pragma once

#include <colls/cost.hpp>
#include <colls/detail/prove/symmetry.hpp>

#include <utility>

namespace colls::inline v1 {

struct properties {
    /// Contributions are combined in ascending rank order everywhere: right for operators that do not commute.
    bool order_preserving = false;
    /// All ranks that hold one result computed it by the same expression: bit for bit the same.
    bool rank_identical = false;
    /// No rank sends or receives more blocks than the busiest rank must in any schedule of this collective.
    bool volume_optimal = false;
    /// No schedule with as many transfers a round, and as many blocks in each, has fewer rounds. (An all_reduce that
    /// is volume-optimal is held against twice the logarithm: reducing and spreading cannot then overlap.)
    bool round_optimal = false;
    /// Every rank does what rank 0 does, moved along with the rank.
    bool symmetric = false;
    /// Every block always lies in the slot of its own number: blocks may differ in size without staging.
    bool keeps_slots = false;
    /// Rounds in which some rank receives into a slot that it also sends: they need a copy aside (law: hazards).
    int staged_rounds = 0;
};

namespace detail {

/// Blocks that the busiest rank must send or receive.
constexpr long least_volume(collective c, long blocks, int n) {
    if (n == 1) return 0;
    switch (c) {
        case collective::barrier:
            return 0;
        case collective::scatter:
        case collective::gather:
        case collective::all_gather:
        case collective::reduce_scatter:
        case collective::all_to_all:
            return (blocks * (n - 1) + n - 1) / n;
        case collective::all_reduce:
            return (2 * blocks * (n - 1) + n - 1) / n;
        default:
            return blocks;
    }
}

/// The widest round: how many transfers a rank takes part in at a time, and how many blocks they carry.
struct width {
    int transfers = 0;
    long blocks = 0;
};
constexpr width widest(const schedule_reader& s, int n) {
    width w;
    const int rounds = s.rounds(n), ports = s.ports(n);
    for (int r = 0; r < n; ++r)
        for (int round = 0; round < rounds; ++round) {
            int sends = 0, receives = 0;
            long out = 0, in = 0;
            for (int port = 0; port < ports; ++port) {
                const step st = s.at(r, n, round, port);
                if (st.send.peer != none && st.send.peer != r) ++sends, out += size_of(st.send.blocks);
                if (st.recv.peer != none && st.recv.peer != r) ++receives, in += size_of(st.recv.blocks);
            }
            for (const int k : {sends, receives})
                if (k > w.transfers) w.transfers = k;
            for (const long k : {out, in})
                if (k > w.blocks) w.blocks = k;
        }
    return w;
}

/// Rounds that any schedule needs whose ranks have `w.transfers` sends and receives a round.
constexpr int least_rounds(collective c, int blocks, int n, const width& w, bool volume_optimal) {
    if (n == 1) return 0;
    int spread = 0;  // least k with (transfers + 1)^k >= n: how long the control messages of one rank travels
    for (long reached = 1; reached < n; reached *= w.transfers + 1) ++spread;
    if (c == collective::all_reduce && volume_optimal && w.transfers == 1) return 2 * spread;
    if (c != collective::broadcast && c != collective::reduce) return spread;
    // The root must first send (last receive) all the blocks, w.blocks a round.
    return w.blocks == 0 ? spread : static_cast<int>((blocks + w.blocks - 1) / w.blocks) - 1 + spread;
}

constexpr properties properties_of(const schedule_reader& s, int n) {
    symbolic_execution e(s, n, true);
    if (!e.run().ok()) return {};
    const cost c = traffic(s, n);
    const long busiest = c.blocks_sent > c.blocks_received ? c.blocks_sent : c.blocks_received;
    const bool least = busiest <= least_volume(s.kind(), c.blocks, n);
    return {.order_preserving = e.in_rank_order(),
        .rank_identical = e.same_on_every_rank(),
        .volume_optimal = least,
        .round_optimal = c.rounds <= least_rounds(s.kind(), c.blocks, n, widest(s, n), least),
        .symmetric = symmetric_execution(s, n).applies(),
        .keeps_slots = e.slots_keep_their_blocks(),
        .staged_rounds = e.staged_rounds()};
}

constexpr bool keeps_order(const schedule_reader& s, int n) {
    if (!s.supports(n)) return true;
    symbolic_execution e(s, n, true);
    return e.run().ok() && e.in_rank_order();
}
template <class S>
constexpr report order_at(const S& s, int n) {
    return {.law = keeps_order(reader_of<S>(s), n) ? law::none : law::exactly_once, .n = n};
}
template <class S, int n>
inline constexpr report order_of = order_at(S{}, n);

template <class S, class N>
inline constexpr bool order_kept = false;
template <class S, int... i>
inline constexpr bool order_kept<S, std::integer_sequence<int, i...>> = (order_of<S, i + 2>.ok() && ...);

}  // namespace detail

/// The derived properties of s in a group of n; all false where s is not right. constexpr; plays every rank.
template <class S>
constexpr properties properties_of(const S& s, int n) {
    if constexpr (detail::expect_readable<S>())
        return detail::properties_of(detail::reader_of<S>(s), n);
    else
        return {};
}
template <class S>
constexpr properties properties_of(int n) {
    return properties_of(S{}, n);
}

/// S combines in rank order at every group size that it supports from 2 to 8: what an operator that does not commute
/// asks of a schedule, at compile time.
template <class S>
inline constexpr bool order_preserving = detail::order_kept<S, std::make_integer_sequence<int, 7>>;

/// Law 6: `rank` receives in `round` into a slot that it sends in the same round, so that one of the two needs a copy
/// aside. O(blocks moved).
template <class S>
constexpr bool overwrites_sent(const S& s, int rank, int n, int round) {
    detail::buffer<bool> sent(blocks_of(s, n) + scratch_of(s, n));
    for (const bool receiving : {false, true})
        for (int port = 0; port < ports_of(s, n); ++port) {
            const step st = step_of(s, rank, n, round, port);
            if ((receiving ? st.recv.peer : st.send.peer) == none) continue;
            const block_set& b = receiving ? st.recv.blocks : st.send.blocks;
            for (int j = 0; j < detail::size_of(b); ++j) {
                if (receiving && sent.p[b[j]]) return true;
                if (!receiving) sent.p[b[j]] = true;
            }
        }
    return false;
}

}  // namespace colls::inline v1
