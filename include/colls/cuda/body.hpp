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

COLLS_DEVICE_CALLED inline extent cut_of(std::uint64_t count, std::uint64_t slices, std::uint64_t i, std::uint64_t chunk, std::uint64_t c) {
    return cut(count, slices, i, chunk, c);
}

COLLS_DEVICE_CALLED inline int element_of(const block_set& blocks, int i) { return blocks[i]; }
template <class S>
COLLS_DEVICE_CALLED step step_at(const S& s, int rank, int n, int round, int port) {
    return step_of(s, rank, n, round, port);
}

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
        COLLS_ROLLED
        for (chunk_ = 0; chunk_ < static_cast<std::uint64_t>(c_.chunks); ++chunk_) {
            const std::uint64_t v = base + 1 + chunk_ * static_cast<std::uint64_t>(2 * rounds_ + 1);
            if (c_.in_where.region == reachable::hidden) stage();
            publish(v);
            if (chunk_ == 0 && !meet(v, calls & 1)) return false;
            COLLS_ROLLED
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

    COLLS_DEVICE extent unit(const piece& p, int parts) const {
        return unit_of(c_.count, c_.offsets, c_.user_blocks, owned(what) && rooted(what) ? rank_of(p.block) : p.block, p.part, parts);
    }
    /// What of a slot is in hand: relative to its unit.
    COLLS_DEVICE extent span_of(const slot_info& s) const {
        return cut_of(unit(s.is, s.parts).count, static_cast<std::uint64_t>(c_.blocks), slice_of(c_, block_), c_.chunk, chunk_);
    }
    /// Where something lies: in a buffer with all user blocks, in one with the rank's own block alone, or in a slot of scratch
    /// memory, which begins at the same phase as the data.
    enum class lies : unsigned char { among_all, alone, in_scratch };
    struct spot {
        const std::byte* base;
        piece is;
        lies how;
    };
    COLLS_DEVICE std::uint64_t first_of(const spot& at, int parts, std::uint64_t skip) const {
        const std::uint64_t first = unit(at.is, parts).first;
        if (at.how == lies::in_scratch) return first % quantum;
        return first + skip - (at.how == lies::alone ? unit({at.is.block, 0}, 1).first : 0);
    }
    COLLS_DEVICE spot input(const std::byte* buffer, const slot_info& s) const { return {buffer, s.in, own_block_in ? lies::alone : lies::among_all}; }
    COLLS_DEVICE spot output(const std::byte* buffer, const slot_info& s) const { return {buffer, s.out, own_block_out ? lies::alone : lies::among_all}; }
    COLLS_DEVICE spot scratch(int role, int slot, const slot_info& s) const {
        return {scratch_of_block(t_, rank_of(role), block_) + static_cast<std::uint64_t>(slot) * slot_bytes(c_.chunk, sizeof(T)), s.is, lies::in_scratch};
    }
    COLLS_DEVICE bool moves_to_output(int role, const slot_info& s) const {
        return public_output && s.out.block != none && board_.views[role].out != nullptr;
    }
    /// Where a rank's slot is to be read at the start of this round.
    COLLS_DEVICE spot source_spot(int role, int slot, const slot_info& s) const {
        const view& theirs = board_.views[role];
        if (round_ <= s.moves) {
            const std::byte* const in = role == me_ ? c_.in : theirs.in;
            return in != nullptr || role == me_ ? input(in, s) : scratch(role, slot, s);
        }
        return moves_to_output(role, s) ? output(role == me_ ? c_.out : theirs.out, s) : scratch(role, slot, s);
    }
    COLLS_DEVICE operand source(int role, int slot, std::uint64_t skip) const {
        const slot_info& s = info(role, slot);
        const spot at = source_spot(role, slot, s);
        return {at.base + first_of(at, s.parts, skip) * sizeof(T), round_ <= s.moves};
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
        COLLS_ROLLED
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

    // Copies go through the operator's loop, which then leaves them alone, unless that computes in another type.
    static constexpr bool copies_as_folds = reduces(what) && std::is_same_v<T, accumulator<T, Op>>;
    static constexpr bool leaves = has_leaf<Op, accumulator<T, Op>>;

    /// Operands of a slot to its place after this round, or where they land first; to the result, where this is it.
    COLLS_DEVICE void place(const spot& to, bool result, const slot_info& s, const operand* x, int k, const extent& span, bool complete) {
        const std::uint64_t index = first_of(to, s.parts, span.first);
        std::byte* const base = const_cast<std::byte*>(to.base);
        const int ranks = complete ? n_ : 0;
        if constexpr (!as_it_is)
            if (result) {
                D* const goal = reinterpret_cast<D*>(base) + index;
                if constexpr (reduces(what))
                    return sweep<T>(g_, goal, x, k, span.count, op_, epilogue_, ranks, index);
                else
                    return sweep<T>(g_, goal, x, 1, span.count, moved{}, epilogue_, 0, index);
            }
        T* const goal = reinterpret_cast<T*>(base) + index;
        const no_epilogue as_is;
        const bool still = k == 1 && !complete && !(leaves && x[0].raw != 0);
        if (still && x[0].data == goal) return;
        if constexpr (copies_as_folds) {
            sweep<T>(g_, goal, x, k, span.count, op_, as_is, ranks, index);
        } else {
            if constexpr (reduces(what))
                if (!still) return sweep<T>(g_, goal, x, k, span.count, op_, as_is, ranks, index);
            sweep<T>(g_, goal, x, 1, span.count, moved{}, as_is, 0, index);
        }
    }
    COLLS_DEVICE spot landing(int slot, const slot_info& s) const { return scratch(me_, c_.width + slot, s); }
    COLLS_DEVICE operand landed_at(int slot, const slot_info& s) const {
        const spot at = landing(slot, s);
        return {at.base + first_of(at, s.parts, 0) * sizeof(T), 0};
    }

    /// Input that others cannot reach, to where they can.
    COLLS_DEVICE void stage() {
        g_.any(false);   // what the chunk before left there has been read
        round_ = 0;
        COLLS_ROLLED
        for (int slot = 0; slot < c_.width; ++slot) {
            const slot_info& s = info(me_, slot);
            if (s.is.block == none || s.in.block == none || s.sent == 0) continue;
            const extent span = span_of(s);
            if (g_.index() == 0) {
                board_.operands[0][0] = source(me_, slot, span.first);
                board_.operands[0][0].raw = 0;   // raw, and to stay so
            }
            g_.any(false);
            place(scratch(me_, slot, s), false, s, board_.operands[0], 1, span, false);
            g_.any(false);
        }
    }

    COLLS_DEVICE bool play_round(std::uint64_t v) {
        bool failed = false;
        COLLS_ROLLED
        for (int p = g_.index(); p < ports_; p += g_.size()) {
            const step mine = step_at(s_, me_, n_, round_, p);
            arrival& in = board_.in[p];
            in = {mine.recv.peer, mine.recv.action, {}, mine.recv.blocks};
            if (in.peer != none) in.from = step_at(s_, in.peer, n_, round_, p).send.blocks;
            const int reader = round_ > 0 ? board_.to[(round_ - 1) & 1][p] : none;
            board_.to[round_ & 1][p] = mine.send.peer;
            failed = failed || !wait(in.peer, v) || !wait(reader, v);
        }
        if (g_.any(failed)) return false;
        if constexpr (what != collective::barrier) {
            const bool lands = c_.overwrites[me_ * rounds_ + round_] != 0;
            COLLS_ROLLED
            for (bool landed = false;; landed = true) {
                move_arrivals(lands, landed);
                if (!lands || landed) break;
                publish(v + 1);
                COLLS_ROLLED
                for (int p = g_.index(); p < ports_; p += g_.size()) failed = failed || !wait(board_.to[round_ & 1][p], v + 1);
                if (g_.any(failed)) return false;
            }
        }
        publish(v + 2);
        return true;
    }

    /// Each slot that something arrives for, once. `landed`: from where it has landed.
    COLLS_DEVICE void move_arrivals(bool lands, bool landed) {
        unsigned turn = 0;
        COLLS_ROLLED
        for (int p = 0; p < ports_; ++p) {
            const arrival& in = board_.in[p];
            COLLS_ROLLED
            for (int i = 0; in.peer != none && i < in.to.size(); ++i) {
                const int slot = element_of(in.to, i);
                const slot_info& s = info(me_, slot);
                if (s.is.block == none) continue;
                turn ^= 1u;
                const int k = gather(turn, p, i, slot, s, landed);
                if (k == 0) continue;
                const extent span = span_of(s);
                const bool to_landing = lands && !landed, result = s.delivers == round_ && !to_landing;
                const spot to = to_landing ? landing(slot, s) : result || moves_to_output(me_, s) ? output(c_.out, s) : scratch(me_, slot, s);
                place(to, result, s, board_.operands[turn], k, span, !landed && s.completes == round_);
            }
        }
    }

    /// The operands of a slot into the board: all that arrives for it in this round in ascending order of ranks, its own value at
    /// its place among them, one that it sends itself before that; or what has landed. 0 where an earlier port has had the slot.
    COLLS_DEVICE int gather(unsigned turn, int port, int i, int slot, const slot_info& s, bool landed) {
        std::int32_t* const match = board_.match[turn];
        if (ports_ > 1) {
            COLLS_ROLLED
            for (int p = g_.index(); p < ports_; p += g_.size()) {
                const arrival& in = board_.in[p];
                int found = none;
                COLLS_ROLLED
                for (int j = 0; found == none && in.peer != none && j < in.to.size(); ++j)
                    if (element_of(in.to, j) == slot) found = j;
                match[p] = found;
            }
            g_.any(false);
            COLLS_ROLLED
            for (int p = 0; p < port; ++p)
                if (match[p] != none) return 0;
        }
        if (landed) {
            if (g_.index() == 0) board_.operands[turn][0] = landed_at(slot, s);
            g_.any(false);
            return 1;
        }
        const action act = board_.in[port].act;
        const int self = rank_of(me_);
        const bool own = act == action::reduce && (s.in.block != none || round_ > s.moves);
        const std::uint64_t skip = span_of(s).first;
        operand* const x = board_.operands[turn];
        int count = own ? 1 : 0;
        COLLS_ROLLED
        for (int p = 0; p < ports_; ++p) count += ports_ == 1 || match[p] != none;
        // One thread an operand, the rank's own being one port more. Its place: behind all of lower ranks.
        COLLS_ROLLED
        for (int p = g_.index(); p <= ports_; p += g_.size()) {
            const bool is_own = p == ports_;
            if (is_own ? !own : ports_ > 1 && match[p] == none) continue;
            const int role = is_own ? me_ : board_.in[p].peer, from = rank_of(role);
            int at = own && !is_own && self < from ? 1 : 0;
            COLLS_ROLLED
            for (int other = 0; other < ports_; ++other) {
                if (other == p || (ports_ > 1 && match[other] == none)) continue;
                const int there = rank_of(board_.in[other].peer);
                at += there < from || (there == from && other < p);
            }
            x[at] = source(role, is_own ? slot : element_of(board_.in[p].from, ports_ == 1 ? i : match[p]), skip);
        }
        g_.any(false);
        return act == action::reduce ? count : 1;
    }

    /// After the last round: when nobody reads here any more, what is a result and not yet where it belongs.
    COLLS_DEVICE bool settle(std::uint64_t v) {
        bool failed = false;
        if (rounds_ > 0)
            COLLS_ROLLED
            for (int p = g_.index(); p < ports_; p += g_.size()) failed = failed || !wait(board_.to[(rounds_ - 1) & 1][p], v);
        if (g_.any(failed)) return false;
        unsigned turn = 0;
        if constexpr (what != collective::barrier)
            COLLS_ROLLED
            for (int slot = 0; slot < c_.width; ++slot) {
                const slot_info& s = info(me_, slot);
                if (s.is.block == none || s.out.block == none || s.delivers != none) continue;
                const bool still = s.moves >= rounds_;
                if (still ? s.in.block == none : moves_to_output(me_, s)) continue;
                const extent span = span_of(s);
                operand* const x = board_.operands[turn ^= 1u];
                if (g_.index() == 0) *x = source(me_, slot, span.first);
                g_.any(false);
                place(output(c_.out, s), true, s, x, 1, span, reduces(what) && n_ == 1);
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
