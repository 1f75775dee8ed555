// Symbolic execution of a schedule that is symmetric under translation: where every rank does what rank 0 does,
// translated by the rank, the execution of rank 0 proves the schedule, in n times less time and memory.
// IWYU pragma: private, include <colls/verify.hpp>
#pragma once

#include <colls/detail/prove/symbolic_execution.hpp>

namespace colls::inline v1::detail {

/// Finds the permutation sigma of the slots such that rank r + 1 does with slot sigma(x) what rank r does with slot x,
/// with peers greater by 1 (mod n): found from ranks 0 and 1, checked on all. Then executes rank 0.
class symmetric_execution : execution {
public:
    constexpr symmetric_execution(const schedule_reader& s, int n) : execution(s, n) {}

    /// True where the schedule is symmetric in this sense. O(n · (rounds · ports + blocks moved by a rank)) steps.
    [[gnu::cold]] [[gnu::noinline]] constexpr bool applies() {
        if (!p_.report_.ok() || p_.n < 2 || rooted(p_.kind) || is_scan(p_.kind) || p_.kind == collective::redistribute)
            return false;
        trace first, a, b;
        if (!record(0, first) || !record(0, a) || !record(1, b) || !find_sigma(a, b) || !states_follow()) return false;
        for (int r = 2; r <= p_.n; ++r) {
            trace& last = r % 2 == 0 ? b : a;
            trace& next = r % 2 == 0 ? a : b;
            if (r < p_.n && !record(r, next)) return false;
            if (!follows(last, r < p_.n ? next : first)) return false;
        }
        return true;
    }

    /// Checks the laws on rank 0. To be called after applies() has returned true.
    [[gnu::cold]] [[gnu::noinline]] constexpr report run() {
        p_.report_.n = p_.n;
        find_cycles();
        if (run_rounds()) check_result();
        return p_.report_;
    }

private:
    /// What one rank does: for each (round, port) a move, with peers relative to the rank, and the lists of blocks.
    struct trace {
        buffer<move> moves;
        buffer<int> sent, received;
        long sent_size = 0, received_size = 0;
    };

    constexpr bool record(int rank, trace& t) {
        t.moves.need(static_cast<long>(p_.rounds) * p_.ports);
        t.sent_size = t.received_size = 0;
        move* m = t.moves.p;
        for (int round = 0; round < p_.rounds; ++round)
            for (int port = 0; port < p_.ports; ++port, ++m) {
                const step st = p_.s.at(rank, p_.n, round, port);
                *m = {none, none, 0, 0, t.sent_size, t.received_size, barrier_ || st.recv.action == action::reduce};
                if (!read(st.send.peer, st.send.blocks, rank, m->to, m->sent, t.sent, t.sent_size) ||
                    !read(st.recv.peer, st.recv.blocks, rank, m->from, m->received, t.received, t.received_size))
                    return false;
            }
        return true;
    }
    constexpr bool read(
        int peer, const block_set& named, int rank, int& offset, int& count, buffer<int>& list, long& size) {
        if (peer == none) return true;
        const long from = size;
        if (!read_set(named, rank, none, peer, list, size)) return false;
        offset = peer >= rank ? peer - rank : peer - rank + p_.n;
        count = static_cast<int>(size - from);
        return true;
    }

    constexpr bool same_moves(const trace& a, const trace& b) const {
        if (a.sent_size != b.sent_size || a.received_size != b.received_size) return false;
        for (long i = 0; i < static_cast<long>(p_.rounds) * p_.ports; ++i) {
            const move &x = a.moves.p[i], &y = b.moves.p[i];
            if (x.to != y.to || x.from != y.from || x.sent != y.sent || x.received != y.received ||
                (x.received > 0 && x.reduces != y.reduces))
                return false;
        }
        return true;
    }
    constexpr bool follows(const trace& a, const trace& b) const {
        if (!same_moves(a, b)) return false;
        for (long j = 0; j < a.sent_size; ++j)
            if (sigma_.p[a.sent.p[j]] != b.sent.p[j]) return false;
        for (long j = 0; j < a.received_size; ++j)
            if (sigma_.p[a.received.p[j]] != b.received.p[j]) return false;
        return true;
    }

    [[gnu::cold]] [[gnu::noinline]] constexpr bool find_sigma(const trace& a, const trace& b) {
        if (!same_moves(a, b)) return false;
        sigma_.need(p_.slots);
        buffer<int> inverse(p_.slots);
        for (int x = 0; x < p_.slots; ++x) sigma_.p[x] = inverse.p[x] = none;
        const auto pair = [&](int x, int y) {
            if (sigma_.p[x] == none && inverse.p[y] == none) {
                sigma_.p[x] = y;
                inverse.p[y] = x;
            }
            return sigma_.p[x] == y && (x < p_.blocks) == (y < p_.blocks);
        };
        for (long j = 0; j < a.sent_size; ++j)
            if (!pair(a.sent.p[j], b.sent.p[j])) return false;
        for (long j = 0; j < a.received_size; ++j)
            if (!pair(a.received.p[j], b.received.p[j])) return false;
        // Slots that are not transferred (the own block of an all_to_all) are paired in order; states_follow() checks
        // them.
        for (int x = 0, y = 0; x < p_.slots; ++x) {
            if (sigma_.p[x] != none) continue;
            while (inverse.p[y] != none) ++y;
            if (!pair(x, y)) return false;
        }
        return true;
    }
    /// The states before the first and after the last round are translated as well.
    [[gnu::cold]] [[gnu::noinline]] constexpr bool states_follow() {
        const int n = p_.n, blocks = p_.blocks;
        if (owned(p_.kind))
            for (int x = 0; x < blocks; ++x) {
                const int h = p_.homes.p[x];
                if (p_.homes.p[sigma_.p[x]] != (h == none ? none : (h + 1) % n)) return false;
            }
        if (p_.kind != collective::all_to_all) return true;
        buffer<int> last(blocks), next(blocks), count(n);
        initial_.need(blocks);
        final_.need(blocks);
        for (const bool after : {false, true})
            for (int r = 0; r <= n; ++r) {
                buffer<int>& now = r % 2 == 0 ? last : next;
                const buffer<int>& before = r % 2 == 0 ? next : last;
                if (!p_.exchange(r % n, after, now.p, count.p)) return false;
                for (int x = 0; x < blocks; ++x) {
                    if (r == 0) (after ? final_ : initial_).p[x] = now.p[x];
                    if (r > 0 && now.p[sigma_.p[x]] != moved_label(before.p[x], 1)) return false;
                }
            }
        return true;
    }

    [[gnu::cold]] [[gnu::noinline]] constexpr void find_cycles() {
        cycle_.need(p_.slots);
        begin_.need(p_.slots);
        place_.need(p_.slots);
        length_.need(p_.slots);
        int at = 0;
        for (int x = 0; x < p_.slots; ++x) {
            if (length_.p[x] != 0) continue;
            const int from = at;
            int y = x;
            do {
                begin_.p[y] = from;
                place_.p[y] = at - from;
                length_.p[y] = 1;
                cycle_.p[at++] = y;
                y = sigma_.p[y];
            } while (y != x);
            for (int i = from; i < at; ++i) length_.p[cycle_.p[i]] = at - from;
        }
    }
    /// sigma applied q times.
    constexpr int moved_slot(int x, int q) const { return cycle_.p[begin_.p[x] + (place_.p[x] + q) % length_.p[x]]; }
    constexpr int moved_label(int label, int q) const {
        if (label < 0) return label;
        if (p_.kind != collective::all_to_all) return moved_slot(label, q);
        return (label / p_.blocks + q) % p_.n * p_.blocks + label % p_.blocks;
    }
    /// out = in with every rank increased by q, mod n.
    [[gnu::cold]] [[gnu::noinline]] constexpr void rotate(const std::uint64_t* in, std::uint64_t* out, int q) const {
        for (long w = 0; w < words_; ++w) out[w] = 0;
        shift_into(in, out, q);
        if (q > 0) shift_into(in, out, q - p_.n);
        if (p_.n % 64 != 0) out[words_ - 1] &= (std::uint64_t{1} << p_.n % 64) - 1;
    }
    [[gnu::cold]] [[gnu::noinline]] constexpr void shift_into(
        const std::uint64_t* in, std::uint64_t* out, int by) const {
        const int words = by >= 0 ? by / 64 : -((-by + 63) / 64), bits = by - words * 64;
        for (long w = 0; w < words_; ++w) {
            if (in[w] == 0) continue;
            const long to = w + words;
            if (to >= 0 && to < words_) out[to] |= in[w] << bits;
            if (bits > 0 && to + 1 >= 0 && to + 1 < words_) out[to + 1] |= in[w] >> (64 - bits);
        }
    }

    [[gnu::cold]] [[gnu::noinline]] constexpr bool run_rounds() {
        label_.need(p_.slots);
        masks_.need(p_.slots * words_);
        copied_in_.need(p_.slots);
        for (int x = 0; x < p_.slots; ++x) {
            const int l = p_.initial(0, x);
            label_.p[x] = l >= 0 && p_.kind == collective::all_to_all ? initial_.p[x] : l;
            if (l >= 0) masks_.p[x * words_] = 1;
        }
        trace t;
        record(0, t);
        const move* m = t.moves.p;
        for (round_ = 0; round_ < p_.rounds; ++round_, m += p_.ports)
            if (!match(m) || !stage(m, t) || !receive(m, t)) return false;
        round_ = none;
        return true;
    }
    // Law 2. By symmetry, the peer of a send receives from this rank exactly if the peers are opposite.
    [[gnu::cold]] [[gnu::noinline]] constexpr bool match(const move* m) {
        for (int port = 0; port < p_.ports; ++port, ++m) {
            if (m->to != none && (m->from == none || (m->from + m->to) % p_.n != 0))
                return fail(fault::send_unmatched, 0, port, none, m->to, none,
                    m->from == none ? none : (m->from + m->to) % p_.n);
            if (m->from == none) continue;
            if (m->to == none) return fail(fault::receive_unmatched, 0, port, none, m->from, none, none);
            if (m->sent != m->received) return fail(fault::sizes, 0, port, m->received, m->from, m->sent);
        }
        return true;
    }
    // What arrives is, by symmetry, what this rank sends on the same port, translated to the rank that it receives
    // from.
    constexpr bool stage(const move* m, const trace& t) {
        const long first = m->received_at;
        for (int port = 0; port < p_.ports; ++port, ++m) {
            staged_label_.need(m->received_at - first + m->received, m->received_at - first);
            staged_masks_.need((m->received_at - first + m->received) * words_, (m->received_at - first) * words_);
            for (long j = 0; j < m->sent; ++j) {
                const int x = t.sent.p[m->sent_at + j];
                if (label_.p[x] == none) return fail(fault::sends_undefined, 0, port, x, m->to);
                const long to = m->received_at - first + j;
                staged_label_.p[to] = moved_label(label_.p[x], m->from);
                rotate(masks_.p + x * words_, staged_masks_.p + to * words_, m->from);
            }
        }
        return true;
    }
    constexpr bool receive(const move* m, const trace& t) {
        const long first = m->received_at;
        for (const bool reducing : {false, true})
            for (int port = 0; port < p_.ports; ++port) {
                if (m[port].reduces != reducing) continue;
                port_ = port, peer_ = m[port].from;
                for (long j = 0; j < m[port].received; ++j) {
                    const int y = t.received.p[m[port].received_at + j];
                    const int x = moved_slot(t.sent.p[m[port].sent_at + j], peer_);
                    const long staged = m[port].received_at - first + j;
                    if (!(reducing ? reduce_block(y, staged, y, x) : copy_block(y, staged, y, x))) return false;
                }
            }
        return true;
    }
    [[gnu::cold]] [[gnu::noinline]] constexpr bool check_result() {
        for (int x = 0; x < p_.blocks; ++x) {
            wanted w = p_.expected(0, x);
            if (p_.kind == collective::all_to_all) {
                const int source = final_.p[x] / p_.blocks;
                w = {final_.p[x] % p_.blocks, source, source + 1};
            }
            if (w.label != none && !holds(x, 0, x, w)) return false;
        }
        return true;
    }

    buffer<int> sigma_, cycle_, begin_, place_, length_;
    buffer<int> initial_, final_;  // all_to_all: what the slots of rank 0 hold before and after
};

}  // namespace colls::inline v1::detail
