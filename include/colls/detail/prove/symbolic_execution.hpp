// Symbolic execution of a schedule: instead of data, each slot of each rank holds the set of ranks whose contributions
// it combines (a bit mask), and the block that they are contributions to (a label).
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/detail/prove/problem.hpp>
#include <colls/schedule.hpp>
#include <colls/verify/fold_properties.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

/// The expression by which a slot's value was computed from the contributions of ranks: a tree, whose leaves are ranks,
/// and each inner node is one fold, with its operands in their order. A fold of k operands is one node, not k - 1
/// nested ones: types that accumulate in float are rounded once a fold.
struct expression {
    std::uint64_t hash = 0;  ///< of the tree
    int lo = 0, hi = none;   ///< ranks of its first and last leaf; hi = none: leaves are not in ascending rank order
    int depth = 0;           ///< folds on the longest path from a leaf to the root
};

constexpr std::uint64_t mixed(std::uint64_t h, std::uint64_t more) {
    h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u + (more ^ (more >> 32)) * 0x94D049BB133111EBu;
    return h ^ (h >> 31);
}
constexpr expression leaf(int rank) {
    return {(static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15u, rank, rank, 0};
}
/// A fold is made of its first operand, further ones, and folded() at the end.
constexpr expression first_operand(const expression& e) { return {mixed(1, e.hash), e.lo, e.hi, e.depth}; }
constexpr expression with_operand(const expression& node, const expression& e) {
    return {mixed(node.hash, e.hash), node.lo, node.hi != none && e.hi != none && node.hi < e.lo ? e.hi : none,
        e.depth > node.depth ? e.depth : node.depth};
}
constexpr expression folded(const expression& node) { return {mixed(node.hash, 2), node.lo, node.hi, node.depth + 1}; }

/// One fold of the ranks from `first` to `end` - 1.
constexpr expression single_fold_of(int first, int end) {
    if (end - first == 1) return leaf(first);
    expression node = first_operand(leaf(first));
    for (int r = first + 1; r < end; ++r) node = with_operand(node, leaf(r));
    return folded(node);
}

/// What one rank does on one port in one round. Its blocks are expanded into lists of the whole round (or trace).
struct move {
    int to = none, from = none;
    int sent = 0, received = 0;         // number of blocks
    long sent_at = 0, received_at = 0;  // where they begin in the lists
    bool reduces = false;
};

/// The state of slots in a round, and what each received block does to it: the same for one rank and for all. State i
/// is that of a slot; j counts the blocks that are sent in the round.
class execution {
protected:
    constexpr execution(const schedule_reader& s, int n) : p_(s, n), barrier_(p_.kind == collective::barrier) {
        words_ = (n + 63) / 64;
    }

    [[gnu::cold]] [[gnu::noinline]] constexpr bool fail(
        fault f, int rank, int port, int block, int peer = none, int number = none, int source = none) {
        p_.found(f, rank, block, number);
        p_.report_.round = round_;
        p_.report_.port = port;
        p_.report_.peer = peer;
        p_.report_.source = source;
        return false;
    }

    /// Law 1 for one transfer: everything that it names exists. Appends its blocks to a list.
    [[gnu::noinline]] constexpr bool read_set(
        const block_set& named, int rank, int port, int peer, buffer<int>& list, long& size) {
        if (peer < 0 || peer >= p_.n) return fail(fault::peer, rank, port, none, peer);
        if (barrier_ && (!named.empty() || named.count < 0)) return fail(fault::barrier_blocks, rank, port, none, peer);
        const block_set& b = barrier_ ? heard_ : named;
        if ((!single(b) || b.modulus < 0) && !well_formed(b, p_.slots))
            return fail(fault::block_set, rank, port, none, peer, p_.slots);
        if (b.empty()) return true;
        const long from = size;
        size += single(b) ? 1 : b.size();
        list.need(size, from);
        int* const x = list.p;
        expand(b, x + from);
        for (long j = from; j < size; ++j)
            if (x[j] < 0 || x[j] >= p_.slots) return fail(fault::block, rank, port, x[j], peer, p_.slots);
        return true;
    }
    /// rank_ copies sent block j, block x of peer_, into its slot y, whose state is i.
    constexpr bool copy_block(long i, long j, int y, int x) {
        if (copied_in_.p[i] == round_ + 1) return fail(fault::copied_twice, rank_, port_, y, peer_, x);
        copied_in_.p[i] = round_ + 1;
        if (label_.p[i] == vacant && y < p_.blocks) return true;
        label_.p[i] = staged_label_.p[j];
        for (long w = 0; w < words_; ++w) masks_.p[i * words_ + w] = staged_masks_.p[j * words_ + w];
        return true;
    }
    /// Laws 3 and 3b: contributions to one block, none of them twice. Their order is checked by expressions alone.
    constexpr bool reduce_block(long i, long j, int y, int x) {
        const int mine = label_.p[i];
        if (mine == vacant && y < p_.blocks) return true;
        if (mine == none) return fail(fault::reduces_into_undefined, rank_, port_, y, peer_, x);
        if (mine != staged_label_.p[j]) {
            fail(fault::mixed, rank_, port_, y, peer_, x);
            if (x == y && staged_label_.p[j] >= 0) p_.report_.held = staged_label_.p[j];
            return false;
        }
        for (long w = 0; w < words_; ++w) {
            const std::uint64_t had = masks_.p[i * words_ + w], more = staged_masks_.p[j * words_ + w];
            if ((had & more) && !barrier_)
                return fail(
                    fault::twice, rank_, port_, y, peer_, x, static_cast<int>(w) * 64 + std::countr_zero(had & more));
            masks_.p[i * words_ + w] = had | more;
        }
        return true;
    }
    /// Law 4 for one slot.
    [[gnu::noinline]] constexpr bool holds(long i, int r, int slot, const wanted& w) {
        if (label_.p[i] < 0) return fail(fault::holds_nothing, r, none, slot);
        // In a redistribution the label says all: no schedule of one combines contributions.
        if (const int off = first_difference(masks_.p + i * words_, words_, w);
            off >= 0 && p_.kind != collective::redistribute)
            return fail(lacking(p_.kind, off, w), r, none, barrier_ ? none : slot, none, none, off);
        if (label_.p[i] == w.label) return true;
        fail(fault::holds_other, r, none, slot);
        p_.report_.held = p_.kind == collective::all_to_all ? label_.p[i] / p_.blocks : label_.p[i];
        return false;
    }

    problem p_;
    const bool barrier_;
    const block_set heard_ = block(0);  // stands for the ranks that the sender of a barrier's message depends on
    long words_ = 1;
    int round_ = none, rank_ = 0, port_ = none, peer_ = none;  // of what is received
    buffer<int> label_, copied_in_;
    buffer<std::uint64_t> masks_;
    buffer<int> staged_label_;  // contents of the blocks sent in the round
    buffer<std::uint64_t> staged_masks_;
};

/// Executes a schedule for every rank and checks the laws of verify.hpp. With `ordered` it also computes expressions.
class symbolic_execution : execution {
public:
    constexpr symbolic_execution(const schedule_reader& s, int n, bool ordered = false)
        : execution(s, n), ordered_(ordered && reduces(p_.kind)) {}

    [[gnu::cold]] [[gnu::noinline]] constexpr report run() {
        if (!p_.report_.ok()) return p_.report_;
        p_.report_.n = p_.n;
        moves_.need(static_cast<long>(p_.n) * p_.ports);
        if (set_initial_state() && run_rounds()) check_result();
        return p_.report_;
    }

    // Valid after run() has found no fault; for collectives that reduce, with `ordered` only.
    constexpr int staged_rounds() const { return staged_rounds_; }
    constexpr bool slots_keep_their_blocks() const { return fixed_; }
    /// Every result combines its contributions in ascending rank order.
    [[gnu::cold]] [[gnu::noinline]] constexpr bool in_rank_order() const {
        if (!reduces(p_.kind)) return true;
        for (int r = 0; r < p_.n; ++r)
            for (int slot = 0; slot < p_.blocks; ++slot)
                if (p_.expected(r, slot).label != none && value_.p[at(r, slot)].hi == none) return false;
        return true;
    }
    /// All ranks that hold one result computed it by the same expression.
    [[gnu::cold]] [[gnu::noinline]] constexpr bool same_on_every_rank() const {
        if (!reduces(p_.kind) || is_scan(p_.kind)) return true;
        for (int slot = 0; slot < p_.blocks; ++slot) {
            int first = none;
            for (int r = 0; r < p_.n; ++r) {
                if (p_.expected(r, slot).label == none) continue;
                if (first == none) first = r;
                if (value_.p[at(r, slot)].hash != value_.p[at(first, slot)].hash) return false;
            }
        }
        return true;
    }
    /// What the expressions of all results have in common.
    [[gnu::cold]] [[gnu::noinline]] constexpr fold_properties folds() const {
        fold_properties f{.one_expression = true, .single_fold = true};
        if (!reduces(p_.kind)) return f;
        std::uint64_t first = 0, single = 0;  // of the rank, or of all ranks
        wanted last{none, none, none};
        bool any = false;
        for (int r = 0; r < p_.n; ++r) {
            if (is_scan(p_.kind)) any = false;
            for (int slot = 0; slot < p_.blocks; ++slot) {
                const wanted w = p_.expected(r, slot);
                if (w.label == none) continue;
                const expression& e = value_.p[at(r, slot)];
                if (w.lo != last.lo || w.hi != last.hi) single = single_fold_of(w.lo, w.hi).hash;
                last = w;
                if (!any) f.hash = mixed(f.hash, first = e.hash);
                any = true;
                f.one_expression = f.one_expression && e.hash == first;
                f.single_fold = f.single_fold && e.hash == single;
                f.depth = e.depth > f.depth ? e.depth : f.depth;
            }
        }
        if (!f.one_expression) f.hash = 0;
        return f;
    }

private:
    constexpr long at(int rank, int slot) const { return static_cast<long>(rank) * p_.slots + slot; }
    constexpr long at_move(int rank, int port) const { return static_cast<long>(rank) * p_.ports + port; }

    [[gnu::cold]] [[gnu::noinline]] constexpr bool set_initial_state() {
        const long all = static_cast<long>(p_.n) * p_.slots;
        label_.need(all);
        masks_.need(all * words_);
        sent_in_.need(all);
        copied_in_.need(all);
        if (ordered_) value_.need(all), node_.need(p_.slots), opened_in_.need(p_.slots), own_in_.need(p_.slots);
        buffer<int> exchanged(p_.slots), count(p_.n);
        for (int r = 0; r < p_.n; ++r) {
            if (p_.kind == collective::all_to_all && !p_.exchange(r, false, exchanged.p, count.p)) return false;
            for (int slot = 0; slot < p_.slots; ++slot) {
                const long i = at(r, slot);
                const int l = p_.initial(r, slot);
                label_.p[i] = l >= 0 && p_.kind == collective::all_to_all ? exchanged.p[slot] : l;
                if (l < 0) continue;
                const int of = p_.contributor(r, l);
                masks_.p[i * words_ + of / 64] = std::uint64_t{1} << of % 64;
                if (ordered_) value_.p[i] = leaf(r);
            }
        }
        return true;
    }

    [[gnu::cold]] [[gnu::noinline]] constexpr bool run_rounds() {
        for (round_ = 0; round_ < p_.rounds; ++round_)
            if (!read_round() || !match_round() || !send_round() || !receive_round()) return false;
        round_ = none;
        return true;
    }

    // Law 1: everything that the round names exists. Checked before any of it is used.
    [[gnu::noinline]] constexpr bool read_round() {
        long sent = 0, received = 0, i = 0;
        for (int r = 0; r < p_.n; ++r)
            for (int port = 0; port < p_.ports; ++port, ++i) {
                const step st = p_.s.at(r, p_.n, round_, port);
                move& m = moves_.p[i];
                m = {st.send.peer, st.recv.peer, 0, 0, sent, received, barrier_ || st.recv.action == action::reduce};
                if (m.to != none) {
                    if (!read_set(st.send.blocks, r, port, m.to, sent_blocks_, sent)) return false;
                    m.sent = static_cast<int>(sent - m.sent_at);
                }
                if (m.from != none) {
                    if (!read_set(st.recv.blocks, r, port, m.from, received_blocks_, received)) return false;
                    m.received = static_cast<int>(received - m.received_at);
                }
            }
        sent_ = sent;
        return true;
    }
    // Law 2: each send meets a receive of as many blocks, on the same port of its peer.
    [[gnu::noinline]] constexpr bool match_round() {
        const move* m = moves_.p;
        for (int r = 0; r < p_.n; ++r)
            for (int port = 0; port < p_.ports; ++port, ++m) {
                if (m->to != none)
                    if (const int from = moves_.p[at_move(m->to, port)].from; from != r)
                        return fail(fault::send_unmatched, r, port, none, m->to, none, from);
                if (m->from == none) continue;
                const move& there = moves_.p[at_move(m->from, port)];
                if (there.to != r) return fail(fault::receive_unmatched, r, port, none, m->from, none, there.to);
                if (there.sent != m->received) return fail(fault::sizes, r, port, m->received, m->from, there.sent);
            }
        return true;
    }

    // All sends read the state at the start of the round: a copy of it is staged for the receives.
    [[gnu::noinline]] constexpr bool send_round() {
        staged_label_.need(sent_);
        staged_masks_.need(sent_ * words_);
        if (ordered_) staged_value_.need(sent_);
        const move* m = moves_.p;
        for (int r = 0; r < p_.n; ++r)
            for (int port = 0; port < p_.ports; ++port, ++m)
                for (long j = m->sent_at; j < m->sent_at + m->sent; ++j) {
                    const long i = at(r, sent_blocks_.p[j]);
                    if ((staged_label_.p[j] = label_.p[i]) == none)
                        return fail(fault::sends_undefined, r, port, sent_blocks_.p[j], m->to);
                    for (long w = 0; w < words_; ++w) staged_masks_.p[j * words_ + w] = masks_.p[i * words_ + w];
                    if (ordered_) staged_value_.p[j] = value_.p[i];
                    sent_in_.p[i] = round_ + 1;
                }
        return true;
    }

    // Copies first, then reductions.
    [[gnu::noinline]] constexpr bool receive_round() {
        bool staged = false;
        const move* m = moves_.p;
        for (int r = 0; r < p_.n; ++r) {
            bool reduction = false;
            for (int port = 0; port < p_.ports; ++port, ++m)
                if (m->received > 0) {
                    if (m->reduces)
                        reduction = true;
                    else if (!receive(r, port, *m, staged))
                        return false;
                }
            if (!reduction) continue;
            m -= p_.ports;
            for (int port = 0; port < p_.ports; ++port, ++m)
                if (m->received > 0 && m->reduces && !receive(r, port, *m, staged)) return false;
            if (ordered_) fold(r);
        }
        staged_rounds_ += staged;
        return true;
    }

    [[gnu::noinline]] constexpr bool receive(int r, int port, const move& m, bool& staged) {
        rank_ = r, port_ = port, peer_ = m.from;
        long j = moves_.p[at_move(m.from, port)].sent_at;
        for (long k = m.received_at; k < m.received_at + m.received; ++k, ++j) {
            const int y = received_blocks_.p[k];
            const long i = at(r, y);
            if (sent_in_.p[i] == round_ + 1 && !barrier_) staged = true;
            const bool counts = label_.p[i] != vacant || y >= p_.blocks;
            if (!(m.reduces ? reduce_block(i, j, y, sent_blocks_.p[j]) : copy_block(i, j, y, sent_blocks_.p[j])))
                return false;
            if (m.reduces || !counts) continue;
            if (label_.p[i] != y && y < p_.blocks) fixed_ = false;
            if (ordered_) value_.p[i] = staged_value_.p[j];
        }
        return true;
    }

    // The order of a reduction: operands from lower ranks, a local operand, the own value, operands from higher ranks.
    [[gnu::cold]] [[gnu::noinline]] constexpr void fold(int r) {
        by_peer_.need(p_.ports);
        int reducing = 0;  // ports in by_peer_, in the order of the ranks received from
        for (int port = 0; port < p_.ports; ++port) {
            const move& m = moves_.p[at_move(r, port)];
            if (!m.reduces || m.received == 0) continue;
            by_peer_.p[reducing++] = port;
        }
        // Shell's sort: by insertion alone a round of n - 1 ports would take n^2 steps. Equal ranks by their ports.
        int gap = 1;
        while (gap < reducing / 3) gap = 3 * gap + 1;
        for (; gap > 0; gap /= 3)
            for (int i = gap; i < reducing; ++i) {
                const int port = by_peer_.p[i], from = moves_.p[at_move(r, port)].from;
                int j = i;
                for (; j >= gap; j -= gap) {
                    const int other = by_peer_.p[j - gap], its = moves_.p[at_move(r, other)].from;
                    if (its < from || (its == from && other < port)) break;
                    by_peer_.p[j] = other;
                }
                by_peer_.p[j] = port;
            }
        ++fold_;
        int k = 0;
        for (; k < reducing && moves_.p[at_move(r, by_peer_.p[k])].from <= r; ++k) add_operands(r, by_peer_.p[k]);
        for (int i = 0; i < reducing; ++i) add_own(r, by_peer_.p[i]);
        for (; k < reducing; ++k) add_operands(r, by_peer_.p[k]);
        for (int i = 0; i < reducing; ++i) close(r, by_peer_.p[i]);
    }
    [[gnu::cold]] [[gnu::noinline]] constexpr void add_operand(int slot, const expression& e) {
        node_.p[slot] = opened_in_.p[slot] == fold_ ? with_operand(node_.p[slot], e) : first_operand(e);
        opened_in_.p[slot] = fold_;
    }
    [[gnu::cold]] [[gnu::noinline]] constexpr void add_operands(int r, int port) {
        const move& m = moves_.p[at_move(r, port)];
        const long from = moves_.p[at_move(m.from, port)].sent_at;
        for (int j = 0; j < m.received; ++j)
            add_operand(received_blocks_.p[m.received_at + j], staged_value_.p[from + j]);
    }
    [[gnu::cold]] [[gnu::noinline]] constexpr void add_own(int r, int port) {
        const move& m = moves_.p[at_move(r, port)];
        for (int j = 0; j < m.received; ++j) {
            const int slot = received_blocks_.p[m.received_at + j];
            if (own_in_.p[slot] == fold_) continue;
            own_in_.p[slot] = fold_;
            add_operand(slot, value_.p[at(r, slot)]);
        }
    }
    [[gnu::cold]] [[gnu::noinline]] constexpr void close(int r, int port) {
        const move& m = moves_.p[at_move(r, port)];
        for (int j = 0; j < m.received; ++j) {
            const int slot = received_blocks_.p[m.received_at + j];
            if (opened_in_.p[slot] == fold_) value_.p[at(r, slot)] = folded(node_.p[slot]);
            opened_in_.p[slot] = 0;
        }
    }

    // Law 4: the result of the collective.
    [[gnu::noinline]] constexpr void check_result() {
        buffer<int> exchanged(p_.slots), count(p_.n);
        for (int r = 0; r < p_.n; ++r) {
            const bool swap = p_.kind == collective::all_to_all;
            if (swap && !p_.exchange(r, true, exchanged.p, count.p)) return;
            for (int slot = 0; slot < p_.blocks; ++slot) {
                wanted w = p_.expected(r, slot);
                if (swap) {
                    w.lo = exchanged.p[slot] / p_.blocks;
                    w.hi = w.lo + 1;
                    w.label = r * p_.blocks + exchanged.p[slot] % p_.blocks;
                }
                if (w.label != none && !holds(at(r, slot), r, slot, w)) return;
            }
        }
    }

    const bool ordered_;
    long sent_ = 0;  // blocks sent in the round, by all ranks
    int staged_rounds_ = 0;
    bool fixed_ = true;    // no block has been copied to a slot of another number
    buffer<int> sent_in_;  // per (rank, slot), as states are
    buffer<expression> value_;
    buffer<move> moves_;                         // per (rank, port)
    buffer<int> sent_blocks_, received_blocks_;  // of the round, by rank and port
    buffer<expression> staged_value_;
    buffer<int> by_peer_;
    buffer<expression> node_;         // per slot: the fold that is being made
    buffer<int> opened_in_, own_in_;  // per slot: the fold in which it has an operand, and the own value
    int fold_ = 0;                    // folds counted over ranks and rounds
};

}  // namespace colls::inline v1::detail
