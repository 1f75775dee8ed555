// The kernel body: one schedule, played by one block of a rank on its slice of every user block, together with the
// blocks of the same index at the other ranks. The same code for every schedule, collective, type and operator; on a
// device and, for the tests of its synchronisation, on the host.
//
// Everything is pulled: in round k a rank reads what its peers had at the start of the round, and writes its own memory
// only. A rank's progress is one number that only grows; with R rounds, chunk c begins at v = base + 1 + c (2R + 1),
// and
//     v + 2k      the rank's state at the start of round k is there to be read
//     v + 2k + 1  it has read all it reads in round k (said only where the round overwrites what it sends)
// Before it reads or writes anything in round k, a rank waits until those it reads from, and those that read from it in
// round k - 1, have come to v + 2k. So by induction nobody is still reading what it writes; and as every wait names an
// earlier round than the one it is made in, the least unfinished round can always go on. Where a round receives into
// slots that it also sends, what arrives lands in scratch memory, and goes to its slots when the readers have come to v
// + 2k + 1.
#pragma once

#include <colls/detail/cuda/board.hpp>

namespace colls::inline v1::cuda::detail {

COLLS_DEVICE_CALLED inline extent cut_of(
    std::uint64_t count, std::uint64_t slices, std::uint64_t i, std::uint64_t chunk, std::uint64_t c) {
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
    COLLS_DEVICE body(const G& g, int block, const Schedule& s, const Op& op, const Epilogue& epilogue)
        : g_(g), s_(s), op_(op), epilogue_(epilogue), block_(block), n_(us().sizes.ranks) {
        if constexpr (rooted(what)) shift_ = now().root - root_of(s, n_);
        me_ = role(us().rank);
        rounds_ = s.rounds(n_);
        ports_ = ports_of(s, n_);
    }

    /// False where the rank has given up; the host finds out why. Control and data take turns, each at one place in the
    /// code: a kernel stays small, and both have all registers.
    COLLS_DEVICE bool run() {
        start();
        COLLS_ROLLED
        while (next()) carry_out(board().orders[turn_], board().operands[turn_]);
        return !failed_;
    }

private:
    static constexpr collective what = implemented_by<Schedule>;
    static constexpr bool as_it_is = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>;
    static constexpr bool own_block_in = what == collective::gather || what == collective::all_gather;
    static constexpr bool own_block_out = what == collective::scatter || what == collective::reduce_scatter;
    static constexpr bool public_output = as_it_is && what != collective::all_to_all;

    COLLS_DEVICE blackboard& board() const { return g_.board(); }
    COLLS_DEVICE const team& us() const { return board().us; }
    COLLS_DEVICE const call& now() const { return board().now; }

    // Rooted schedules are in roles.
    COLLS_DEVICE int role(int rank) const { return rooted(what) ? mod(rank - shift_, n_) : rank; }
    COLLS_DEVICE int rank_of(int role) const { return rooted(what) ? mod(role + shift_, n_) : role; }
    COLLS_DEVICE const slot_info& info(int role, int slot) const { return now().slots[role * now().width + slot]; }

    // Where things are.

    COLLS_DEVICE extent unit(const piece& p, int parts) const {
        return unit_of(now().count, now().offsets, now().user_blocks,
            owned(what) && rooted(what) ? rank_of(p.block) : p.block, p.part, parts);
    }
    /// What of a slot is in hand: relative to its unit.
    COLLS_DEVICE_CALLED extent span_of(const slot_info& s) const {
        return cut_of(unit(s.is, s.parts).count, static_cast<std::uint64_t>(now().blocks), slice_of(now(), block_),
            now().chunk, chunk_);
    }
    /// Where something lies: in a buffer with all user blocks, in one with the rank's own block alone, or in a slot of
    /// scratch memory, which begins at the same phase as the data.
    enum class lies : unsigned char { among_all, alone, in_scratch };
    struct spot {
        const std::byte* base;
        piece is;
        lies how;
    };
    COLLS_DEVICE_CALLED std::uint64_t first_of(spot at, int parts, std::uint64_t skip) const {
        const std::uint64_t first = unit(at.is, parts).first;
        if (at.how == lies::in_scratch) return first % quantum;
        return first + skip - (at.how == lies::alone ? unit({at.is.block, 0}, 1).first : 0);
    }
    COLLS_DEVICE spot input(const std::byte* buffer, const slot_info& s) const {
        return {buffer, s.in, own_block_in ? lies::alone : lies::among_all};
    }
    COLLS_DEVICE spot output(const std::byte* buffer, const slot_info& s) const {
        return {buffer, s.out, own_block_out ? lies::alone : lies::among_all};
    }
    COLLS_DEVICE_CALLED spot scratch(int role, int slot, const slot_info& s) const {
        return {scratch_of_block(us(), rank_of(role), block_) +
                    static_cast<std::uint64_t>(slot) * slot_bytes(now().chunk, sizeof(T)),
            s.is, lies::in_scratch};
    }
    COLLS_DEVICE bool moves_to_output(int role, const slot_info& s) const {
        return public_output && s.out.block != none && board().views[role].out != nullptr;
    }
    /// The scratch slot where what arrives for a slot lands in rounds that overwrite what they send.
    COLLS_DEVICE int landing(int slot) const { return now().width + slot; }
    /// Where a rank's slot is to be read: at the start of this round, or as it has landed.
    COLLS_DEVICE spot source_spot(int role, int slot, const slot_info& s) const {
        if (phase_ == phase::landed) return scratch(role, landing(slot), s);
        const view& theirs = board().views[role];
        if (round_ <= s.moves) {
            const std::byte* const in = role == me_ ? now().in : theirs.in;
            return in != nullptr || role == me_ ? input(in, s) : scratch(role, slot, s);
        }
        return moves_to_output(role, s) ? output(role == me_ ? now().out : theirs.out, s) : scratch(role, slot, s);
    }
    COLLS_DEVICE_CALLED operand source(int role, int slot, std::uint64_t skip) const {
        const slot_info& s = info(role, slot);
        const spot at = source_spot(role, slot, s);
        // What is staged is raw, and stays so.
        return {at.base + first_of(at, s.parts, skip) * sizeof(T),
            (phase_ == phase::arrive || phase_ == phase::settle) && round_ <= s.moves};
    }

    // Meeting the others.

    /// After a barrier of the group, which the callers' last step was, or is made here.
    COLLS_DEVICE void publish(std::uint64_t value) {
        g_.any(false);
        if (g_.index() == 0) g_.release(&channel_of(us(), us().rank, block_).progress, value);
    }
    COLLS_DEVICE_CALLED bool wait(int role, std::uint64_t value) {
        return role == none || role == me_ || wait_for(g_, block_, rank_of(role), value, round_);
    }
    /// Everyone's entry: is it the same call, and where are the buffers?
    COLLS_DEVICE bool meet() {
        bool failed = false;
        COLLS_ROLLED
        for (int r = g_.index(); r < n_ && !failed; r += g_.size()) {
            const int q = rank_of(r);
            failed = r != me_ && !wait_for(g_, block_, q, value_, none);
            if (failed) break;
            const entry e = channel_of(us(), q, block_).entries[entry_];
            failed = e.fingerprint != now().fingerprint;
            if (failed)
                give_up(g_, block_, failure::mismatch, q, none, e.fingerprint);
            else
                board().views[r] = {resolved(us(), q, e.in), resolved(us(), q, e.out)};
        }
        failed_ = g_.any(failed);
        return !failed_;
    }

    // Moving data.

    // Copies go through the operator's loop, which then leaves them alone, unless that computes in another type.
    static constexpr bool copies_as_folds = reduces(what) && std::is_same_v<T, accumulator<T, Op>>;
    static constexpr bool leaves = has_leaf<Op, accumulator<T, Op>>;

    COLLS_DEVICE void carry_out(const order& o, const operand* x) {
        if constexpr (!as_it_is)
            if (o.result != 0) {
                D* const goal = reinterpret_cast<D*>(o.to);
                if constexpr (reduces(what))
                    return sweep<T>(g_, goal, x, o.operands, o.count, op_, epilogue_, o.ranks, o.index);
                else
                    return sweep<T>(g_, goal, x, 1, o.count, moved{}, epilogue_, 0, o.index);
            }
        T* const goal = reinterpret_cast<T*>(o.to);
        const no_epilogue as_is;
        const bool still = o.operands == 1 && o.ranks == 0 && !(leaves && x[0].raw != 0);
        if (still && x[0].data == goal) return;
        if constexpr (copies_as_folds) {
            sweep<T>(g_, goal, x, o.operands, o.count, op_, as_is, o.ranks, o.index);
        } else {
            if constexpr (reduces(what))
                if (!still) return sweep<T>(g_, goal, x, o.operands, o.count, op_, as_is, o.ranks, o.index);
            sweep<T>(g_, goal, x, 1, o.count, moved{}, as_is, 0, o.index);
        }
    }

    // What is to be done, one order after the other.

    /// Staged input (what others cannot reach goes to where they can); what arrives in a round; that, from where it has
    /// landed; results that are not yet where they belong.
    enum class phase : int { stage, arrive, landed, settle };

    COLLS_DEVICE void start() {
        channel& own = channel_of(us(), us().rank, block_);
        const bool spoilt = poisoned(g_);
        const std::uint32_t calls = own.calls;
        value_ = g_.relaxed(static_cast<const std::uint64_t*>(&own.progress)) + 1;
        entry_ = calls & 1;
        failed_ = g_.any(spoilt);
        if (g_.index() == 0 && !failed_) {
            own.calls = calls + 1;
            own.entries[entry_] = {now().fingerprint, now().in_where, now().out_where};
        }
        begin(phase::stage);
        round_ = 0;
    }
    COLLS_DEVICE void begin(phase p) {
        phase_ = p;
        port_ = at_ = 0;
    }

    /// The next order of this block, in the board for all threads; false when all is done, or nothing more can be.
    COLLS_DEVICE bool next() {
        COLLS_ROLLED
        while (!failed_) {
            const int slot = what == collective::barrier ? none : next_slot();
            if (slot != none ? offer(slot) : !advance()) return slot != none;
        }
        return false;
    }
    COLLS_DEVICE int next_slot() {
        if (phase_ == phase::stage || phase_ == phase::settle)
            return at_ < now().width && (phase_ == phase::settle || now().in_where.region == reachable::hidden) ? at_++
                                                                                                                : none;
        COLLS_ROLLED
        for (; port_ < ports_; ++port_, at_ = 0)
            if (const arrival& in = board().in[port_]; in.peer != none && at_ < in.to.size())
                return element_of(in.to, at_++);
        return none;
    }

    /// All threads have carried out the orders of this phase, or are about to.
    COLLS_DEVICE bool advance() {
        if (phase_ == phase::settle) {
            g_.any(false);  // what stays in scratch memory has been read
            if (++chunk_ >= static_cast<std::uint64_t>(now().chunks)) return look_around();
            ++value_;
            round_ = 0;
            begin(phase::stage);
            return true;
        }
        const bool first = phase_ == phase::stage, again = phase_ == phase::arrive && lands_;
        if (!first && !again) {
            value_ += 2;
            ++round_;
        }
        publish(value_ + again);
        if (first && chunk_ == 0 && !meet()) return false;
        meet_again(!again && round_ < rounds_, again ? round_ : round_ - 1, value_ + again);
        begin(again ? phase::landed : round_ < rounds_ ? phase::arrive : phase::settle);
        return !failed_;
    }
    /// At the end: false. A rank that has given up may do with its buffers what it likes, so what was read from it
    /// counts only if it had not given up when the reading was over.
    COLLS_DEVICE bool look_around() {
        bool failed = false;
        g_.fence();
        COLLS_ROLLED
        for (int r = g_.index(); r < n_; r += g_.size()) failed = follow(g_, block_, r, rounds_) || failed;
        failed_ = g_.any(failed);
        return false;
    }
    /// Until those that read from this rank in round `read`, and those that it reads from in this one, have come to
    /// `value`.
    COLLS_DEVICE void meet_again(bool reads, int read, std::uint64_t value) {
        bool failed = false;
        COLLS_ROLLED
        for (int p = g_.index(); p < ports_; p += g_.size()) {
            const int reader = read < 0 ? none : board().to[read & 1][p];
            int from = none;
            if (reads) {
                const step mine = step_at(s_, me_, n_, round_, p);
                from = mine.recv.peer;
                arrival& in = board().in[p];
                in = {from, mine.recv.action, {}, mine.recv.blocks};
                if (from != none) in.from = step_at(s_, from, n_, round_, p).send.blocks;
                board().to[round_ & 1][p] = mine.send.peer;
            }
            failed = failed || !wait(from, value) || !wait(reader, value);
        }
        failed_ = g_.any(failed);
        if (!reads) return;
        // What still lies in the input is overwritten in place alone.
        const int over = what == collective::barrier ? 0 : now().overwrites[me_ * rounds_ + round_];
        lands_ = over == 1 ||
                 (over == 2 && (owned(what) || now().in == now().out || now().in_where.region == reachable::hidden));
    }

    /// An order for a slot, if there is anything to be done for it.
    COLLS_DEVICE bool offer(int slot) {
        const slot_info& s = info(me_, slot);
        const bool arrives = phase_ == phase::arrive || phase_ == phase::landed;
        if (s.is.block == none) return false;
        int operands = 1;
        const bool still = s.moves >= rounds_;
        if (phase_ == phase::stage && (s.in.block == none || s.sent == 0)) return false;
        if (phase_ == phase::settle &&
            (s.out.block == none || s.delivers != none || (still ? s.in.block == none : moves_to_output(me_, s))))
            return false;
        turn_ ^= 1u;
        if (arrives && ports_ > 1 && !match(slot, port_)) return false;
        const std::uint64_t skip = span_of(s).first;
        if (phase_ == phase::arrive)
            operands = gather(slot, port_, s, skip);
        else if (g_.index() == 0)
            board().operands[turn_][0] = source(me_, slot, skip);
        if (g_.index() == 0) {
            order& o = board().orders[turn_];
            const bool result =
                phase_ == phase::settle ||
                (s.delivers == round_ && (phase_ == phase::landed || (phase_ == phase::arrive && !lands_)));
            const bool lands = phase_ == phase::arrive && lands_;
            const spot to = phase_ != phase::stage && !lands && (result || moves_to_output(me_, s))
                                ? output(now().out, s)
                                : scratch(me_, lands ? landing(slot) : slot, s);
            const bool complete =
                phase_ == phase::arrive ? s.completes == round_ : phase_ == phase::settle && reduces(what) && n_ == 1;
            o.index = first_of(to, s.parts, skip);
            o.to = const_cast<std::byte*>(to.base) + o.index * (result ? sizeof(D) : sizeof(T));
            o.count = static_cast<std::uint32_t>(span_of(s).count);  // of a chunk
            o.operands = operands;
            o.ranks = complete ? n_ : 0;
            o.result = result;
        }
        g_.any(false);
        return true;
    }

    /// On which ports something arrives for the slot; false where an earlier port than this one has had it.
    COLLS_DEVICE bool match(int slot, int port) {
        std::int32_t* const found = board().match[turn_];
        COLLS_ROLLED
        for (int p = g_.index(); p < ports_; p += g_.size()) {
            const arrival& in = board().in[p];
            int j = in.peer == none ? 0 : in.to.size();
            COLLS_ROLLED
            while (--j >= 0)
                if (element_of(in.to, j) == slot) break;
            found[p] = j;
        }
        g_.any(false);
        COLLS_ROLLED
        for (int p = 0; p < port; ++p)
            if (found[p] >= 0) return false;
        return true;
    }
    /// The operands of a slot: all that arrives for it in this round in ascending order of ranks, its own value at its
    /// place among them, one that it sends itself before that. One thread an operand, the rank's own being one port
    /// more.
    COLLS_DEVICE int gather(int slot, int port, const slot_info& s, std::uint64_t skip) {
        const std::int32_t* const found = board().match[turn_];
        const bool folds = board().in[port].act == action::reduce,
                   own = folds && (s.in.block != none || round_ > s.moves);
        const int self = rank_of(me_);
        int count = own ? 1 : 0;
        COLLS_ROLLED
        for (int p = 0; p < ports_; ++p) count += ports_ == 1 || found[p] >= 0;
        COLLS_ROLLED
        for (int p = g_.index(); p <= ports_; p += g_.size()) {
            const bool is_own = p == ports_;
            if (is_own ? !own : ports_ > 1 && found[p] < 0) continue;
            const int role = is_own ? me_ : board().in[p].peer, from = rank_of(role);
            int at = own && !is_own && self < from ? 1 : 0;
            COLLS_ROLLED
            for (int other = 0; other < ports_; ++other) {
                if (other == p || (ports_ > 1 && found[other] < 0)) continue;
                const int there = rank_of(board().in[other].peer);
                at += there < from || (there == from && other < p);
            }
            board().operands[turn_][at] =
                source(role, is_own ? slot : element_of(board().in[p].from, ports_ == 1 ? at_ - 1 : found[p]), skip);
        }
        return folds ? count : 1;
    }

    mutable G g_;
    const Schedule& s_;
    const Op& op_;
    const Epilogue& epilogue_;
    const int block_, n_;
    int shift_ = 0, me_ = 0, rounds_ = 0, ports_ = 1, round_ = 0;
    int port_ = 0, at_ = 0;  // in hand: a port and a place in what arrives on it, or a slot
    unsigned turn_ = 0, entry_ = 0;
    phase phase_ = phase::stage;
    int lands_ = false, failed_ = false;  // bytes take more code
    std::uint64_t chunk_ = 0;
    std::uint64_t value_ = 0;  // this rank's state at the start of the round
};

/// Plays the call that the group has taken up, by one block of a rank.
template <class T, class D, class Schedule, class Op, class Epilogue, class G>
    requires thread_group<G>
COLLS_DEVICE bool run_body(const G& g, int block, const Schedule& s, const Op& op, const Epilogue& epilogue) {
    return body<Schedule, T, D, Op, Epilogue, G>(g, block, s, op, epilogue).run();
}

}  // namespace colls::inline v1::cuda::detail
