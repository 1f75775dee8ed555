// The kernel body: one schedule, played by one block of a rank on its slice of every user block, together with the blocks of
// the same index at the other ranks. The same code for every schedule, collective, type and operator; on a device and, for
// the tests of its synchronisation, on the host.
//
// Everything is pulled: in round k a rank reads what its peers had at the start of the round, and writes its own memory only.
// A rank's progress is one number that only grows; with R rounds, chunk c begins at v = base + 1 + c (2R + 1), and
//     v + 2k      the rank's state at the start of round k is there to be read
//     v + 2k + 1  it has read all it reads in round k (said only where the round overwrites what it sends)
// Before it reads or writes anything in round k, a rank waits until those it reads from, and those that read from it in round
// k - 1, have come to v + 2k. So by induction nobody is still reading what it writes; and as every wait names an earlier round
// than the one it is made in, the least unfinished round can always go on. Where a round receives into slots that it also
// sends, what arrives lands in scratch memory, and goes to its slots when the readers have come to v + 2k + 1.
#pragma once

#include <colls/cuda/board.hpp>

namespace colls::inline v1::cuda::detail {

/// T: elements; D: elements of the output (another type only through an epilogue).
template <class Schedule, class T, class D, class Op, class Epilogue, class G>
class body {
public:
    COLLS_DEVICE body(G& g, const team& t, const call& c, int block, const Schedule& s, const Op& op, const Epilogue& epilogue)
        : g_(g), t_(t), c_(c), s_(s), op_(op), epilogue_(epilogue), board_(g.board()), block_(block), n_(t.sizes.ranks) {
        if constexpr (rooted(what)) shift_ = c.root - root_of(s, n_);
        me_ = role(t.rank);
        rounds_ = s.rounds(n_);
        ports_ = ports_of(s, n_);
    }

    /// False where the rank has given up; the host finds out why.
    COLLS_DEVICE bool run() {
        channel& own = channel_of(t_, t_.rank, block_);
        const bool poisoned = g_.relaxed(static_cast<const std::uint32_t*>(poison_of(t_))) != 0;
        const std::uint64_t base = g_.relaxed(static_cast<const std::uint64_t*>(&own.progress));
        const std::uint32_t calls = own.calls;
        if (g_.any(poisoned)) return false;
        if (g_.index() == 0) {
            own.calls = calls + 1;
            own.entries[calls & 1] = {c_.fingerprint, c_.in_where, c_.out_where};
        }
        for (chunk_ = 0; chunk_ < static_cast<std::uint64_t>(c_.chunks); ++chunk_) {
            const std::uint64_t v = base + 1 + chunk_ * static_cast<std::uint64_t>(2 * rounds_ + 1);
            if (c_.in_where.region == reachable::hidden) stage();
            publish(v);
            if (chunk_ == 0 && !meet(v, calls & 1)) return false;
            for (round_ = 0; round_ < rounds_; ++round_)
                if (!play_round(v + 2 * static_cast<std::uint64_t>(round_))) return false;
            if (!settle(v + 2 * static_cast<std::uint64_t>(rounds_))) return false;
        }
        return true;
    }

private:
    static constexpr collective what = implemented_by<Schedule>;
    static constexpr bool as_it_is = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>;
    static constexpr bool own_block_in = what == collective::gather || what == collective::all_gather;
    static constexpr bool own_block_out = what == collective::scatter || what == collective::reduce_scatter;
    static constexpr bool public_output = as_it_is && what != collective::all_to_all;

    // Rooted schedules are in roles.
    COLLS_DEVICE int role(int rank) const { return rooted(what) ? mod(rank - shift_, n_) : rank; }
    COLLS_DEVICE int rank_of(int role) const { return rooted(what) ? mod(role + shift_, n_) : role; }
    COLLS_DEVICE const slot_info& info(int role, int slot) const { return c_.slots[role * c_.width + slot]; }

    // Where things are.

    COLLS_DEVICE extent user_block(int block) const {
        const auto b = static_cast<std::uint64_t>(owned(what) && rooted(what) ? rank_of(block) : block);
        if (c_.offsets != nullptr) return {c_.offsets[b], c_.offsets[b + 1] - c_.offsets[b]};
        return balanced(c_.count, static_cast<std::uint64_t>(c_.user_blocks), b);
    }
    COLLS_DEVICE extent unit(const piece& p, int parts) const {
        const extent whole = user_block(p.block);
        if (parts == 1) return whole;
        const extent part = balanced(whole.count, static_cast<std::uint64_t>(parts), static_cast<std::uint64_t>(p.part));
        return {whole.first + part.first, part.count};
    }
    /// What of a slot is in hand: relative to its unit.
    COLLS_DEVICE extent span_of(const slot_info& s) const {
        return cut(unit(s.is, s.parts).count, static_cast<std::uint64_t>(c_.blocks), static_cast<std::uint64_t>(block_), c_.chunk, chunk_);
    }
    /// Its first element in a buffer with all user blocks, or with the rank's own block alone.
    COLLS_DEVICE std::uint64_t first_in(const piece& p, int parts, bool own_alone, std::uint64_t skip) const {
        return unit(p, parts).first - (own_alone ? user_block(p.block).first : 0) + skip;
    }
    COLLS_DEVICE const std::byte* input(const std::byte* buffer, const slot_info& s, std::uint64_t skip) const {
        return buffer + first_in(s.in, s.parts, own_block_in, skip) * sizeof(T);
    }
    COLLS_DEVICE std::uint64_t output_index(const slot_info& s, std::uint64_t skip) const {
        return first_in(s.out, s.parts, own_block_out, skip);
    }
    COLLS_DEVICE std::byte* scratch(int role, int slot, const slot_info& s) const {
        return scratch_of_block(t_, rank_of(role), block_) + static_cast<std::uint64_t>(slot) * slot_bytes(c_.chunk, sizeof(T)) +
               unit(s.is, s.parts).first % quantum * sizeof(T);
    }
    COLLS_DEVICE bool moves_to_output(int role, const slot_info& s) const {
        return public_output && s.out.block != none && board_.views[role].out != nullptr;
    }
    /// Where a rank's slot is to be read at the start of this round.
    COLLS_DEVICE const std::byte* source(int role, int slot, const slot_info& s, std::uint64_t skip) const {
        if (round_ <= s.moves) {
            if (role == me_) return input(c_.in, s, skip);
            return board_.views[role].in != nullptr ? input(board_.views[role].in, s, skip) : scratch(role, slot, s);
        }
        if (!moves_to_output(role, s)) return scratch(role, slot, s);
        return (role == me_ ? c_.out : board_.views[role].out) + output_index(s, skip) * sizeof(T);
    }

    // Meeting the others.

    /// After a barrier of the group, which the callers' last step was, or is made here.
    COLLS_DEVICE void publish(std::uint64_t value) {
        g_.any(false);
        if (g_.index() == 0) g_.release(&channel_of(t_, t_.rank, block_).progress, value);
    }
    COLLS_DEVICE bool wait(int role, std::uint64_t value) {
        return role == none || role == me_ || wait_for(g_, t_, block_, rank_of(role), value, round_, c_.fingerprint);
    }
    /// Everyone's entry: is it the same call, and where are the buffers?
    COLLS_DEVICE bool meet(std::uint64_t value, unsigned turn) {
        bool failed = false;
        round_ = none;
        for (int r = g_.index(); r < n_ && !failed; r += g_.size()) {
            const int q = rank_of(r);
            if (!wait(r, value)) {
                failed = true;
                break;
            }
            const entry e = channel_of(t_, q, block_).entries[turn];
            if (e.fingerprint != c_.fingerprint) {
                give_up(g_, t_, block_, failure::mismatch, q, none, c_.fingerprint, e.fingerprint);
                failed = true;
            } else {
                board_.views[r] = {resolved(t_, q, e.in), resolved(t_, q, e.out)};
            }
        }
        return !g_.any(failed);
    }

    // Moving data.

    template <class To, class E, class O>
    COLLS_DEVICE void pass(To* to, const operand* x, int k, const extent& span, const O& op, const E& epilogue, std::uint64_t index, bool complete) {
        sweep<T, To>(g_, to, x, k, span.count, treatment<T, To, O, E>{op, epilogue, complete ? n_ : 0}, index);
    }
    /// Operands into a place of elements T, where others, or a later round, find them.
    COLLS_DEVICE void keep(std::byte* to, const operand* x, int k, const extent& span, bool complete) {
        T* const goal = reinterpret_cast<T*>(to);
        if constexpr (reduces(what))
            if (k > 1 || complete || (has_leaf<Op, accumulator<T, Op>> && x[0].raw != 0))
                return pass(goal, x, k, span, op_, no_epilogue{}, 0, complete);
        if (x[0].data != goal) pass(goal, x, 1, span, moved{}, no_epilogue{}, 0, false);
    }
    /// Operands into the result.
    COLLS_DEVICE void deliver(const slot_info& s, const operand* x, int k, const extent& span, bool complete) {
        const std::uint64_t index = output_index(s, span.first);
        if constexpr (as_it_is)
            keep(c_.out + index * sizeof(T), x, k, span, complete);
        else if constexpr (reduces(what))
            pass(reinterpret_cast<D*>(c_.out) + index, x, k, span, op_, epilogue_, index, complete);
        else
            pass(reinterpret_cast<D*>(c_.out) + index, x, 1, span, moved{}, epilogue_, index, false);
    }
    /// What arrives for, or is found in, a slot: to its place after this round.
    COLLS_DEVICE void settle_slot(int slot, const slot_info& s, const operand* x, int k, const extent& span, bool complete) {
        if (s.delivers == round_)
            deliver(s, x, k, span, complete);
        else if (moves_to_output(me_, s))
            keep(c_.out + output_index(s, span.first) * sizeof(T), x, k, span, complete);
        else
            keep(scratch(me_, slot, s), x, k, span, complete);
    }
    COLLS_DEVICE std::byte* landing(int slot, const slot_info& s) const { return scratch(me_, c_.width + slot, s); }

    /// Input that others cannot reach, to where they can.
    COLLS_DEVICE void stage() {
        g_.any(false);   // what the chunk before left there has been read
        round_ = 0;
        for (int slot = 0; slot < c_.width; ++slot) {
            const slot_info& s = info(me_, slot);
            if (s.is.block == none || s.in.block == none || s.sent == 0) continue;
            const extent span = span_of(s);
            const operand x{input(c_.in, s, span.first), 1};
            pass(reinterpret_cast<T*>(scratch(me_, slot, s)), &x, 1, span, moved{}, no_epilogue{}, 0, false);
        }
    }

    COLLS_DEVICE bool play_round(std::uint64_t v) {
        bool failed = false;
        for (int p = g_.index(); p < ports_; p += g_.size()) {
            const step mine = step_of(s_, me_, n_, round_, p);
            arrival& in = board_.in[p];
            in = {mine.recv.peer, mine.recv.action, {}, mine.recv.blocks};
            if (in.peer != none) in.from = step_of(s_, in.peer, n_, round_, p).send.blocks;
            const int reader = round_ > 0 ? board_.to[(round_ - 1) & 1][p] : none;
            board_.to[round_ & 1][p] = mine.send.peer;
            failed = failed || !wait(in.peer, v) || !wait(reader, v);
        }
        if (g_.any(failed)) return false;
        const bool lands = what != collective::barrier && c_.overwrites[me_ * rounds_ + round_] != 0;
        if constexpr (what != collective::barrier) move_arrivals(lands, false);
        if (lands) {
            publish(v + 1);
            for (int p = g_.index(); p < ports_; p += g_.size()) failed = failed || !wait(board_.to[round_ & 1][p], v + 1);
            if (g_.any(failed)) return false;
            move_arrivals(true, true);
        }
        publish(v + 2);
        return true;
    }

    /// Each slot that something arrives for, once. `landed`: from where it has landed.
    COLLS_DEVICE void move_arrivals(bool lands, bool landed) {
        unsigned turn = 0;
        for (int p = 0; p < ports_; ++p) {
            const arrival& in = board_.in[p];
            for (int i = 0; in.peer != none && i < in.to.size(); ++i) {
                const int slot = in.to[i];
                const slot_info& s = info(me_, slot);
                if (s.is.block == none) continue;
                turn ^= 1u;
                const int k = gather(turn, p, slot, s);
                if (k == 0) continue;
                const extent span = span_of(s);
                operand* const x = board_.operands[turn];
                const bool complete = s.completes == round_;
                if (landed) {
                    const operand there{landing(slot, s), 0};
                    settle_slot(slot, s, &there, 1, span, false);
                } else if (lands) {
                    keep(landing(slot, s), x, k, span, complete);
                } else {
                    settle_slot(slot, s, x, k, span, complete);
                }
            }
        }
    }

    /// The operands of a slot into the board: all that arrives for it in this round in ascending order of ranks, its own value at
    /// its place among them, one that it sends itself before that. 0 where an earlier port has had the slot.
    COLLS_DEVICE int gather(unsigned turn, int port, int slot, const slot_info& s) {
        std::int32_t* const match = board_.match[turn];
        for (int p = g_.index(); p < ports_; p += g_.size()) {
            const arrival& in = board_.in[p];
            int found = none;
            for (int i = 0; found == none && in.peer != none && i < in.to.size(); ++i)
                if (in.to[i] == slot) found = i;
            match[p] = found;
        }
        if (ports_ > 1) {
            g_.any(false);
            for (int p = 0; p < port; ++p)
                if (match[p] != none) return 0;
        }
        const action act = board_.in[port].act;
        const int self = rank_of(me_);
        const bool own = act == action::reduce && (s.in.block != none || round_ > s.moves);
        const std::uint64_t skip = span_of(s).first;
        operand* const x = board_.operands[turn];
        int count = own ? 1 : 0;
        for (int p = 0; p < ports_; ++p) count += ports_ == 1 || match[p] != none;
        for (int p = g_.index(); p < ports_; p += g_.size()) {
            const arrival& in = board_.in[p];
            if (match[p] == none) continue;
            const int from = rank_of(in.peer);
            int at = own && self < from ? 1 : 0;
            for (int other = 0; other < ports_; ++other) {
                const int there = match[other] != none && other != p ? rank_of(board_.in[other].peer) : n_;
                at += there < from || (there == from && other < p);
            }
            const int index = in.from[match[p]];
            const slot_info& theirs = info(in.peer, index);
            x[at] = {source(in.peer, index, theirs, skip), round_ <= theirs.moves};
        }
        if (own && g_.index() == 0) {
            int at = 0;
            for (int p = 0; p < ports_; ++p)
                at += (ports_ == 1 ? board_.in[p].peer != none : match[p] != none) && rank_of(board_.in[p].peer) <= self;
            x[at] = {source(me_, slot, s, skip), round_ <= s.moves};
        }
        g_.any(false);
        return act == action::reduce ? count : 1;
    }

    /// After the last round: when nobody reads here any more, what is a result and not yet where it belongs.
    COLLS_DEVICE bool settle(std::uint64_t v) {
        bool failed = false;
        if (rounds_ > 0)
            for (int p = g_.index(); p < ports_; p += g_.size()) failed = failed || !wait(board_.to[(rounds_ - 1) & 1][p], v);
        if (g_.any(failed)) return false;
        if constexpr (what != collective::barrier)
            for (int slot = 0; slot < c_.width; ++slot) {
                const slot_info& s = info(me_, slot);
                if (s.is.block == none || s.out.block == none || s.delivers != none) continue;
                const bool still = s.moves >= rounds_;
                if (still ? s.in.block == none : moves_to_output(me_, s)) continue;
                const extent span = span_of(s);
                const operand x{source(me_, slot, s, span.first), still};
                deliver(s, &x, 1, span, reduces(what) && n_ == 1);
            }
        return true;
    }

    G& g_;
    const team& t_;
    const call& c_;
    const Schedule& s_;
    const Op& op_;
    const Epilogue& epilogue_;
    blackboard& board_;
    const int block_, n_;
    int shift_ = 0, me_ = 0, rounds_ = 0, ports_ = 1, round_ = none;
    std::uint64_t chunk_ = 0;
};

/// Plays a call by one block of a rank.
template <class T, class D, class Schedule, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_body(G& g, const team& t, const call& c, int block, const Schedule& s, const Op& op, const Epilogue& epilogue) {
    return body<Schedule, T, D, Op, Epilogue, G>(g, t, c, block, s, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
